"""Every feature with every peer, both ways and in both eras; see `features`."""

from __future__ import annotations

import difflib

import features
import pytest
from features import DEVIATIONS, FEATURES, HTTP, MATRIX, OLDER, WAYS, Held, Outcome, Way
from pairings import unfit

CASES = [(way, feature) for way in WAYS for feature in way.features]
BESIDE = [*OLDER, *HTTP]
BESIDE_CASES = [(way, feature) for way in BESIDE for feature in way.features]


def held(way: Way, feature_sessions: dict[Way, Outcome]) -> Held:
    outcome = feature_sessions[way]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@pytest.mark.parametrize(("way", "feature"), CASES + BESIDE_CASES, ids=str)
def test_feature(way: Way, feature: str, feature_sessions: dict[Way, Outcome]) -> None:
    cell = features.observed(held(way, feature_sessions), feature)
    if (way.peer, way.serving, way.era, feature) in DEVIATIONS:
        assert cell.state == "deviates", "it does as it should: its entry in DEVIATIONS goes"
        return
    assert cell.state in ("works", "absent"), cell.seen


@pytest.mark.parametrize("way", WAYS + BESIDE, ids=str)
def test_the_session(way: Way, feature_sessions: dict[Way, Outcome]) -> None:
    """The right revision, an orderly end, and nothing that belongs to no call."""
    session = held(way, feature_sessions)
    assert session.report["version"] == way.version
    assert session.report["closing"] is True
    # the TypeScript client gives up an answer of its own whose acceptance is still on the way
    stray = [text for text in session.report.get("stray", ()) if "AbortError" not in text]
    assert stray == []
    assert not session.report.get("spy_said")
    assert session.runs[-1].exit == 0


@pytest.mark.parametrize("way", WAYS + BESIDE, ids=str)
def test_our_messages_fit_their_revision(way: Way, feature_sessions: dict[Way, Outcome]) -> None:
    for run in held(way, feature_sessions).runs:
        assert unfit(run, way.serving) == []


@pytest.mark.full("the matrix has every peer")
def test_the_matrix_is_what_was_observed(
    feature_sessions: dict[Way, Outcome], pytestconfig: pytest.Config
) -> None:
    cells = {
        (way, feature): features.observed(held(way, feature_sessions), feature)
        for way, feature in CASES
    }
    for (way, feature), cell in cells.items():
        assert cell.state != "deviates" or cell.note, (str(way), feature, cell.seen)
    page = features.matrix(cells)
    if pytestconfig.getoption("--write-matrix"):
        MATRIX.write_text(page, encoding="utf-8")
        return
    written = MATRIX.read_text(encoding="utf-8") if MATRIX.exists() else ""
    difference = difflib.unified_diff(
        written.splitlines(), page.splitlines(), str(MATRIX), "observed", lineterm=""
    )
    assert written == page, "\n".join(difference)


def test_the_deviations_are_of_this_matrix() -> None:
    for peer, serving, era, feature in DEVIATIONS:
        assert feature in FEATURES
        assert Way(peer, serving, era) in WAYS
