"""LiteMCP on the command line: ``--lite`` of list, call and info, and what serve makes of files."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.cli import CONTROLS, error_of, listening, on_terminal, one_line, serving, wirespeed

from wirespeed.cli import lite, show
from wirespeed.cli.failures import Exit, Failure
from wirespeed.litemcp import Content, Parameter, Tool

SECRET = "open-Sesame.123"
CONVERT = [sys.executable, "-m", "wirespeed.demo.convert"]

LITE = '''
import sys
from wirespeed.litemcp import Content, LiteServer

louder = LiteServer()

@louder.tool
async def shout(text: str, times: int = 1, mark: str = "!") -> str:
    """Say it louder.

    Nobody wants to read this paragraph in a table.
    """
    return (text.upper() + mark) * times
'''
MORE = '''
odd = LiteServer("odd")

@odd.tool
async def things(fail: bool = False):
    """Several things."""
    if fail:
        raise ValueError("no \\x1b[2J luck")
    return [Content("image/png", "MTIzNDU="), "a\\x1b[1mb", 2.5]
'''
ROUTES = '\nservices = {"/shout": louder, "/odd": odd}\n'


@pytest.fixture(scope="module")
def lite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lite") / "lite_lab.py"
    path.write_text(LITE)
    return path


@pytest.fixture(scope="module")
def routes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two tools behind one port."""
    path = tmp_path_factory.mktemp("lite") / "lite_routes.py"
    path.write_text(LITE + MORE + ROUTES)
    with serving(str(path), "--on", "ws://127.0.0.1:0") as running:
        shout = running.line(r"^wirespeed: serving shout \(LiteMCP\) on (\S+/shout)$")[1]
        odd = running.line(r"^wirespeed: serving odd \(LiteMCP\) on (\S+/odd); Ctrl-C ends it$")[1]
        yield shout, odd


# -- list -----------------------------------------------------------------------------------------


def test_list_shows_the_positions(lite_file: Path) -> None:
    done = wirespeed("list", "--lite", "--", *CONVERT)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(None, 3) for line in done.stdout.splitlines()]
    assert rows[0] == ["tool", "parameters", "description"]
    assert rows[2][:3] == ["convert", "1", "value:"]
    assert rows[3] == ["2", "unit:", "string", rows[3][3]]
    assert rows[3][3] == "unit: one of mm, m, km, in, ft, mi, such as km"
    assert not CONTROLS.search(done.stdout)
    assert all(len(line) <= 80 and line == line.rstrip() for line in done.stdout.splitlines())
    done = wirespeed("list", "--lite", str(lite_file))
    assert "Say it louder." in done.stdout
    assert "paragraph" not in done.stdout


def test_list_json_is_the_tool(routes: tuple[str, str]) -> None:
    done = wirespeed("list", "--lite", "--json", routes[0])
    (tool,) = json.loads(done.stdout)["tools"]
    assert (tool["name"], tool["version"]) == ("shout", [1, 0, 0])
    assert [parameter["name"] for parameter in tool["parameters"]] == ["text", "times", "mark"]


def test_texts_of_a_peer_are_made_harmless() -> None:
    tool = Tool(
        "a\x1b[2J",
        "b\n\x07",
        parameters=[Parameter("c\nd", "e\x1b", "f\r\ng", "h" * 200), Parameter("i", "j")],
    )
    console = show.console()
    with console.capture() as captured:
        console.print(show.lite_table(tool))
    text = captured.get()
    assert not CONTROLS.search(text)
    assert "1 c d: e\\x1b" in text
    assert "h" * 20 in text
    assert "2 i: j" in text


# -- call -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['["a", 2]', '{"times": 2, "text": "a", "mark": "!"}'])
def test_arguments_in_order_or_by_name(routes: tuple[str, str], text: str) -> None:
    done = wirespeed("call", "--lite", routes[0], "shout", text)
    assert (done.returncode, done.stdout, done.stderr) == (0, "A!A!\n", "")


def test_call_json_is_the_result(routes: tuple[str, str]) -> None:
    done = wirespeed("call", "--lite", "--json", routes[0], "shout", "-", stdin='["a", 2]')
    assert json.loads(done.stdout) == {
        "params": {"text": "a", "times": "2"},
        "response": {"content": [{"type": "text", "data": "AA!!"[::2] * 2}], "error": False},
        "version": [1, 0, 0],
    }


def test_contents(routes: tuple[str, str]) -> None:
    args = ["call", "--lite", routes[1], "odd"]
    done = wirespeed(*args)
    assert (done.returncode, done.stdout) == (0, "[image/png, 5 bytes]\na\x1b[1mb\n2.5\n")
    written, status = on_terminal(args)
    assert status == 0
    assert "a\\x1b[1mb\r\n" in written
    assert show.content_text(Content("audio/wav", "MTI=")) == "[audio/wav, 2 bytes]"
    assert show.content_text(Content("text/html", "<p>")) == "<p>"


def test_a_tool_that_fails_is_exit_code_1(routes: tuple[str, str]) -> None:
    done = wirespeed("call", "--lite", routes[1], "odd", "[true]")
    assert (done.returncode, done.stdout) == (1, "")
    assert one_line(done) == "tool odd failed: no \\x1b[2J luck"
    done = wirespeed("call", "--lite", "--json", routes[1], "odd", "[true]")
    assert (done.returncode, json.loads(done.stdout)["response"]["error"]) == (1, True)


def test_numbers_are_sent_as_they_are_written() -> None:
    text = '[12345678901234567890123, 1.0e+2, "x\\u00e9", null, true, {"a": [1]}]'
    strings = ["12345678901234567890123", "1.0e+2", "xé", "null", "true", '{"a":[1]}']
    assert lite.read_arguments(text) == (strings, {})
    assert lite.read_arguments('{"a": 1e400, "b": ""}') == ([], {"a": "1e400", "b": ""})
    assert lite.read_arguments(None) == ([], {})
    for bad, problem in (
        ("7", "JSON must be an array or an object, not a number; write the arguments in order"),
        ("[1", "JSON is not valid"),
        ("[NaN]", "NaN is not JSON"),
    ):
        with pytest.raises(Failure, match=problem) as caught:
            lite.read_arguments(bad)
        assert caught.value.code == Exit.USAGE


def test_what_does_not_fit_the_tool(routes: tuple[str, str]) -> None:
    args = ["call", "--lite", routes[0], "shout"]
    for text, problem in (
        ('{"txt": 1}', "shout has no parameter 'txt'; it has: text, times, mark"),
        ('["a", 1, "!", 4]', "shout takes 3 arguments, but 4 were given"),
    ):
        done = wirespeed(*args, text)
        assert (done.returncode, one_line(done).partition("; see ")[0]) == (2, problem)
    done = wirespeed("call", "--lite", routes[0], "whisper", "[]")
    assert done.returncode == 4
    assert one_line(done) == "the server has no tool whisper; it has shout"
    error = error_of(wirespeed("call", "--lite", "--json", routes[0], "whisper"))
    assert error["type"] == "UnknownTool"
    done = wirespeed(*args, '["a", "many"]')
    assert done.returncode == 1
    assert "times" in one_line(done)


# -- info, and what may go wrong ------------------------------------------------------------------


def test_info_has_the_prompt(routes: tuple[str, str]) -> None:
    facts = json.loads(wirespeed("info", "--lite", "--json", routes[0]).stdout)
    assert (facts["tool"], facts["protocol"]) == ("shout", "LiteMCP 1.0.0")
    assert facts["prompt"].startswith("Tool: shout\n")
    text = wirespeed("info", "--lite", routes[0]).stdout
    assert "1. text (string)" in text


def test_options_that_are_mcps(routes: tuple[str, str]) -> None:
    for words in (["--era", "modern"], ["--log-level", "info"]):
        done = wirespeed("list", "--lite", routes[0], *words)
        assert (done.returncode, one_line(done).startswith(f"{words[0]} is for MCP: ")) == (2, True)


@pytest.mark.parametrize(
    ("scheme", "said"),
    [
        ("ws", "refused the WebSocket: 403"),
        (
            "http",
            "answered get with 403 Forbidden (the bearer token is not valid)",
        ),
    ],
)
def test_a_token(lite_file: Path, scheme: str, said: str) -> None:
    place = f"{scheme}://127.0.0.1:0/shout"
    with listening(str(lite_file), "--on", place, WIRESPEED_TOKEN=SECRET) as url:
        assert wirespeed("list", "--lite", url, WIRESPEED_TOKEN=SECRET).returncode == 0
        header = f"Authentication: Bearer {SECRET}"
        assert wirespeed("list", "--lite", url, "--header", header).returncode == 0
        done = wirespeed("list", "--lite", url, WIRESPEED_TOKEN=SECRET + "x")
        assert done.returncode == 3
        assert f"{url} {said}" in one_line(done)
        assert SECRET not in done.stderr


def test_over_http(tmp_path: Path) -> None:
    path = tmp_path / "both.py"
    mcp = 'from wirespeed import Server\nmcp = Server("mcp")\n'
    path.write_text(LITE + mcp + 'services = {"/shout": louder, "/mcp": mcp}\n')
    with serving(str(path), "--on", "http://127.0.0.1:0") as running:
        url = running.line(r"serving shout \(LiteMCP\) on (\S+/shout)$")[1]
        done = wirespeed("call", "--lite", url, "shout", '["a", 2]')
        assert (done.returncode, done.stdout, done.stderr) == (0, "A!A!\n", "")
        assert "shout" in wirespeed("list", "--lite", url).stdout
        assert json.loads(wirespeed("info", "--lite", "--json", url).stdout)["tool"] == "shout"
        done = wirespeed("list", "--lite", url.replace("/shout", "/mcp"))
        assert done.returncode == 3
        assert one_line(done).endswith("; for an MCP server leave out --lite")
        done = wirespeed("list", "--lite", url + "er")
        assert one_line(done).endswith("; correct the path of the URL")


def test_mcp_is_not_litemcp(server_file: Path) -> None:
    with listening(str(server_file), "--on", "ws://127.0.0.1:0/") as url:
        done = wirespeed("list", "--lite", url, "--timeout", "0.5")
    assert (done.returncode, done.stdout) == (5, "")
    assert done.stderr.splitlines()[-1].endswith("; for an MCP server leave out --lite")


@pytest.mark.parametrize("url", ["tcp://127.0.0.1:0", "unix"])
def test_stream_sockets(lite_file: Path, tmp_path: Path, url: str) -> None:
    where = f"unix:{tmp_path}/s" if url == "unix" else url
    with listening(str(lite_file), "--lite", "--on", where) as real:
        done = wirespeed("call", "--lite", real, "shout", '["a"]')
        assert (done.returncode, done.stdout) == (0, "A!\n")


# -- serve ----------------------------------------------------------------------------------------


def test_which_of_a_files_servers_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "mixed.py"
    path.write_text(LITE + "from wirespeed import Server\nmcp = Server('both')\n")
    done = wirespeed("list", "--lite", str(path))  # starts serve --lite
    assert "Say it louder." in done.stdout
    done = wirespeed("info", "--json", str(path))
    assert json.loads(done.stdout)["server"]["name"] == "both"
    path.write_text(LITE + MORE)
    done = wirespeed("serve", str(path))
    assert done.returncode == 3
    assert one_line(done) == (
        f"{path} has several servers; name one of them, as in {path}:NAME: louder, odd"
    )
    done = wirespeed("serve", str(path), "--on", "ws://127.0.0.1:0/")
    assert one_line(done).endswith('; or put them on paths, in a dict {"/path": server}')
    assert "Several things." in wirespeed("list", "--lite", f"{path}:odd").stdout
    path.write_text("from wirespeed import Server\nserver = Server('none')\n")
    done = wirespeed("serve", "--lite", str(path))
    assert done.returncode == 3
    assert one_line(done).startswith(f"{path} has no LiteServer at module level; make one: ")
    done = wirespeed("serve", "--lite", f"{path}:server")
    assert one_line(done) == (
        f"{path} has no LiteServer called server; it has no LiteServer at module level"
    )


def test_a_server_without_a_tool(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("from wirespeed.litemcp import LiteServer\nserver = LiteServer()\n")
    for words in ([], ["--on", "ws://127.0.0.1:0/"]):
        done = wirespeed("serve", str(path), *words)
        assert done.returncode == 3
        assert one_line(done) == f"{path}: the LiteServer litemcp has no tool"
