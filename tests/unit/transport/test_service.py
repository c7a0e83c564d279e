"""Capabilities of services: a wrapper has those that it passes on."""

from __future__ import annotations

from typing import Any

import pytest
from lab.rows import every

from wirespeed import Server
from wirespeed.transport.gate import authority_of
from wirespeed.transport.http.routes import OverHttp, OverSse, WellKnown
from wirespeed.transport.service import (
    Connecting,
    DrainsLast,
    Forked,
    Graceful,
    HasSessions,
    KeptAlive,
    has_capability,
)

pytestmark = pytest.mark.compiled  # isinstance differs from one Python to another


class Wrapped:
    """A service that passes everything on."""

    def __init__(self, service: Any) -> None:
        self._service = service

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)


@every("capability", [Connecting, KeptAlive, Graceful, HasSessions, OverHttp, OverSse, WellKnown])
def test_a_wrapper_can_what_its_service_can(capability: type) -> None:
    service = Server("one").service
    assert has_capability(service, capability)
    assert has_capability(Wrapped(service), capability)


@pytest.mark.parametrize("capability", [Forked, DrainsLast])
def test_what_a_server_cannot(capability: type) -> None:
    assert not has_capability(Wrapped(Server("one").service), capability)


def test_the_access_check_of_a_wrapped_service_stays() -> None:
    class Checked:
        auth = object()

    assert authority_of(Wrapped(Checked())) is Checked.auth
    assert authority_of(Checked()) is Checked.auth
    assert authority_of(object()) is None
