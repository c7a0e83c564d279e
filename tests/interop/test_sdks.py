"""Both ways and in both eras with the SDKs: each one's calls, over each of its transports.

Over WebSocket only mcp 1 and the client of TypeScript sdk 1.x speak it, in the legacy era; their
second versions no longer have it. Streamable HTTP all of them have, from 2025-03-26 on.
"""

from __future__ import annotations

import signal

import pytest
from checks import CHECKS, HTTP_CHECKS, WEBSOCKET_CHECKS
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
PYTHON = [
    serving("python2", "legacy", LATEST_LEGACY),
    serving("python2", "auto", MODERN, probes=True),
    serving("python2", MODERN, MODERN),
    *(serving("python2", "legacy", v, options=only(v)) for v in OLDER),
    serving("python2", "auto", LATEST_LEGACY, options=only(ALL_LEGACY), probes=True),
    serving("python2", "auto", MODERN, options=only(MODERN), probes=True),
    serving("python1", "legacy", LATEST_LEGACY),
    *(serving("python1", "legacy", v, options=only(v)) for v in OLDER),
    serving("fastmcp", "legacy", LATEST_LEGACY),
    serving("fastmcp", "auto", MODERN, probes=True),
    serving("fastmcp", "auto", "2025-06-18", options=only("2025-06-18"), probes=True),
    calling("python2", "auto", MODERN),
    calling("python2", "modern", MODERN),
    calling("python2", "legacy", LATEST_LEGACY),
    *(calling("python2", "legacy", v, options=("--legacy", v)) for v in OLDER),
    calling("python1", "auto", LATEST_LEGACY),
    calling("python1", "legacy", LATEST_LEGACY),
    *(calling("python1", "legacy", v, options=("--legacy", v)) for v in OLDER),
]
# The auto client of 2.x sends its probe to a server of its own, so `probes` is not said of it.
TYPESCRIPT = [
    serving("ts2", "legacy", LATEST_LEGACY),
    serving("ts2", "auto", MODERN),
    serving("ts2", MODERN, MODERN),
    *(serving("ts2", "legacy", v, options=only(v)) for v in OLDER),
    serving("ts2", "auto", LATEST_LEGACY, options=only(ALL_LEGACY)),
    serving("ts2", "auto", MODERN, options=only(MODERN)),
    serving("ts1", "legacy", LATEST_LEGACY),
    *(serving("ts1", "legacy", v, options=only(v)) for v in OLDER),
    calling("ts2", "auto", MODERN),
    calling("ts2", "modern", MODERN),
    calling("ts2", "legacy", LATEST_LEGACY),
    calling("ts2", "auto", MODERN, options=("--modern",)),
    *(calling("ts2", "legacy", v, options=("--legacy", v)) for v in OLDER),
    calling("ts1", "auto", LATEST_LEGACY),
    calling("ts1", "legacy", LATEST_LEGACY),
]
WEBSOCKET = [
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
HTTP = [
    serving("python2", "legacy", LATEST_LEGACY, over="http"),
    serving("python2", "auto", MODERN, probes=True, over="http"),
    *(serving("python2", "legacy", v, options=only(v), over="http") for v in OLDER[1:]),
    serving("python2", "auto", LATEST_LEGACY, options=only(ALL_LEGACY), probes=True, over="http"),
    serving("python1", "legacy", LATEST_LEGACY, over="http"),
    *(serving("python1", "legacy", v, options=only(v), over="http") for v in OLDER[1:]),
    serving("fastmcp", "legacy", LATEST_LEGACY, over="http"),
    serving("fastmcp", "auto", MODERN, probes=True, over="http"),
    serving("ts2", "legacy", LATEST_LEGACY, over="http"),
    serving("ts2", "auto", MODERN, over="http"),
    serving("ts2", "auto", LATEST_LEGACY, options=only(ALL_LEGACY), over="http"),
    serving("ts1", "legacy", LATEST_LEGACY, over="http"),
    calling("python2", "auto", MODERN, over="http"),
    calling("python2", "modern", MODERN, over="http"),
    calling("python2", "legacy", LATEST_LEGACY, over="http"),
    *(calling("python2", "legacy", v, options=("--legacy", v), over="http") for v in OLDER[1:]),
    calling("python1", "auto", LATEST_LEGACY, over="http"),
    calling("python1", "legacy", LATEST_LEGACY, over="http"),
    calling("ts2", "auto", MODERN, over="http"),
    calling("ts2", "legacy", LATEST_LEGACY, over="http"),
    calling("ts2", "auto", MODERN, options=("--modern",), over="http"),
    calling("ts1", "auto", LATEST_LEGACY, over="http"),
    calling("ts1", "legacy", LATEST_LEGACY, over="http"),
]
REFUSE = [
    serving("python2", "legacy", "", options=only(MODERN), error=MODERN),
    serving("python1", "legacy", "", options=only(MODERN), error=MODERN),
    calling("python1", "modern", "", error="VersionMismatch"),
    serving("ts2", "legacy", "", options=only(MODERN), error=MODERN),
    serving("ts2", MODERN, "", options=only(ALL_LEGACY), error=MODERN),
    serving("ts1", "legacy", "", options=only(MODERN), error=MODERN),
    calling("ts2", "legacy", "", options=("--modern",), error=MODERN),
    calling("ts1", "modern", "", error="VersionMismatch"),
    serving("python1", "legacy", "", over="ws", options=only(MODERN), error=MODERN),
    serving("ts1", "legacy", "", over="ws", options=only(MODERN), error=MODERN),
    calling("python1", "modern", "", over="ws", error="VersionMismatch"),
    serving("python2", "legacy", "", over="http", options=only(MODERN), error=MODERN),
    serving("ts2", "legacy", "", over="http", options=only(MODERN), error=MODERN),
    serving("ts2", MODERN, "", over="http", options=only(ALL_LEGACY), error=MODERN),
    calling("python1", "modern", "", over="http", error="VersionMismatch"),
    calling("ts1", "modern", "", over="http", error="VersionMismatch"),
    calling("ts2", "legacy", "", over="http", options=("--modern",), error=MODERN),
]
AGREE = [*PYTHON, *TYPESCRIPT, *WEBSOCKET, *HTTP]
OWN_CHECKS = {"stdio": {}, "ws": WEBSOCKET_CHECKS, "http": HTTP_CHECKS}
CASES = [
    (pairing, feature)
    for pairing in AGREE
    for feature in CHECKS | OWN_CHECKS[pairing.over]
    # FastMCP's client does not have subscriptions/listen
    if (pairing.peer, pairing.modern, feature) != ("fastmcp", True, "list_changed")
]


@pytest.mark.parametrize(("pairing", "feature"), CASES, ids=str)
def test_feature(held: Held, feature: str) -> None:
    (CHECKS | OWN_CHECKS[held.pairing.over])[feature](held)


@pytest.mark.parametrize("pairing", AGREE, ids=str)
def test_our_messages_fit_their_revision(held: Held) -> None:
    for run in held.runs:
        assert unfit(run, held.pairing.serving) == []


@pytest.mark.parametrize("pairing", REFUSE, ids=str)
def test_no_version_in_common(held: Held, pairing: Pairing) -> None:
    assert pairing.error in held.report["connect_error"]
    # the TypeScript client sends SIGTERM to a server that it only probed, as it closes its stdin
    probed = pairing.peer == "ts2" and pairing.serving and pairing.mode == MODERN
    assert held.run.exit in ((0, -signal.SIGTERM) if probed else (0,))
