"""Loops of children, task pools, and certificates."""

from __future__ import annotations

import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab.taskpool import Lab

from wirespeed.transport.pooled_tasks import PooledTasks
from wirespeed.transport.taskpool import TaskPool


@pytest.fixture
def loop_of_children(any_loop: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Programs that a test starts run on the loop that the test is for."""
    monkeypatch.setenv("WIRESPEED_LOOP", any_loop)
    return any_loop


@pytest.fixture(params=[PooledTasks, TaskPool])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(params=["fresh", "parked", "plain"])
def lab(request: pytest.FixtureRequest) -> Any:
    """A lab whose pool is open when the test begins.

    "fresh" requests meet a pool whose tasks have not had their first step, "parked" ones a pool
    with tasks that are waiting, "plain" ones a pool that makes a task for each.
    """
    kind = TaskPool if request.param == "plain" else PooledTasks
    return Lab(kind, parked=request.param == "parked")


@pytest.fixture
def max_idle() -> int:
    return 256


@pytest.fixture
def run(run: Any, request: pytest.FixtureRequest) -> Any:
    """``run(coroutine)`` on the loop that the test is for, inside the scene of its lab."""
    if "lab" not in request.fixturenames:
        return run
    lab, max_idle = map(request.getfixturevalue, ("lab", "max_idle"))
    return lambda test: run(lab.scene(test, max_idle))


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-keyout", key, "-out", cert, "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.fixture(scope="session")
def server_ssl(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    return context


@pytest.fixture(scope="session")
def client_ssl(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(certificate[0]))
