"""Sessions with what others wrote: held once, looked at by many tests."""

from __future__ import annotations

import features
import pairings
import pytest
from pairings import Held, Outcome, Pairing

pytest.register_assert_rewrite("checks")


@pytest.fixture(scope="session")
def sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Pairing, Outcome]:
    """The sessions that the collected tests ask for, held."""
    wanted: dict[Pairing, None] = {}
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        pairing = None if callspec is None else callspec.params.get("pairing")
        if isinstance(pairing, Pairing):
            wanted[pairing] = None
    return pairings.hold(list(wanted), tmp_path_factory.mktemp("interop"))


@pytest.fixture(scope="session")
def feature_sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[features.Way, features.Outcome]:
    """The sessions of features that the collected tests ask for; for the matrix all of them."""
    wanted: dict[features.Way, None] = {}
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        way = None if callspec is None else callspec.params.get("way")
        if isinstance(way, features.Way):
            wanted[way] = None
        elif item.name == "test_the_matrix_is_what_was_observed":
            wanted |= dict.fromkeys(features.WAYS)
    return features.hold(list(wanted), tmp_path_factory.mktemp("features"))


@pytest.fixture
def held(pairing: Pairing, sessions: dict[Pairing, Outcome]) -> Held:
    """The session of the test's pairing."""
    outcome = sessions[pairing]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
