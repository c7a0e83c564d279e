"""``list``, ``call`` and ``info`` against real servers: output, exit codes, signals."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from lab.cli import (
    CALCULATOR,
    CONTROLS,
    DEADLINE,
    environment,
    error_of,
    on_terminal,
    one_line,
    start,
    wirespeed,
)

from wirespeed import __version__
from wirespeed.cli import show
from wirespeed.cli.failures import printable
from wirespeed.types import Audio, EmbeddedResource, ResourceContents, ResourceLink, UnknownContent

# -- list -----------------------------------------------------------------------------------------


def test_list_is_a_table_without_control_codes() -> None:
    done = wirespeed("list", "--", *CALCULATOR)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["tool", "parameters", "description"]
    assert "add          a: number                  Add two numbers." in lines
    assert "pause?: number = 0.25" in done.stdout
    assert not CONTROLS.search(done.stdout)
    assert all(len(line) <= 80 and line == line.rstrip() for line in lines)


def test_list_json_is_the_whole_list(server_file: Path) -> None:
    done = wirespeed("list", str(server_file), "--json")
    tools = {tool["name"]: tool for tool in json.loads(done.stdout)["tools"]}
    assert list(tools)[:2] == ["echo", "arguments"]
    assert tools["echo"] == {
        "name": "echo",
        "description": "Give it back.",
        "inputSchema": {
            "type": "object",
            "properties": {"text": {"type": "string", "default": "nothing"}},
            "additionalProperties": False,
        },
    }
    assert tools["arguments"]["outputSchema"]["type"] == "object"


def test_list_of_no_tools(tmp_path: Path) -> None:
    path = tmp_path / "bare.py"
    path.write_text("from wirespeed import Server\nserver = Server('bare')\n")
    done = wirespeed("list", str(path))
    assert (done.returncode, one_line(done)) == (0, "the server has no tools")
    assert json.loads(wirespeed("list", "--json", str(path)).stdout) == {"tools": []}


def test_parameters_of_any_schema() -> None:
    schema: dict[str, Any] = {
        "properties": {
            "a": {"type": "array", "items": {"$ref": "#/$defs/Point"}},
            "b": {"anyOf": [{"type": "integer"}, {"type": "number"}, {"type": "null"}]},
            "c": {"enum": ["x", "y"], "default": "x"},
            "d": {"type": ["string", "null"], "default": None},
            "e": {"$ref": "#/definitions/Colour"},
            "f": {"const": 3},
            "g": True,
            "h": {"$ref": "elsewhere.json#/Thing"},
            "i": {"type": "array", "items": {"$ref": "#/$defs/Loop"}},
            "j": {"properties": {}},
            "k": {"default": "z" * 100},
            "l": {"type": 7},
        },
        "required": ["a"],
        "$defs": {
            "Point": {"type": "object"},
            "Loop": {"type": "array", "items": {"$ref": "#/$defs/Loop"}},
        },
        "definitions": {"Colour": {"enum": ["red", "blue"]}},
    }
    lines = show.parameters(schema)
    assert lines[:8] == [
        "a: array of Point",
        "b?: number | null",
        'c?: "x" | "y" = "x"',
        "d?: string | null",
        'e?: "red" | "blue"',
        "f?: 3",
        "g?: any",
        "h?: Thing",
    ]
    assert lines[8].startswith("i?: array of array of")
    assert lines[9] == "j?: object"
    assert lines[10].endswith("…")
    assert len(lines[10]) < 80
    assert lines[11] == "l?: any"
    for odd in ({}, {"properties": 7}, {"properties": {"a": None}, "required": 3}):
        show.parameters(odd)


# -- call -----------------------------------------------------------------------------------------


def test_call_prints_the_text() -> None:
    done = wirespeed("call", "--", *CALCULATOR, "--", "add", '{"a": 1, "b": 2}')
    assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_call_json_is_the_whole_result() -> None:
    done = wirespeed("call", "--json", "--", *CALCULATOR, "--", "add", '{"a": 1e400, "b": 2}')
    assert done.returncode == 1
    assert json.loads(done.stdout)["isError"] is True
    huge = 10**30
    done = wirespeed("call", "--", *CALCULATOR, "--", "add", f'{{"a": {huge}, "b": 2}}', "--json")
    result = json.loads(done.stdout)
    assert result["structuredContent"] == {"result": huge + 2}
    assert result["content"] == [{"type": "text", "text": str(huge + 2)}]
    assert result["isError"] is False


def test_a_tool_that_fails_is_exit_code_1() -> None:
    words = ["--", *CALCULATOR, "--", "divide", '{"a": 1, "b": 0}']
    done = wirespeed("call", "--quiet-server", *words)
    assert done.returncode == 1
    assert one_line(done) == "tool divide failed: cannot divide by zero: b must not be 0"
    done = wirespeed("call", *words)
    # the server logs the traceback, which is passed through
    assert "Traceback" in done.stderr
    assert done.stderr.splitlines()[-1].startswith("wirespeed: tool divide failed")


ODD = [
    ["--json"],
    ["--help"],
    ["-h", "--version", "--bogus"],
    ["--", "--", "x"],
    ["", " two words ", "é", '{"a": 1}', "-", "@file"],
    ["--timeout=0.0001", "--quiet-server"],
]


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_the_commands_own_arguments_are_left_alone(server_file: Path, odd: list[str]) -> None:
    command = [sys.executable, str(server_file), *odd]
    done = wirespeed("call", "--", *command, "--", "arguments", "--json")
    assert json.loads(done.stdout)["structuredContent"] == {"result": odd}
    done = wirespeed("info", "--json", "--", *command)
    assert json.loads(done.stdout)["server"]["name"] == "lab"


def test_one_dash_pair_only_ends_the_options(server_file: Path) -> None:
    done = wirespeed("call", "--json", str(server_file), "--", "-no-such-tool")
    assert done.returncode == 4
    assert "-no-such-tool" in error_of(done)["message"]


@pytest.mark.own_environment
def test_the_environment_goes_to_commands_not_to_configurations(
    server_file: Path, tmp_path: Path
) -> None:
    name = '{"name": "LAB_VARIABLE"}'
    done = wirespeed("call", str(server_file), "environment", name, LAB_VARIABLE="here")
    assert done.stdout == "here\n"
    config = tmp_path / "mcp.json"
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    lab = {"command": sys.executable, "args": [str(server_file)], "env": path}
    config.write_text(json.dumps({"mcpServers": {"lab": lab}}))
    done = wirespeed("call", f"{config}#lab", "environment", name, LAB_VARIABLE="here")
    assert (done.returncode, done.stdout) == (0, "unset\n")


@pytest.mark.parametrize(("era", "revision"), [("legacy", "2025-11-25"), ("modern", "2026-07-28")])
def test_the_era_is_an_option(era: str, revision: str) -> None:
    done = wirespeed("info", "--era", era, "--json", "--", *CALCULATOR)
    facts = json.loads(done.stdout)
    assert (facts["era"], facts["revision"]) == (era, revision)


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_the_log_level_asks_for_logs(server_file: Path, era: str) -> None:
    args = ["call", str(server_file), "talk", "--era", era]
    done = wirespeed(*args, "--log-level", "info")
    assert (done.returncode, done.stdout) == (0, "talked\n")
    assert '[warning] store: {"disk":"full \\u001b[2J"}' in done.stderr
    assert "too much" not in done.stderr
    assert "printed" in done.stderr
    done = wirespeed(*args, "--log-level", "debug", "--quiet-server")
    assert "[debug] too much" in done.stderr
    assert "printed" not in done.stderr


def test_what_is_no_text_is_described(server_file: Path) -> None:
    done = wirespeed("call", str(server_file), "picture")
    assert done.stdout == "[image: image/png, 5 bytes]\nseen\n"
    done = wirespeed("call", str(server_file), "picture", "--json")
    image = {"type": "image", "data": "MTIzNDU=", "mimeType": "image/png"}
    assert json.loads(done.stdout)["content"][0] == image


def test_every_kind_of_block_has_words() -> None:
    text = ResourceContents(uri="file:///a", mime_type="text/x", text="inside")
    blob = ResourceContents(uri="file:///b", blob=b"1")
    words = [
        show.block_text(block)
        for block in (
            Audio(data=b"12", mime_type="audio/wav"),
            EmbeddedResource(resource=text),
            EmbeddedResource(resource=blob),
            ResourceLink(uri="file:///c", name="c", mime_type="text/plain"),
            UnknownContent({"type": "smell"}),
        )
    ]
    assert words == [
        "[audio: audio/wav, 2 bytes]",
        "[resource: file:///a, text/x]\ninside",
        "[resource: file:///b, 1 byte]",
        "[link: c, text/plain] file:///c",
        "[smell: unknown kind of content; see --json]",
    ]


def test_text_reaches_a_pipe_as_it_is_and_a_terminal_without_controls(server_file: Path) -> None:
    arguments = json.dumps({"text": "a\tb\n\x1b[31mred\u202e"})
    args = ["call", str(server_file), "echo", arguments]
    assert wirespeed(*args).stdout == "a\tb\n\x1b[31mred\u202e\n"
    written, status = on_terminal(args)
    assert status == 0
    assert written.replace("\r\n", "\n") == "a\tb\n\\x1b[31mred\\u202e\n"
    assert printable("\x9b\x7f\u2066\r") == "\\x9b\\x7f\\u2066\\r"
    assert printable("\U0001f600 \u0301\xad") == "\U0001f600 \u0301\xad"


def test_progress_is_a_bar_on_a_terminal_only() -> None:
    command = ["call", "--", *CALCULATOR, "--", "slow_sum"]
    written, status = on_terminal([*command, '{"numbers": [1, 2, 4], "pause": 0.6}'])
    assert status == 0
    assert "slow_sum" in written
    assert "67%" in written
    assert "so far 3" in written
    assert written.rstrip().endswith("7.0")
    done = wirespeed(*command, '{"numbers": [1, 2, 4], "pause": 0}')
    assert (done.stdout, done.stderr) == ("7.0\n", "")


# -- failures -------------------------------------------------------------------------------------


def test_a_command_that_is_not_there() -> None:
    done = wirespeed("list", "--", "no-such-program")
    assert done.returncode == 3
    assert "'no-such-program' was not found on the server's PATH" in one_line(done)
    error = error_of(wirespeed("list", "--json", "--", "no-such-program"))
    assert (error["type"], error["exit_code"]) == ("LaunchError", 3)


def test_a_server_that_exits_at_once() -> None:
    command = ["--", "sh", "-c", "echo 'no \033[31mdata'base >&2; exit 7"]
    done = wirespeed("list", *command, "--json")
    assert done.returncode == 3
    done = wirespeed("list", "--quiet-server", *command)
    assert done.returncode == 3
    first, last = done.stderr.splitlines()
    # it was gone before or after we wrote
    assert re.match("wirespeed: the (server closed|link to the server broke).*: command sh ", first)
    assert first.endswith("the server exited with status 7; its stderr ends:")
    assert last == "    no database"
    error = error_of(wirespeed("list", "--json", "--quiet-server", *command))
    assert error["type"] == "ChildExited"
    assert error["stderr"] == ["no database"]
    # passed through, it is not repeated
    done = wirespeed("list", "--era", "legacy", *command)
    assert done.stderr.count("database") == 1
    assert done.stderr.splitlines()[-1].endswith("the server exited with status 7")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_call_runs_a_tool_as_a_task_where_it_must(era: str, tmp_path: Path) -> None:
    file = tmp_path / "tasks.py"
    file.write_text(
        """from wirespeed import Server
server = Server("crawler")

@server.tool(task="required")
async def crawl() -> str:
    return "crawled"
"""
    )
    done = wirespeed("call", "--era", era, str(file), "crawl")
    assert (done.returncode, done.stdout, done.stderr) == (0, "crawled\n", "")


def test_a_server_that_dies_in_a_call(server_file: Path) -> None:
    done = wirespeed("call", str(server_file), "die", "--json", "--quiet-server")
    error = error_of(done)
    assert (done.returncode, error["type"], error["stderr"]) == (3, "ChildExited", ["about to die"])


def test_a_server_that_prints_what_is_no_message() -> None:
    script = "echo Welcome!; while read line; do :; done"
    done = wirespeed("list", "--timeout", "0.2", "--", "sh", "-c", script)
    assert done.returncode == 5
    first, last = done.stderr.splitlines()
    assert first.startswith("wirespeed: skipped a line that is not a JSON-RPC message")
    assert "Welcome!" in last


def test_a_server_that_closes_its_output_and_stays() -> None:
    script = "exec >&-; while read line; do :; done"
    done = wirespeed("list", "--timeout", "30", "--", "sh", "-c", script)
    assert done.returncode == 3
    line = one_line(done)
    assert line.startswith("the server closed its output: command sh -c ")
    assert "the server is still running" in line


def test_an_error_of_the_server_is_exit_code_4(server_file: Path) -> None:
    done = wirespeed("call", str(server_file), "no\x1b[31mtool")
    assert done.returncode == 4
    assert one_line(done) == (
        "the server answered with error -32602: Unknown tool: no\\x1b[31mtool"
    )
    error = error_of(wirespeed("call", str(server_file), "nothing", "--json"))
    assert (error["type"], error["code"]) == ("RemoteError", -32602)


def test_no_revision_in_common(tmp_path: Path) -> None:
    path = tmp_path / "old.py"
    path.write_text("from wirespeed import Server\ns = Server('old', versions=['2024-11-05'])\n")
    done = wirespeed("list", str(path), "--era", "modern", "--json")
    assert done.returncode in (3, 4)
    assert error_of(done)["type"] in ("VersionMismatch", "RemoteError")


@pytest.mark.own_environment
def test_a_call_that_times_out_is_exit_code_5(server_file: Path, tmp_path: Path) -> None:
    done = wirespeed("call", str(server_file), "wait", "--timeout", "1")
    assert done.returncode == 5
    assert one_line(done) == "tool wait: no answer within 1 s"
    # the configuration's own limit holds where the line has none
    config = tmp_path / "mcp.json"
    path = {"PYTHONPATH": os.environ["PYTHONPATH"]} if "PYTHONPATH" in os.environ else {}
    lab = {"command": sys.executable, "args": [str(server_file)], "env": path, "timeout": 1}
    config.write_text(json.dumps({"mcpServers": {"lab": lab}}))
    assert error_of(wirespeed("call", str(config), "wait", "--json"))["type"] == "CallTimeout"


@pytest.mark.parametrize(
    ("number", "code", "word"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_signal_ends_the_server_first(
    server_file: Path, tmp_path: Path, number: int, code: int, word: str
) -> None:
    mark = tmp_path / "mark"
    arguments = json.dumps({"mark": str(mark)})
    # a signal that our own starter ignores (nohup) would be ignored by the command too
    before = signal.signal(number, signal.SIG_DFL)
    try:
        process = start("call", str(server_file), "wait", arguments, "--timeout", "0")
    finally:
        signal.signal(number, before)
    try:
        deadline = time.monotonic() + DEADLINE
        while not mark.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
        server = int(mark.read_text())
        process.send_signal(number)
        out, err = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
        process.communicate()
    assert (process.returncode, out) == (code, b"")
    assert err.decode() == f"wirespeed: {word}\n"
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)


def test_a_reader_that_leaves_is_no_error(server_file: Path) -> None:
    for args in (["call", str(server_file), "echo"], ["demo", "--calls", "50"], ["info"]):
        process = start(*args)
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, err = process.communicate(timeout=DEADLINE)
        assert (process.returncode, err) == (141, b"")


def test_a_file_that_takes_no_more(server_file: Path, tmp_path: Path) -> None:
    for args in (["info"], ["info", "--json"], ["call", str(server_file), "echo"]):
        command = [sys.executable, "-m", "wirespeed", *args]
        limited = ["sh", "-c", 'ulimit -f 0; out=$1; shift; exec "$@" >"$out"', "sh"]
        done = subprocess.run(
            [*limited, str(tmp_path / "out"), *command],
            capture_output=True,
            text=True,
            env=environment(),
            check=False,
        )
        assert done.returncode == 74
        assert done.stderr == "wirespeed: cannot write the output: File too large\n"


def test_closed_standard_streams(server_file: Path) -> None:
    program = f"exec {sys.executable} -m wirespeed list"
    quiet = ["sh", "-c", f"{program} {server_file} <&- >&- 2>&-"]
    assert subprocess.run(quiet, env=environment(), check=False).returncode == 0
    failing = ["sh", "-c", f"{program} no.json >&- 2>&-"]
    assert subprocess.run(failing, env=environment(), check=False).returncode == 3


def test_a_locale_that_lacks_a_character(server_file: Path) -> None:
    arguments = json.dumps({"text": "caf\u00e9"})
    done = wirespeed("call", str(server_file), "echo", arguments, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stdout) == (0, "caf\\xe9\n")


# -- info -----------------------------------------------------------------------------------------


def test_info_of_this_installation() -> None:
    done = wirespeed("info", "--json", WIRESPEED_SIMD="scalar")
    facts = json.loads(done.stdout)
    assert facts["wirespeed"] == __version__
    assert facts["simd"]["level"] == "scalar"
    assert facts["simd"]["cap"] == "scalar"
    assert facts["core"]["cython"].startswith("3.")
    assert facts["limits"]["max_message"] == 64 * 1024 * 1024
    text = wirespeed("info", WIRESPEED_LOOP="asyncio").stdout
    assert not CONTROLS.search(text)
    # a row that is too long for the terminal goes on in the next line
    rows = dict(line.split(None, 1) for line in text.splitlines() if line[0] != " ")
    assert rows["loop"] == "asyncio"
    assert rows["limits"] == "max_message 67,108,864"
    assert facts["websockets"] == metadata.version("websockets")
    assert rows["websockets"] == facts["websockets"]
    assert facts["tls"].startswith("OpenSSL ")
    assert rows["transports"] == "stdio, unix, tcp, ws, wss"


def test_info_of_a_server(server_file: Path) -> None:
    done = wirespeed("info", str(server_file))
    assert (done.returncode, done.stderr) == (0, "")
    rows = dict(line.split(None, 1) for line in done.stdout.splitlines())
    assert rows["revision"] == "2026-07-28"
    assert rows["instructions"] == "Mind the gap."
    assert rows["capabilities"] == "tools (listChanged), logging"
    facts = json.loads(wirespeed("info", str(server_file), "--json").stdout)
    assert facts["server"] == {"name": "lab", "version": "3.1"}
    assert facts["capabilities"]["tools"] == {"listChanged": True}
