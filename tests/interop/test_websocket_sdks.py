"""MCP over WebSocket with the SDKs that have it: mcp 1 both ways, TypeScript sdk 1.x's client.

Both speak only the legacy era. The second versions of both SDKs no longer have it.
"""

from __future__ import annotations

import pytest
from checks import CHECKS, WEBSOCKET_CHECKS
from pairings import (
    ALL_LEGACY,
    LATEST_LEGACY,
    MODERN,
    OLDER,
    Held,
    Pairing,
    calling,
    only,
    serving,
    unfit,
)

COMPRESSED = ("--compression",)
AGREE = [
    serving("python1", "legacy", LATEST_LEGACY, over="ws"),
    serving("python1", "legacy", LATEST_LEGACY, over="ws", options=COMPRESSED),
    *(serving("python1", "legacy", v, over="ws", options=only(v)) for v in OLDER),
    serving("ts1", "legacy", LATEST_LEGACY, over="ws"),
    serving("ts1", "legacy", LATEST_LEGACY, over="ws", options=COMPRESSED),
    serving("ts1", "legacy", LATEST_LEGACY, over="ws", options=only(ALL_LEGACY)),
    *(serving("ts1", "legacy", v, over="ws", options=only(v)) for v in OLDER),
    calling("python1", "auto", LATEST_LEGACY, over="ws"),
    calling("python1", "legacy", LATEST_LEGACY, over="ws"),
    calling("python1", "legacy", LATEST_LEGACY, over="ws", options=COMPRESSED),
    *(calling("python1", "legacy", v, over="ws", options=("--legacy", v)) for v in OLDER),
]
REFUSE = [
    serving("python1", "legacy", "", over="ws", options=only(MODERN), error=MODERN),
    serving("ts1", "legacy", "", over="ws", options=only(MODERN), error=MODERN),
    calling("python1", "modern", "", over="ws", error="VersionMismatch"),
]


@pytest.mark.parametrize("feature", CHECKS | WEBSOCKET_CHECKS)
@pytest.mark.parametrize("pairing", AGREE, ids=str)
def test_feature(held: Held, feature: str) -> None:
    (CHECKS | WEBSOCKET_CHECKS)[feature](held)


@pytest.mark.parametrize("pairing", AGREE, ids=str)
def test_our_messages_fit_their_revision(held: Held) -> None:
    for run in held.runs:
        assert unfit(run, held.pairing.serving) == []


@pytest.mark.parametrize("pairing", REFUSE, ids=str)
def test_no_version_in_common(held: Held, pairing: Pairing) -> None:
    assert pairing.error in held.report["connect_error"]
    assert held.run.exit == 0
