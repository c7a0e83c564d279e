"""What is set on TCP connections."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from lab.rows import every
from lab.serve import lab_server, serving

from wirespeed import Client
from wirespeed.transport.net import listener, sockets
from wirespeed.transport.net.sockets import make_prompt, watch_peer


def congestion_control(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\0")


@every(
    ("host", "is_here"),
    [
        ("127.0.0.1", True),
        ("127.8.9.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("::12", False),
        ("192.0.2.7", False),
        ("2001:db8::1", False),
    ],
)
def test_nothing_is_paced_on_this_machine(host: str, is_here: bool) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as sock:
        default = congestion_control(sock)
        make_prompt(sock, (host, 80))
        assert congestion_control(sock) == (b"reno" if is_here else default)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


def test_a_peer_that_is_watched() -> None:
    """Keepalive finds out that a host has ended while its link was cut."""
    with socket.socket() as sock:
        make_prompt(sock, ("192.0.2.7", 80))
        watch_peer(sock)
        names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        options = [getattr(socket, name) for name in names]
        found = [sock.getsockopt(socket.IPPROTO_TCP, option) for option in options]
        assert found == [2, 1, 3, 5000]


async def test_both_ends_of_a_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bytes] = []

    def noted(sock: socket.socket, place: Any) -> None:
        make_prompt(sock, place)
        found.append(congestion_control(sock))

    for module in (sockets, listener):
        monkeypatch.setattr(module, "make_prompt", noted)
    async with serving(lab_server()) as place, Client(f"ws://127.0.0.1:{place.port}/mcp"):
        assert found == [b"reno", b"reno"]
