"""Lines of the access log."""

from __future__ import annotations

import json
import logging
from datetime import datetime
from typing import Any

import pytest

from wirespeed.transport.access_log import AccessLog


@pytest.fixture
def lines(caplog: Any) -> Any:
    caplog.set_level(logging.INFO, logger="wirespeed.access")
    return lambda: [record.getMessage() for record in caplog.records]


def test_a_line_of_text(lines: Any) -> None:
    log = AccessLog("text")
    log.log("127.0.0.1:5", "POST", "/mcp", 200, 81, 0.0012345, "tools/call")
    log.log("127.0.0.1:5", "GET", "/healthz", 503, 5, 0.5)
    assert lines() == [
        "127.0.0.1:5 POST /mcp 200 81 1.234 ms tools/call",
        "127.0.0.1:5 GET /healthz 503 5 500 ms",
    ]


def test_a_line_of_json(lines: Any) -> None:
    AccessLog("json").log("127.0.0.1:5", "POST", "/mcp", 200, 81, 0.25, "tools/call")
    (line,) = lines()
    found = json.loads(line)
    assert datetime.fromisoformat(found.pop("time")).tzinfo is not None
    assert found == {
        "peer": "127.0.0.1:5",
        "method": "POST",
        "path": "/mcp",
        "status": 200,
        "bytes": 81,
        "ms": 250.0,
        "rpc": "tools/call",
    }


def test_a_share_is_logged_and_every_failure_of_ours(lines: Any) -> None:
    log = AccessLog("text", 0.25)
    for number in range(8):
        log.log("p", "POST", f"/{number}", 404, 0, 0.0)
    assert [line.split()[2] for line in lines()] == ["/0", "/4"]
    for _ in range(3):
        log.log("p", "POST", "/mcp", 500, 0, 0.0)
    assert len(lines()) == 5


def test_a_client_cannot_forge_a_line(lines: Any) -> None:
    AccessLog("text").log("p", "POST", "/mcp", 200, 0, 0.0, "a\nb c\x1b[0m" + "x" * 5000)
    (line,) = lines()
    assert "\n" not in line
    assert "\x1b" not in line
    assert line.split()[7].startswith("a?b?c?[0mx")
    assert len(line) < 300
