"""A page in a real browser calls tools with `fetch`, and the Origin rule holds for it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import browser
import peers
import pytest
from visits import FOREIGN, Seen, Visit, made

PROGRAM = browser.find()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no chromium: install one, or name it in WIRESPEED_CHROMIUM"
)
VISITS: dict[str, Visit] = {
    "own": ("127.0.0.1", (), True),
    "foreign": (FOREIGN, (), False),
    "foreign-listed": (FOREIGN, ("--origin", f"http://{FOREIGN}:*"), True),
    "own-not-listed": ("127.0.0.1", ("--origin", f"http://{FOREIGN}:*"), False),
}
CALLS = {
    "add": {"result": 5},
    "unicode": True,
    "big": True,
    "many": 100,
    "progress": [1, 2, 3],
    "fail": True,
    "unknown": -32602,
}


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of the web server with the page."""
    with browser.pages({"/page": (peers.PROGRAMS / "http_page.html").read_bytes()}) as found:
        yield found


@pytest.fixture(scope="module")
def visits(port: int, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Seen]:
    assert PROGRAM is not None
    return made(PROGRAM, VISITS, port, tmp_path_factory.mktemp("browser"), "http")


@pytest.mark.parametrize("name", [name for name, visit in VISITS.items() if visit[2]])
def test_page_calls_tools(visits: Any, port: int, name: str) -> None:
    shown, life = visits[name]
    assert shown["legacy"] == {"server": "interop", **CALLS, "deleted": True}
    assert shown["modern"].pop("versions")[0] == "2026-07-28"
    assert shown["modern"] == CALLS
    assert life.exit == 0
    origin = f"Origin: http://{VISITS[name][0]}:{port}"
    assert all(origin in lines for side, lines in life.heads if side == ">")


@pytest.mark.parametrize("name", [name for name, visit in VISITS.items() if not visit[2]])
def test_page_of_another_origin_is_refused(visits: Any, name: str) -> None:
    shown, life = visits[name]
    failed = {"failed": "TypeError: Failed to fetch"}
    assert shown == {"legacy": failed, "modern": failed}
    # a browser asks before it sends the message, so the server reads none
    assert {lines[0].split()[0] for side, lines in life.heads if side == ">"} == {"OPTIONS"}
    assert {lines[0].split()[1] for side, lines in life.heads if side == "<"} == {"403"}
    assert life.wire == []
    assert life.exit == 0
