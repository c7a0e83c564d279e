"""The grammar: help, wrong lines, JSON arguments; what is loaded when."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.cli import (
    CALCULATOR,
    CONTROLS,
    environment,
    error_of,
    on_terminal,
    one_line,
    wirespeed,
    wirespeed_each,
)
from lab.rows import every
from lab.wording import raises

from wirespeed import __version__
from wirespeed.cli import targets
from wirespeed.cli.failures import Exit, Failure
from wirespeed.cli.features.arguments import read_arguments
from wirespeed.cli.grammar import LOG_LEVELS
from wirespeed.protocol import revisions


def test_help_names_every_command_and_exit_code() -> None:
    done = wirespeed("--help")
    assert done.returncode == 0
    for word in ("serve", "list", "call", "info", "demo", "_WIRESPEED_COMPLETE=bash_source"):
        assert word in done.stdout
    codes = {int(line.split()[0]) for line in done.stdout.splitlines() if _starts_with_code(line)}
    # 141 is that of 128 + N for SIGPIPE
    assert codes == {int(code) for code in Exit} - {Exit.BROKEN_PIPE}


def _starts_with_code(line: str) -> bool:
    words = line.split()
    return bool(words) and words[0].isdigit()


@every("command", ["", "serve", "list", "call", "info", "demo"])
def test_help_fits_80_columns(command: str) -> None:
    done = wirespeed(*command.split(), "--help")
    assert done.returncode == 0
    assert not CONTROLS.search(done.stdout)
    assert [line for line in done.stdout.splitlines() if len(line) > 80] == []


def test_no_command_shows_help_and_is_a_usage_error() -> None:
    done = wirespeed()
    assert done.returncode == 2
    assert done.stdout.startswith("Usage: wirespeed ")


def test_version() -> None:
    done = wirespeed("--version")
    assert (done.returncode, done.stdout) == (0, f"wirespeed {__version__}\n")


def _modules(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        env=environment(),
        check=True,
    )
    return set(done.stdout.split())


def test_importing_wirespeed_loads_neither_click_nor_rich() -> None:
    loaded = _modules("import wirespeed\nwirespeed.Client, wirespeed.Server, wirespeed.core")
    assert "wirespeed.client.client" in loaded
    assert loaded.isdisjoint({"click", "rich", "wirespeed.cli"})


def test_help_loads_neither_rich_nor_the_library() -> None:
    loaded = _modules("from wirespeed.cli.app import run\nassert run(['list', '--help']) == 0")
    assert "click" in loaded
    assert loaded.isdisjoint({"rich", "asyncio", "msgspec", "wirespeed.client"})


def test_log_levels_are_the_protocols() -> None:
    assert LOG_LEVELS == revisions.LOG_LEVELS


def test_shell_completion_offers_the_commands() -> None:
    done = wirespeed(_WIRESPEED_COMPLETE="bash_complete", COMP_WORDS="wirespeed l", COMP_CWORD="1")
    assert done.returncode == 0
    assert "list" in done.stdout


WRONG = [
    (["lst"], "there is no command 'lst': did you mean list?; see wirespeed --help"),
    (
        ["frobnicate"],
        "there is no command 'frobnicate': there are serve, dev, proxy, top, list, inspect, call, "
        "read",
    ),
    (["list"], "TARGET is missing; see wirespeed list --help"),
    (["list", ""], "TARGET is empty; it is a URL, a FILE.py, an mcpServers FILE.json"),
    (["list", "python", "x.py"], "to start a program: wirespeed list -- python x.py"),
    (["list", "x.py", "--", "python", "x.py"], "a TARGET or a command after --, not both"),
    (["list", "--"], "there is no command after --"),
    (["info", "--"], "there is no command after --"),
    (["list", "--", ""], "the command after -- is empty"),
    (["list", "--bogus", "x.py"], "--bogus"),
    (["list", "--era", "ancient", "x.py"], "'ancient' is not one of"),
    (["list", "--timeout", "-1", "x.py"], "expected seconds, or 0 for no limit"),
    (["list", "--timeout", "nan", "x.py"], "expected seconds, or 0 for no limit"),
    (["call"], "a command as TARGET ends with a second --"),
    (["call", "--"], "a command as TARGET ends with a second --"),
    (["call", "x.py"], "TOOL is missing; wirespeed list TARGET shows the tools"),
    (["call", "--", "python", "x.py", "--"], "TOOL is missing"),
    (["call", "--", "--", "add"], "there is no command after --"),
    (["call", "x.py", "add", "{a:", "1}"], "quote JSON as one word"),
    (["call", "x.py", "add", "{a: 1}"], "JSON is not valid (line 1 column 2"),
    (["call", "x.py", "add", "[1]"], "JSON must be an object, not an array"),
    (["call", "x.py", "add", "@/no/such"], "cannot read /no/such: No such file or directory"),
    (["serve"], "Missing argument 'FILE.py[:NAME]'"),
    (["demo", "--calls", "0"], "0 is not in the range"),
    (["demo", "--in-flight", "many"], "'many' is not a valid integer"),
]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The outputs of the wrong lines."""
    return wirespeed_each([args for args, _ in WRONG], tmp_path_factory.mktemp("wrong"))


@every(("args", "text"), WRONG, ids=[" ".join(args) for args, _ in WRONG])
def test_a_wrong_line_gets_one_line_and_exit_code_2(args: list[str], text: str, wrong: Any) -> None:
    done = wrong[tuple(args)]
    assert done.returncode == 2
    assert text in one_line(done)


@pytest.mark.parametrize(
    "args",
    [
        ["list", "--json"],
        ["list", "--json", "--bogus"],
        ["call", "--", "x", "--", "--json", "--bogus"],
        ["demo", "--json", "--calls", "x"],
    ],
)
def test_a_wrong_line_with_json_gets_an_object(args: list[str]) -> None:
    done = wirespeed(*args)
    error = error_of(done)
    assert (error["type"], done.returncode, done.stderr) == ("UsageError", 2, "")


def test_json_of_the_servers_command_is_not_ours() -> None:
    done = wirespeed("call", "--bogus", "--", "server", "--json", "--", "add")
    assert done.returncode == 2
    assert "--bogus" in one_line(done)


def test_debug_shows_the_traceback_before_the_line() -> None:
    done = wirespeed("list", "--debug", "no.json")
    assert done.returncode == 3
    assert done.stderr.startswith("Traceback ")
    assert done.stderr.splitlines()[-1].startswith("wirespeed: there is no file no.json")


def test_an_unknown_loop_is_a_usage_error() -> None:
    done = wirespeed("list", "--", *CALCULATOR, WIRESPEED_LOOP="turbo")
    assert done.returncode == 2
    assert "WIRESPEED_LOOP" in one_line(done)


# -- JSON -----------------------------------------------------------------------------------------


def test_arguments_keep_their_numbers_and_become_one_line(tmp_path: Path) -> None:
    text = '{ "a" : 12345678901234567890123,\n "b": 1.0e+2, "c": "x\\n\\u00e9 \u00e9"\t}'
    exact = b'{"a":12345678901234567890123,"b":1.0e+2,"c":"x\\n\\u00e9 \xc3\xa9"}'
    assert read_arguments(text) == exact
    (tmp_path / "args.json").write_text("\ufeff" + text, "utf-8")
    assert read_arguments(f"@{tmp_path}/args.json") == exact
    assert read_arguments(None) == b"{}"


@every(
    ("text", "problem"),
    [
        ("", "JSON is not valid"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": 1} x', "Extra data"),
        ("7", "not a number"),
        ("true", "not true or false"),
        ("null", "not null"),
        ('"x"', "not a string"),
        ("[" * 100_000, "JSON is not valid"),
        ('{"a": "\udcff"}', "JSON is not UTF-8"),
        (r'{"a": "\ud800"}', "half a surrogate pair"),
        (r'{"\uDC00": 1}', "half a surrogate pair"),
        ("@", "cannot read"),
    ],
)
def test_arguments_that_are_no_object(text: str, problem: str) -> None:
    with pytest.raises(Failure, match=problem) as caught:
        read_arguments(text)
    assert caught.value.code == Exit.USAGE


def test_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_bytes(b'{"a": "\xff"}')
    with raises(Failure):
        read_arguments(f"@{tmp_path}/bad.json")


def test_arguments_on_stdin() -> None:
    done = wirespeed("call", "--", *CALCULATOR, "--", "add", "-", stdin='{"a": 2, "b": 3}')
    assert (done.returncode, done.stdout) == (0, "5\n")
    done = wirespeed("call", "--", *CALCULATOR, "--", "add", "-", stdin=b"{")
    assert done.returncode == 2
    assert "the JSON on stdin is not valid" in one_line(done)


def test_json_is_utf8_in_any_locale(server_file: Path) -> None:
    arguments = json.dumps({"text": "é"})
    done = wirespeed(
        "call", str(server_file), "echo", arguments, "--json", PYTHONIOENCODING="ascii"
    )
    assert json.loads(done.stdout)["content"] == [{"type": "text", "text": "é"}]
    assert "é" in done.stdout


def test_long_failures_are_broken_at_words_on_a_terminal(tmp_path: Path) -> None:
    path = tmp_path / ("a" * 30 + ".py")
    path.write_text("")
    written, status = on_terminal(["list", f"{path}x"], NO_COLOR="1")
    assert status == 3
    lines = written.rstrip().split("\r\n")
    assert len(lines) > 1
    words = f"wirespeed: there is no file {path}x; TARGET is {targets.KINDS}".split()
    assert " ".join(line.strip() for line in lines).split() == words
    assert all(line.startswith("  ") for line in lines[1:])
