"""Both ways and in both eras with the Python SDK: mcp 2 and mcp 1."""

from __future__ import annotations

import pytest
from checks import CHECKS
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

AGREE = [
    serving("python2", "legacy", LATEST_LEGACY),
    serving("python2", "auto", MODERN, probes=True),
    serving("python2", MODERN, MODERN),
    *(serving("python2", "legacy", v, options=only(v)) for v in OLDER),
    serving("python2", "auto", LATEST_LEGACY, options=only(ALL_LEGACY), probes=True),
    serving("python2", "auto", MODERN, options=only(MODERN), probes=True),
    serving("python1", "legacy", LATEST_LEGACY),
    *(serving("python1", "legacy", v, options=only(v)) for v in OLDER),
    calling("python2", "auto", MODERN),
    calling("python2", "modern", MODERN),
    calling("python2", "legacy", LATEST_LEGACY),
    *(calling("python2", "legacy", v, options=("--legacy", v)) for v in OLDER),
    calling("python1", "auto", LATEST_LEGACY),
    calling("python1", "legacy", LATEST_LEGACY),
    *(calling("python1", "legacy", v, options=("--legacy", v)) for v in OLDER),
]
REFUSE = [
    serving("python2", "legacy", "", options=only(MODERN), error=MODERN),
    serving("python1", "legacy", "", options=only(MODERN), error=MODERN),
    calling("python1", "modern", "", error="VersionMismatch"),
]


@pytest.mark.parametrize("feature", CHECKS)
@pytest.mark.parametrize("pairing", AGREE, ids=str)
def test_feature(held: Held, feature: str) -> None:
    CHECKS[feature](held)


@pytest.mark.parametrize("pairing", AGREE, ids=str)
def test_our_messages_fit_their_revision(held: Held) -> None:
    for run in held.runs:
        assert unfit(run, held.pairing.serving) == []


@pytest.mark.parametrize("pairing", REFUSE, ids=str)
def test_no_version_in_common(held: Held, pairing: Pairing) -> None:
    assert pairing.error in held.report["connect_error"]
    assert held.run.exit == 0
