"""Sessions with the programs of others: held once, looked at by many tests.

Without ``--full`` one peer of each kind is spoken with: the newest official SDK of Python and that
of TypeScript, in the newest revision of each era, one library for WebSocket, and the browser.
"""

from __future__ import annotations

from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any

import features
import pairings
import pytest
from pairings import Held, Outcome, Pairing

pytest.register_assert_rewrite("checks")

HERE = Path(__file__).parent
BOUND_SECONDS = 280.0  # less than `faulthandler_timeout`
SAMPLE = {"python2", "ts2", "websockets", "uvicorn", "uvicorn-h11", "ours"}


def sampled(item: pytest.Item) -> bool:
    """Whether the test is about a peer of the sample, or about none."""
    callspec = getattr(item, "callspec", None)
    params = {} if callspec is None else callspec.params
    pairing, way = params.get("pairing"), params.get("way")
    if isinstance(pairing, Pairing):
        newest = pairing.mode in ("auto", "legacy") and not pairing.options
        return pairing.peer in SAMPLE and newest
    if isinstance(way, features.Way):
        return way.peer in SAMPLE and way in features.WAYS
    peer = params.get("peer", params.get("library"))
    return peer is None or peer in SAMPLE


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is not of the sample."""
    for path, found in groupby(items, key=attrgetter("path")):
        if HERE in path.parents:
            for item in found:
                if not sampled(item):
                    item.add_marker(pytest.mark.full("another peer of the same kind"))


@pytest.fixture
def bound() -> float:
    """The first test of a peer installs it."""
    return BOUND_SECONDS


def wanted(request: pytest.FixtureRequest, name: str) -> list[Any]:
    """The values of a parameter that tests of this module have, each once."""
    found: dict[Any, None] = {}
    for item in request.session.items:
        callspec = getattr(item, "callspec", None)
        if callspec is not None and name in callspec.params and item.path == request.path:
            found[callspec.params[name]] = None
    return list(found)


@pytest.fixture(scope="module")
def sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[Pairing, Outcome]:
    """The sessions that the collected tests of a module ask for, held."""
    return pairings.hold(wanted(request, "pairing"), tmp_path_factory.mktemp("interop"))


@pytest.fixture(scope="module")
def feature_sessions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[features.Way, features.Outcome]:
    """The sessions of features that the collected tests ask for; for the matrix all of them."""
    ways = wanted(request, "way")
    if any(item.name == "test_the_matrix_is_what_was_observed" for item in request.session.items):
        ways += [way for way in features.WAYS if way not in ways]
    return features.hold(ways, tmp_path_factory.mktemp("features"))


@pytest.fixture
def held(pairing: Pairing, sessions: dict[Pairing, Outcome]) -> Held:
    """The session of the test's pairing."""
    outcome = sessions[pairing]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
