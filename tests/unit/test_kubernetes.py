"""The manifests and the container file of examples/: they say what they mean, and run.

Their schemas and the style of the container file are checked with the linters (CONTRIBUTING.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from lab.cli import Serving, serving
from lab.nameserver import nameserver
from lab.operation import fetch
from lab.process import free_port
from lab.store import StoreServer

from wirespeed import Client, Http
from wirespeed.proxy.file import load

pytestmark = pytest.mark.off_schema

ROOT = Path(__file__).resolve().parents[2] / "examples"
DOCUMENTS: list[dict[str, Any]] = [
    document
    for path in sorted((ROOT / "kubernetes").glob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
]
LABEL = "app.kubernetes.io/name"
# The keys that the first lines of the manifests tell of.
SECRETS = {
    "mill": {"token": "t" * 32, "metrics-token": "m" * 32, "secret": "s" * 32},
    "gateway": {"admin-token": "a" * 32, "app-token": "p" * 32, "secret": "g" * 32},
}


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    """The documents of a kind, by name."""
    return {one["metadata"]["name"]: one for one in DOCUMENTS if one["kind"] == kind}


DEPLOYMENTS = of_kind("Deployment")
PODS = {name: one["spec"]["template"]["spec"] for name, one in DEPLOYMENTS.items()}
CONTAINERS = {name: pod["containers"][0] for name, pod in PODS.items()}


def environment(name: str, store: str) -> dict[str, str]:
    """The variables of a container. Both have the same store."""
    found = {}
    for one in CONTAINERS[name]["env"]:
        source = one["valueFrom"]
        if "fieldRef" in source:
            of_pod = {"status.podIP": "127.0.0.1", "metadata.name": f"{name}-5d4f-x2"}
            found[one["name"]] = of_pod[source["fieldRef"]["fieldPath"]]
        else:
            key = source["secretKeyRef"]
            secrets = {"store": store, **SECRETS[key["name"]]}
            found[one["name"]] = secrets[key["key"]]
    return found


def proxy_file(folder: Path, *changes: tuple[str, str]) -> Path:
    """The file of the proxy, with some texts replaced."""
    text = of_kind("ConfigMap")["gateway"]["data"]["proxy.toml"]
    for before, after in changes:
        assert text.count(before) == 1
        text = text.replace(before, after)
    path = folder / "proxy.toml"
    path.write_text(text)
    return path


def seconds_of_the_end(name: str) -> float:
    """The seconds that a container has after SIGTERM."""
    if name == "mill":
        program = (ROOT / "container/mill.py").read_text()
        text = " ".join([*CONTAINERS[name]["args"], program])
        found = re.findall(r"(?:--drain-delay|shutdown_grace)=(\d+)", text)
    else:
        text = of_kind("ConfigMap")["gateway"]["data"]["proxy.toml"]
        found = re.findall(r"(?:drainDelay|shutdownGrace) = (\d+)", text)
    assert len(found) == 2
    return float(sum(map(int, found)))


# -- what they say ---------------------------------------------------------------------------------


def test_everything_finds_the_pods() -> None:
    labels = {
        name: one["spec"]["template"]["metadata"]["labels"][LABEL]
        for name, one in DEPLOYMENTS.items()
    }
    assert labels == {"mill": "mill", "gateway": "gateway"}
    for name in labels:
        assert DEPLOYMENTS[name]["spec"]["selector"]["matchLabels"] == {LABEL: name}
        assert of_kind("Service")[name]["spec"]["selector"] == {LABEL: name}
        selectors = [
            of_kind("PodDisruptionBudget")[name]["spec"]["selector"],
            of_kind("NetworkPolicy")[name]["spec"]["podSelector"],
            PODS[name]["topologySpreadConstraints"][0]["labelSelector"],
        ]
        assert selectors == [{"matchLabels": {LABEL: name}}] * 3
        target = of_kind("HorizontalPodAutoscaler")[name]["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) == ("Deployment", name)
    assert of_kind("Service")["mill"]["spec"]["clusterIP"] == "None"


@pytest.mark.parametrize("name", ["mill", "gateway"])
def test_a_container_may_do_nothing_that_it_need_not(name: str) -> None:
    pod, container = PODS[name], CONTAINERS[name]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] > 0
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"]["memory"]
    policy = of_kind("NetworkPolicy")[name]["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    ports = {one["name"] for one in container["ports"]}
    assert {port["port"] for rule in policy["ingress"] for port in rule["ports"]} == ports
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["port"] in ports


@pytest.mark.parametrize("name", ["mill", "gateway"])
def test_a_pod_has_time_to_end(name: str) -> None:
    assert PODS[name]["terminationGracePeriodSeconds"] > seconds_of_the_end(name)


def test_the_file_of_the_proxy(tmp_path: Path) -> None:
    config = load(proxy_file(tmp_path), environment("gateway", "redis://127.0.0.1"))
    (backend,) = config.backends
    assert backend.resolve == "a" and backend.target.url == "http://mill:8000/mcp"
    assert config.cluster is not None and config.cluster.host_url == "http://127.0.0.1:8765"
    service = of_kind("Service")["mill"]["spec"]
    assert service["ports"][0]["port"] == 8000


# -- they run --------------------------------------------------------------------------------------


@contextmanager
def running(name: str, env: dict[str, str], **replaced: str) -> Iterator[Serving]:
    """The container of a deployment, as a process. ``replaced``: Texts of its arguments, which
    stand for what a cluster has."""
    command, *args = CONTAINERS[name]["args"]
    for before, after in {"$(POD_IP)": env.get("POD_IP", ""), **replaced}.items():
        args = [one.replace(before, after) for one in args]
    with serving(*args, command=command, **env) as found:
        yield found


async def test_they_run(tmp_path: Path, store_server: StoreServer) -> None:
    """Two servers of one name behind the proxy. The probes answer, the metrics of the autoscalers
    exist, and SIGTERM ends all in order."""
    port, metrics_port, admin_port, proxy_port = (free_port() for _ in range(4))
    env = environment("mill", store_server.url)
    file = proxy_file(
        tmp_path,
        ("http://mill:8000/mcp", f"http://mill.test:{port}/mcp"),
        ('resolve = "a"', 'resolve = "a"\nresolver = ["RESOLVER"]'),
        ("http://0.0.0.0:8765", f"http://127.0.0.1:{proxy_port}"),
        ("http://0.0.0.0:9464", f"http://127.0.0.1:{admin_port}"),
        ("drainDelay = 15", "drainDelay = 0.1"),
    )
    async with nameserver() as dns:
        dns.have("mill.test", "A", "127.0.0.1")
        file.write_text(file.read_text().replace("RESOLVER", dns.address))
        own = {
            "/srv/mill.py": str(ROOT / "container" / "mill.py"),
            "0.0.0.0:8000": f"0.0.0.0:{port}",
            "0.0.0.0:9464": f"127.0.0.1:{metrics_port}",
            "--drain-delay=15": "--drain-delay=0.1",
        }
        with running("mill", env, **own) as mill:
            mill.line("serving")
            assert (await fetch(port, "/healthz", {})).status == 200
            gate_env = environment("gateway", store_server.url)
            own = {"/etc/wirespeed/proxy.toml": str(file)}
            with running("gateway", gate_env, **own) as gateway:
                gateway.line("serving")
                token = SECRETS["gateway"]["app-token"]
                for era in ("modern", "legacy"):
                    target = Http(f"http://127.0.0.1:{proxy_port}/mcp", token=token)
                    async with Client(target, era=era) as client:  # type: ignore[arg-type]
                        answer = await client.call_tool("grind", {"bags": 2})
                        assert answer.text == "2 bags of flour"
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    path = CONTAINERS["gateway"][probe]["httpGet"]["path"]
                    assert (await fetch(admin_port, path, {})).status == 200
                shown = {
                    "mill": await metrics(metrics_port, SECRETS["mill"]["metrics-token"]),
                    "gateway": await metrics(admin_port, SECRETS["gateway"]["admin-token"]),
                }
                for name, scaler in of_kind("HorizontalPodAutoscaler").items():
                    for metric in scaler["spec"]["metrics"]:
                        if metric["type"] == "Pods":
                            assert metric["pods"]["metric"]["name"] in shown[name]
                assert gateway.end() == 0
            assert mill.end() == 0


async def metrics(port: int, token: str) -> set[str]:
    """The names of the metrics that a process shows."""
    got = await fetch(port, "/metrics", {"Authorization": f"Bearer {token}"})
    assert got.status == 200
    return set(re.findall(r"^([a-z_]+)(?:\{.*\})? [0-9.e+-]+$", got.text, re.MULTILINE))


# -- the container file ----------------------------------------------------------------------------


def test_the_container_file_runs_what_the_manifests_run() -> None:
    text = (ROOT / "container" / "Containerfile").read_text()
    (user,) = re.findall(r"^USER (\d+):(\d+)$", text, re.MULTILINE)
    for pod in PODS.values():
        context = pod["securityContext"]
        assert (str(context["runAsUser"]), str(context["runAsGroup"])) == user
    (source, target) = re.findall(r"^COPY (examples/\S+) (/srv/\S+)$", text, re.MULTILINE)[0]
    assert (ROOT.parent / source).is_file()
    assert target in CONTAINERS["mill"]["args"]
    images = {one["image"] for one in CONTAINERS.values()}
    assert images == {"registry.example/mill:1.0.0"}
    assert 'ENTRYPOINT ["wirespeed"]' in text and "command" not in CONTAINERS["mill"]
    # process 1 gets the signals: neither a shell nor a script stands before it
    assert all(
        line.split(None, 1)[1].startswith("[")
        for line in text.splitlines()
        if line.startswith(("CMD", "ENTRYPOINT"))
    )
