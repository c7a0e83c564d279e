"""The wording of errors: a plugin of pytest that holds in one file what errors say.

``with raises(ValueError):`` is `pytest.raises`, and the text of the error is one that `wording.txt`
(beside this package) has for the test that runs. ``pytest --renew-wording`` writes the file: where
all cases of a test ran and passed, its texts are replaced; where not, texts are added. So an error
with other words is one run and one difference to read, and a fault that says something else than
before is a failed test.

The file has a section for each test function (``file::function``), without its cases. A line is the
class of an error and its whole text. A number before it counts the calls of `raises` in that
function, if there are several. A name before it is that of a function which the test calls. What
differs from run to run is replaced (`VARYING`). ``[…]`` stands for any text: write it by hand in
place of what another library says, and a renewal keeps it.
"""

from __future__ import annotations

import argparse
import errno
import inspect
import os
import re
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import pytest

E = TypeVar("E", bound=BaseException)

TESTS = Path(__file__).resolve().parents[1]
WORDING = TESTS / "wording.txt"
Place = tuple[str, int, str]  # file, line, function
ANY = "[…]"
CALL = re.compile(r"(?<!pytest\.)\braises\(")

HEAD = """\
# What errors say in the tests that use lab.wording.raises, written by `pytest --renew-wording`.
# The docstring of tests/lab/wording.py says what a line means.
"""

# What differs from run to run or from machine to machine, in the order in which it is replaced.
TEMPORARY = "|".join(re.escape(f(tempfile.gettempdir())) for f in (str, os.path.realpath))
VARYING = [
    (re.compile(rf"{re.escape(sys.executable)}(?: -[IS])*"), "<python>"),
    (re.compile(rf"{re.escape(str(TESTS.parent))}(?=/|\b)"), "<root>"),
    (re.compile(rf"(?:{TEMPORARY})/pytest-of-[^/\s]+/[^/\s]+/(?:popen-gw\d+/)?[\w.-]+"), "<tmp>"),
    (re.compile(rf"(?:{TEMPORARY})/[\w.-]+"), "<tmp>"),
    (re.compile(r"%2F[\w.%-]+%2Fpytest-of-[\w.%-]+?(?=%2F[\w.-]+/)"), "<tmp>"),
    (re.compile(r"(?<=, directory )(?!<tmp>)[^;\s]+"), "<cwd>"),
    (re.compile(r"(127\.0\.0\.1|localhost|\[::1\]):\d{4,5}\b"), r"\1:<port>"),
    (re.compile(r"\b(pid|process) \d+"), r"\1 <pid>"),
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "<address>"),
]
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ud800-\udfff]|[ \xa0]$")
# What the operating system says: libraries differ in their words.
FAULTS = {os.strerror(code): f"<{name}>" for code, name in errno.errorcode.items()}
FAULT = re.compile("|".join(map(re.escape, sorted(FAULTS, key=len, reverse=True))))


def plain(text: str) -> str:
    """A text as the file has it: one line, without what `VARYING` and `FAULTS` replace."""
    for found, name in VARYING:
        text = found.sub(name, text)
    text = FAULT.sub(lambda match: FAULTS[match[0]], text)
    return CONTROL.sub(lambda match: shown(ord(match[0])), text)


def shown(code: int) -> str:
    """A character that a line of text cannot have, or would hide."""
    return chr(0x2400 + code) if code < 0x20 else f"<U+{code:04X}>"


class Book:
    """The texts that tests may see, and those that they saw."""

    def __init__(self, path: Path, renewing: bool) -> None:
        self.path = path
        self.renewing = renewing
        self.known = sections(path.read_text(encoding="utf-8")) if path.exists() else {}
        self.seen: defaultdict[str, set[str]] = defaultdict(set)
        self.cases: Counter[str] = Counter()
        self.passed: Counter[str] = Counter()
        self.partial: set[str] = set()
        self.item: pytest.Item | None = None

    def key_of(self, item: pytest.Item) -> str:
        """The name of a test's section."""
        path = item.path.relative_to(self.path.parent).as_posix()
        return f"{path}::{getattr(item, 'originalname', item.name)}"

    def note(self, exc: BaseException, place: Place) -> None:
        """An error was seen in the test that runs. Raise AssertionError if its text is unknown."""
        assert self.item is not None, "raises() is for tests"
        key = self.key_of(self.item)
        line = f"{where(self.item, place)}{type(exc).__name__}: {plain(str(exc))}"
        known = self.known.get(key, set())
        fits = max(sorted(each for each in known if fit(each, line)), key=len, default=line)
        self.seen[key].add(fits)
        if fits not in known and not self.renewing:
            raise AssertionError(
                "\n".join(
                    (
                        f"{self.path.name} has no such text of {key}",
                        f"seen:  {line}",
                        *(f"known: {each}" for each in sorted(known)),
                        "pytest --renew-wording writes it",
                    )
                )
            ) from exc

    # -- what a process of pytest-xdist tells, and what comes of it --------------------------------

    def told(self) -> dict[str, Any]:
        return {
            "seen": {key: sorted(lines) for key, lines in self.seen.items()},
            "passed": dict(self.passed),
            "cases": dict(self.cases),
            "partial": sorted(self.partial),
        }

    def add(self, told: dict[str, Any]) -> None:
        for key, lines in told["seen"].items():
            self.seen[key].update(lines)
        self.passed.update(told["passed"])
        self.cases |= Counter(told["cases"])
        self.partial.update(told["partial"])

    def write(self) -> None:
        """Write the file: what was seen, and what is known of tests that did not run as a whole."""
        whole = {
            key
            for key, n in self.cases.items()
            if self.passed[key] == n and key not in self.partial
        }
        texts = {key: set(lines) for key, lines in self.known.items() if exists(self.path, key)}
        for key in whole | self.seen.keys():
            texts[key] = self.seen[key] | (set() if key in whole else texts.get(key, set()))
        self.path.write_text(
            HEAD + "".join(written(key, lines) for key, lines in sorted(texts.items()) if lines),
            encoding="utf-8",
        )


# Of the run.
current: Book | None = None


def sections(text: str) -> dict[str, set[str]]:
    """The lines of the file, by test."""
    found: dict[str, set[str]] = {}
    lines: set[str] = set()
    for line in text.splitlines():
        if line.startswith("    "):
            lines.add(line[4:])
        elif line and not line.startswith("#"):
            found[line] = lines = set()
    return found


def written(key: str, lines: Iterable[str]) -> str:
    """A section of the file."""
    ordered = sorted(
        lines, key=lambda line: (int(n[1]) if (n := re.match(r"(\d+)\. ", line)) else 0, line)
    )
    return f"\n{key}\n" + "".join(f"    {line}\n" for line in ordered)


def exists(path: Path, key: str) -> bool:
    """Whether there is a test of this name."""
    file, _, function = key.partition("::")
    test = path.parent / file
    return test.is_file() and f"def {function}(" in test.read_text(encoding="utf-8")


def fit(known: str, line: str) -> bool:
    """Whether a line of the file stands for what was seen: the longest one that does is meant."""
    parts = map(re.escape, known.split(ANY))
    return known == line or (ANY in known and bool(re.fullmatch(".*".join(parts), line)))


def where(item: pytest.Item, place: Place) -> str:
    """The number of this call of `raises` in the function of its test, if there are several."""
    file, line, function = place
    test = inspect.unwrap(item.function)  # type: ignore[attr-defined]
    lines, first = inspect.getsourcelines(test)
    if file != test.__code__.co_filename or not first <= line < first + len(lines):
        return f"{function}() "
    calls = [n for n, text in enumerate(lines, first) if CALL.search(text)]
    return f"{sum(n <= line for n in calls)}. " if len(calls) > 1 else ""


class raises(Generic[E]):
    """``with raises(kind):`` is `pytest.raises`, and the error's text is one that the file has.

    With *code*, the attribute `code` of the error has this value (`RemoteError.code`).
    """

    def __init__(self, kind: type[E] | tuple[type[E], ...], *, code: int | None = None) -> None:
        self._context = pytest.raises(kind)
        self._code = code
        frame = sys._getframe(1)
        self._place = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name

    def __enter__(self) -> pytest.ExceptionInfo[E]:
        return self._context.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        __tracebackhide__ = True
        if not self._context.__exit__(kind, exc, trace):
            return False
        assert exc is not None and current is not None
        current.note(exc, self._place)
        if self._code is not None:
            assert getattr(exc, "code", None) == self._code
        return True


# -- hooks ----------------------------------------------------------------------------------------


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--renew-wording",
        action="store_true",
        help="write what errors say into tests/wording.txt instead of comparing it",
    )
    parser.addoption(
        "--wording",
        metavar="FILE",
        type=Path,
        default=WORDING,
        help=argparse.SUPPRESS,
    )


def pytest_configure(config: pytest.Config) -> None:
    global current
    if base := config.getoption("basetemp"):
        VARYING.insert(0, (re.compile(rf"{re.escape(os.path.realpath(base))}/[\w.-]+"), "<tmp>"))
    current = Book(config.getoption("--wording").resolve(), config.getoption("--renew-wording"))


def pytest_itemcollected(item: pytest.Item) -> None:
    assert current is not None
    if current.renewing:
        key = current.key_of(item)
        current.cases[key] += 1
        sampled = "any_revision" in getattr(item, "fixturenames", ())
        if (sampled and not item.config.getoption("--full")) or any(
            "[" in arg for arg in item.config.args
        ):
            current.partial.add(key)


def pytest_deselected(items: Iterable[pytest.Item]) -> None:
    assert current is not None
    if current.renewing:
        current.partial.update(map(current.key_of, items))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    assert current is not None
    current.item = item


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    assert current is not None
    if current.renewing and report.when == "call" and report.passed:
        current.passed[current.key_of(item)] += 1
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A process of pytest-xdist has ended."""
    assert current is not None
    if told := getattr(node, "workeroutput", {}).get("wording"):
        current.add(told)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    assert current is not None
    if not current.renewing:
        return
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["wording"] = current.told()
    else:
        current.write()
