"""``wirespeed dev`` and ``wirespeed inspect --web`` as commands: the URL, the start again on save,
other clients, and what cannot be served."""

from __future__ import annotations

import contextlib
import http.client
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from lab.cli import DEADLINE, forked, one_line, serving
from lab.rows import every

from wirespeed import SyncClient
from wirespeed.errors import ConnectionLost

FILE = """
from wirespeed import Server

server = Server("shop")

@server.tool
async def first() -> str:
    return "one"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.py"
    path.write_text(FILE)
    return path


class Browser:
    """A browser that has opened the URL of the command."""

    def __init__(self, url: str) -> None:
        place = urlsplit(url)
        self._connection = http.client.HTTPConnection(place.netloc, timeout=DEADLINE)
        self._connection.request("GET", f"{place.path}?{place.query}")
        answer = self._connection.getresponse()
        answer.read()
        self._path = answer.headers["Location"]
        self._cookie = answer.headers["Set-Cookie"].partition(";")[0]

    def text(self) -> str:
        """The page as it is now."""
        self._connection.request("GET", self._path, headers={"Cookie": self._cookie})
        return self._connection.getresponse().read().decode()

    def until(self, words: str) -> str:
        """The page when it has these words."""
        until = time.monotonic() + DEADLINE
        while words not in (text := self.text()):
            assert time.monotonic() < until, text
            time.sleep(0.05)
        return text

    def close(self) -> None:
        self._connection.close()


def test_a_saved_file_starts_the_server_again(file: Path) -> None:
    other = ("--on", "tcp://127.0.0.1:0")
    with serving(str(file), *other, command="dev") as running:
        found = {}
        while len(found) < 2:
            line = running.line(r"(http|tcp)://\S+")
            found[line[1]] = line[0]
        browser = Browser(found["http"])
        browser.until(">first</a>")
        with SyncClient(found["tcp"]) as client:
            assert client.call_tool("first").text == "one"
        file.write_text(FILE + "\nnothing\n")
        text = browser.until("The version before it goes on.")
        assert "line 10: NameError" in text
        assert ">first</a>" in text
        with SyncClient(found["tcp"]) as client:
            assert client.call_tool("first").text == "one"
        file.write_text(FILE.replace("first", "second"))
        text = browser.until(">second</a>")
        assert "1 restart" in text
        assert "The version before" not in text
        running.line("started again: what the server kept in memory is gone")
        until = time.monotonic() + DEADLINE
        while True:
            with (  # a connection to the earlier server ends
                contextlib.suppress(ConnectionLost),
                SyncClient(found["tcp"]) as client,
            ):
                if [tool.name for tool in client.list_tools()] == ["second"]:
                    break
            assert time.monotonic() < until
        browser.close()
        assert running.end() == 0


def test_a_file_that_cannot_be_imported_yet(file: Path) -> None:
    file.write_text("nothing\n")
    with serving(str(file), command="dev") as running:
        browser = Browser(running.line(r"http://\S+")[0])
        text = browser.until("The server starts when the file is saved, or at the next use.")
        assert "line 1: NameError" in text
        file.write_text(FILE)
        assert 'class="card alert"' not in browser.until(">first</a>")
        browser.close()
        assert running.end() == 0


def test_the_page_of_any_server(file: Path) -> None:
    with serving("--web", "--", *("wirespeed-no-such-program",), command="inspect") as running:
        running.line("wirespeed-no-such-program")
        assert running.process.wait(60) == 3
        running.end()
    with serving("--web", str(file), command="inspect") as running:
        browser = Browser(running.line(r"http://\S+")[0])
        assert ">first</a>" in browser.text()
        browser.close()
        assert running.end() == 0


@every(
    ("line", "code", "text"),
    [
        (["dev", "no.py"], 3, "there is no file no.py"),
        (["dev", "mcp.json"], 2, "mcp.json is not a Python file; wirespeed inspect --web takes"),
        (["dev", "FILE", "--watch", "no"], 2, "--watch: no does not exist"),
        (["dev", "FILE", "--on", "http://0.0.0.0:1/mcp"], 2, "is for this machine"),
        (["dev", "FILE", "--on", "wss://127.0.0.1:1/mcp"], 2, "is for this machine"),
        (["dev", "FILE", "--on", "nothing"], 2, "--on: "),
        (["inspect", "--web", "FILE", "first"], 2, "one TARGET is enough"),
        (["inspect", "--web", "FILE", "--trace"], 2, "--web has a page, so --trace does nothing"),
        (["inspect", "--web", "FILE", "--lite"], 2, "is for MCP"),
        (["inspect", "--web"], 2, "TARGET is missing"),
        (["inspect", "FILE", "first", "--port", "1"], 2, "--port is for the page of --web"),
    ],
)
def test_what_cannot_be_served(tmp_path: Path, line: list[str], code: int, text: str) -> None:
    path = tmp_path / "shop.py"
    path.write_text(FILE)
    done = forked(*(str(path) if word == "FILE" else word for word in line))
    assert done.returncode == code
    assert text in one_line(done)
