"""Every numbered trap of the protocol that this package can fall into has a test of its name."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

# In a test's name, or in the name of one of its parameters.
NAMED = re.compile(r"def test_traps?_(\d+(?:_and_\d+|_\d+)*)|\"trap (\d+)[ ,]")

ALL = frozenset(range(1, 98))
OF_HTTP = frozenset({*range(36, 59), 96}) - {38, 43, 46}
OF_AUTHORIZATION = frozenset({84, 85, 86})
OF_PROXIES = frozenset({4, 87})


def test_every_trap_has_its_test() -> None:
    found: set[int] = set()
    for path in TESTS.rglob("test_*.py"):
        for names in NAMED.finditer(path.read_text(encoding="utf-8")):
            found.update(int(n) for n in re.findall(r"\d+", names[0]))
    assert sorted(ALL - OF_AUTHORIZATION - OF_PROXIES - found) == []
