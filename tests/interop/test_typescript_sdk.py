"""Both ways and in both eras with the TypeScript SDK: sdk 1.x, and client and server 2.x."""

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

# The auto client of 2.x sends its probe to a server of its own, so `probes` is not said of it.
AGREE = [
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
REFUSE = [
    serving("ts2", "legacy", "", options=only(MODERN), error=MODERN),
    serving("ts2", MODERN, "", options=only(ALL_LEGACY), error=MODERN),
    serving("ts1", "legacy", "", options=only(MODERN), error=MODERN),
    calling("ts2", "legacy", "", options=("--modern",), error=MODERN),
    calling("ts1", "modern", "", error="VersionMismatch"),
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
