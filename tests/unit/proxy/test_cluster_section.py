"""The section ``cluster`` of the proxy's file: its keys, its faults, and what an operator sees."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.cli import wirespeed
from lab.operation import Watched
from lab.proxy import until
from lab.store import MakeServer
from lab.wording import raises

from wirespeed import Stdio
from wirespeed.errors import ConfigError
from wirespeed.proxy import BackendConfig, ClusterConfig, ProxyConfig, RateConfig
from wirespeed.proxy.file import load
from wirespeed.proxy.operation.in_force import in_force
from wirespeed.proxy.reload import compare

SECRET = "s3cret-s3cret-s3cret"


def written(folder: Path, **cluster: Any) -> Path:
    path = folder / "proxy.json"
    document = {"mcpServers": {"a": {"command": sys.executable}}, "proxy": {"cluster": cluster}}
    path.write_text(json.dumps(document))
    return path


def test_every_key(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        url="rediss://app:${PASSWORD}@store.example",
        secret="${SECRET}",
        prefix="team-a",
        hostUrl="http://10.0.0.5:8765",
        hosts=3,
        storeTimeout=0.1,
        onStoreLoss="refuse",
    )
    environ = {"PASSWORD": "hidden", "SECRET": SECRET}
    found = load(file, environ).cluster
    assert found == ClusterConfig(
        url="rediss://app:hidden@store.example",
        secret=SECRET,
        prefix="team-a",
        host_url="http://10.0.0.5:8765",
        hosts=3,
        store_timeout=0.1,
        on_store_loss="refuse",
    )
    assert "hidden" not in repr(found) and SECRET not in repr(found)


def test_the_url_may_be_in_the_environment(tmp_path: Path) -> None:
    file = written(tmp_path, secret=SECRET)
    found = load(file, {"WIRESPEED_CLUSTER": "redis://:hidden@store"}).cluster
    assert found is not None and found.url == "redis://:hidden@store"
    with raises(ConfigError):
        load(file, {})


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret": "short"},
        {"hosts": 0},
        {"onStoreLoss": "wait"},
        {"hostUrl": "ws://10.0.0.5"},
        {"url": 1},
        {"storeTimeout": 0},
        {"sekret": ""},
    ],
    ids=lambda wrong: next(iter(wrong)),
)
def test_faults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, **{"url": "redis://store", "secret": SECRET, **wrong})
    with raises(ConfigError):
        load("proxy.json", {})


@pytest.mark.own_environment
def test_the_check_finds_faults_and_shows_no_secret(tmp_path: Path) -> None:
    for wrong in (
        {"url": f"redis://:{SECRET}@store/x"},
        {"url": "http://store"},
        {"prefix": "a b"},
    ):
        file = written(tmp_path, **{"url": "redis://store", "secret": SECRET, **wrong})
        done = wirespeed("proxy", "--config", str(file), "--check")
        assert done.returncode == 3
        assert "proxy.cluster: " in done.stderr and SECRET not in done.stderr
    file = written(tmp_path, secret=SECRET)
    done = wirespeed("proxy", "--config", str(file), "--check", WIRESPEED_CLUSTER="redis://store")
    assert (done.returncode, "is valid" in done.stderr) == (0, True)


def test_the_configuration_in_force_has_no_secret() -> None:
    cluster = ClusterConfig(url=f"redis://:{SECRET}@store", secret=SECRET, hosts=2)
    backend = BackendConfig(target=Stdio(sys.executable))
    config = ProxyConfig(backends=(backend,), listen=("ws://127.0.0.1:0/mcp",), cluster=cluster)
    found = in_force(config)
    assert SECRET not in json.dumps(found)
    assert found["cluster"] == {"url": "…", "secret": "…", "hosts": 2}


def test_the_client_of_the_store_is_loaded_for_the_section_alone() -> None:
    code = """
import sys
from wirespeed import Stdio
from wirespeed.proxy import BackendConfig, ClusterConfig, Proxy, ProxyConfig
backend = BackendConfig(target=Stdio("x"))
Proxy(ProxyConfig(backends=(backend,), listen=("http://127.0.0.1:0/mcp",)))
assert not {"redis", "wirespeed.cluster.store"} & {*sys.modules}
sys.modules["redis"] = None
cluster = ClusterConfig(url="redis://store", secret="0123456789abcdef")
Proxy(ProxyConfig(backends=(backend,), listen=(), cluster=cluster))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("wirespeed.errors.ConfigError: proxy.cluster: a cluster needs"), last


async def test_the_state_of_the_store_is_shown(
    tmp_path: Path, new_store_server: MakeServer
) -> None:
    store = new_store_server(password=SECRET)
    cluster = ClusterConfig(url=store.url.replace("://", f"://:{SECRET}@"), secret=SECRET)
    lab = Watched(tmp_path, "shared", cluster=cluster, rate=RateConfig(requests=100))
    async with lab.serving():
        assert (await lab.get("/status")).json["store"]["state"] == "idle"
        client = await lab.connect()
        shown = (await lab.get("/status")).json["store"]
        assert shown == {"name": store.url, "state": "up", "losses": 0}
        metrics = (await lab.get("/metrics")).text
        assert "\nwirespeed_proxy_store_up 1\n" in metrics
        store.freeze()
        await client.ask({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
        assert (await lab.get("/status")).json["store"]["state"] == "down"
        metrics = (await lab.get("/metrics")).text
        assert "\nwirespeed_proxy_store_up 0\n" in metrics
        assert "\nwirespeed_proxy_store_losses_total 1\n" in metrics
        page = (await lab.get("/")).text
        assert f"The store {store.url} is lost" in page and SECRET not in page
        store.thaw()
        while (await lab.get("/status")).json["store"]["state"] != "up":
            pass
    await until(lambda: store.ask("CLIENT", "LIST").count("\n") <= 1)


def test_another_store_needs_a_restart(tmp_path: Path) -> None:
    backend = BackendConfig(target=Stdio(sys.executable))
    one, two = (
        ProxyConfig(backends=(backend,), listen=(), cluster=ClusterConfig(url=url, secret=SECRET))
        for url in ("redis://one", "redis://two")
    )
    assert compare(one, two).pending == ("cluster changes at a restart only",)
