"""The plugin of lab.wording: what is in its file, what is not, and who writes it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from lab.wording import TESTS, WORDING, plain, sections

TWO_TESTS = """
import pytest
from lab.wording import raises


@pytest.mark.parametrize("port", [8001, 8002])
def test_one(port):
    with raises(ValueError):
        raise ValueError(f"127.0.0.1:{port} WORDS\\nof one")


async def test_several():
    for text in ("a", "b"):
        with raises((KeyError, OSError)) as caught:
            raise OSError(text)
        assert str(caught.value) == text
    with raises(RuntimeError):
        fail()


def fail():
    with raises(TypeError):
        raise TypeError("inside")
    raise NotImplementedError("outside")
"""
CONFTEST = """
pytest_plugins = ("lab.wording",)


def pytest_addoption(parser):
    parser.addoption("--full", action="store_true")


def pytest_pyfunc_call(pyfuncitem):
    import asyncio
    import inspect

    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj())
        return True
"""
ONE = "test_them.py::test_one"
SEVERAL = "test_them.py::test_several"
SEEN = {
    ONE: {"ValueError: 127.0.0.1:<port> words␊of one"},
    SEVERAL: {
        "1. OSError: a",
        "1. OSError: b",
        "2. NotImplementedError: outside",
        "fail() TypeError: inside",
    },
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_them.py").write_text(TWO_TESTS.replace("WORDS", "words"))
    return tmp_path


def pytest_at(place: Path, *args: str) -> str:
    """Run pytest, and return the last line that it prints, or the fault of the plugin."""
    clean = {name: v for name, v in os.environ.items() if not name.startswith("PYTEST_")}
    command = ("-m", "pytest", "-q", "-p", "xdist.plugin", "--wording", "wording.txt", *args)
    paths = f"{TESTS}{os.pathsep}{clean.get('PYTHONPATH', '')}"
    run = subprocess.run(
        [sys.executable, *command],
        cwd=place,
        env={**clean, "PYTHONPATH": paths, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    found = re.search(r"AssertionError: (wording.txt has no such text.*)", run.stdout)
    return found[1] if found else re.sub(r" in .*", "", run.stdout.splitlines()[-1])


def texts(place: Path) -> dict[str, set[str]]:
    return sections((place / "wording.txt").read_text(encoding="utf-8"))


@pytest.mark.parametrize("processes", ["0", "2"])
def test_a_file_that_was_written_is_read(place: Path, processes: str) -> None:
    assert pytest_at(place, "-n", processes, "--renew-wording") == "3 passed"
    assert texts(place) == SEEN
    before = (place / "wording.txt").read_text(encoding="utf-8")
    assert pytest_at(place, "-n", processes) == "3 passed"
    assert pytest_at(place, "-n", processes, "--renew-wording") == "3 passed"
    assert (place / "wording.txt").read_text(encoding="utf-8") == before


def test_a_text_that_is_not_in_the_file_fails_its_test(place: Path) -> None:
    assert pytest_at(place, ONE) == f"wording.txt has no such text of {ONE}"
    pytest_at(place, "--renew-wording")
    (place / "test_them.py").write_text(TWO_TESTS.replace("WORDS", "other words"))
    assert pytest_at(place) == f"wording.txt has no such text of {ONE}"
    assert pytest_at(place, SEVERAL) == "1 passed"


def test_only_tests_that_ran_whole_lose_texts(place: Path) -> None:
    pytest_at(place, "--renew-wording")
    (place / "test_them.py").write_text(TWO_TESTS.replace("WORDS", "other words"))
    other = {text.replace("words", "other words") for text in SEEN[ONE]}
    assert pytest_at(place, "--renew-wording", f"{ONE}[8001]") == "1 passed"
    assert texts(place) == SEEN | {ONE: SEEN[ONE] | other}
    assert pytest_at(place, "--renew-wording", ONE) == "2 passed"
    assert texts(place) == SEEN | {ONE: other}


def test_a_test_that_is_gone_loses_its_section(place: Path) -> None:
    pytest_at(place, "--renew-wording")
    (place / "test_them.py").write_text(TWO_TESTS.replace("test_several", "test_many"))
    pytest_at(place, "--renew-wording", ONE)
    assert SEVERAL not in texts(place)


def test_a_part_that_is_left_open(place: Path) -> None:
    """The longest line that fits is the one that is kept."""
    lines = ("ValueError: […] one", "ValueError: 127.0.0.1:<port> […] one", "ValueError: a[…]")
    (place / "wording.txt").write_text("\n    ".join((ONE, *lines)), encoding="utf-8")
    assert pytest_at(place, ONE) == "2 passed"
    assert pytest_at(place, "--renew-wording", ONE) == "2 passed"
    assert texts(place) == {ONE: {lines[1]}}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"{TESTS}/children/a.py ended", "<root>/tests/children/a.py ended"),
        (f"command {sys.executable} -I -S -c", "command <python> -c"),
        (
            "http://localhost:8123/mcp and [::1]:4567",
            "http://localhost:<port>/mcp and [::1]:<port>",
        ),
        ("still running (pid 17)", "still running (pid <pid>)"),
        ("<object at 0x7f12a4>", "<object at <address>>"),
        ("a\tb\n\x7f\x85\ud800 ", "a␉b␊<U+007F><U+0085><U+D800><U+0020>"),
    ],
)
def test_what_differs_from_run_to_run(text: str, line: str) -> None:
    assert plain(text) == line


def test_the_folder_of_a_test(tmp_path: Path) -> None:
    assert plain(f"{tmp_path}/a: {os.strerror(2)}") == "<tmp>/a: <ENOENT>"


def test_each_section_is_of_a_test() -> None:
    for key, lines in sections(WORDING.read_text(encoding="utf-8")).items():
        file, _, function = key.partition("::")
        assert f"def {function}(" in (TESTS / file).read_text(encoding="utf-8"), key
        assert lines, key
