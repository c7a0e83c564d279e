"""``wirespeed login`` and ``wirespeed logout``, as far as no authorization server is needed, and
with tokens that are bound to a key. The rest is in tests/interop/test_login_command.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab import web
from lab.authorization_server import AuthorizationServer, User, age
from lab.cli import environment, error_of, listening, one_line, wirespeed
from lab.serve import serving

from wirespeed import Server
from wirespeed.auth import AccessToken, FileStorage, ResourceServer
from wirespeed.auth.dpop import DpopProofs
from wirespeed.cli.failures import Exit
from wirespeed.errors import InvalidToken

SECRET = "open-Sesame.123"
NOWHERE = "http://127.0.0.1:1/mcp"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logins are kept below a folder of the test."""
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("WIRESPEED_TOKEN", raising=False)
    return tmp_path / "home"


def stored() -> FileStorage:
    """The store of the commands."""
    return FileStorage()


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_a_server_without_protection(server_file: Path, scheme: str) -> None:
    with listening(str(server_file), "--on", f"{scheme}://127.0.0.1:0/mcp") as url:
        done = wirespeed("login", url, "--no-browser")
        assert (done.returncode, one_line(done)) == (0, f"{url} asks for no login")
        done = wirespeed("login", url, "--no-browser", "--json")
        server = url.replace("ws:", "http:")
        assert json.loads(done.stdout) == {"server": server, "login": False}
    assert stored().servers() == []


def test_a_websocket_has_the_login_of_its_http_url(server_file: Path) -> None:
    arguments = (str(server_file), "--on", "ws://127.0.0.1:0/mcp")
    with listening(*arguments, WIRESPEED_TOKEN=SECRET) as url:
        assert wirespeed("list", url).returncode == Exit.UNREACHABLE
        server = url.replace("ws:", "http:")
        login = {"server": server, "issuer": server, "tokens": {"access_token": SECRET}}
        stored().save(server, json.dumps(login))
        done = wirespeed("list", url)
        assert done.returncode == 0, done.stderr
        done = wirespeed("logout", url)
    assert done.stdout == f"logged out of {server}\n"
    assert stored().servers() == []


def test_a_logout_without_a_login() -> None:
    done = wirespeed("logout", NOWHERE)
    assert (done.returncode, one_line(done)) == (0, f"there is no login at {NOWHERE}")
    done = wirespeed("logout", NOWHERE, "--json")
    assert json.loads(done.stdout) == {"server": NOWHERE, "login": False, "revoked": False}


def test_a_server_that_cannot_be_reached() -> None:
    done = wirespeed("login", NOWHERE, "--no-browser", "--json")
    assert done.returncode == Exit.UNREACHABLE
    assert "127.0.0.1:1" in error_of(done)["message"]


def test_a_store_that_others_can_read_is_not_used() -> None:
    storage = stored()
    storage.save(NOWHERE, json.dumps({"server": NOWHERE, "tokens": {"access_token": SECRET}}))
    (file,) = storage.folder.glob("*.json")
    os.chmod(file, 0o644)
    done = wirespeed("list", NOWHERE)
    assert done.returncode == Exit.UNREACHABLE
    assert f"others can read {file}" in one_line(done)
    assert SECRET not in done.stderr


def test_a_token_goes_before_a_login(server_file: Path) -> None:
    """The stored login has a token that the server refuses, the variable has the right one."""
    arguments = (str(server_file), "--on", "http://127.0.0.1:0/mcp")
    with listening(*arguments, WIRESPEED_TOKEN=SECRET) as url:
        stored().save(
            url, json.dumps({"server": url, "issuer": url, "tokens": {"access_token": "other"}})
        )
        assert wirespeed("list", url, WIRESPEED_TOKEN=SECRET).returncode == 0
        done = wirespeed("list", url)
        assert done.returncode == Exit.UNREACHABLE
        assert "other" not in done.stderr


# -- tokens that are bound to a key ---------------------------------------------------------------


class Bound:
    """Our server, which takes bound tokens, and the authorization server that it trusts."""

    def __init__(self, authority: AuthorizationServer, url: str) -> None:
        self.authority = authority
        self.url = url

    def verify(self, text: str) -> AccessToken:
        token = self.authority.tokens.get(text)
        if token is None or token.resource != self.url:
            raise InvalidToken("unknown")
        return AccessToken(subject="anne", scopes=frozenset(token.scopes), key_thumbprint=token.key)

    async def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        """``wirespeed ARGS``, while the servers run in this loop."""
        return await asyncio.to_thread(wirespeed, *args)

    async def log_in(self, *args: str) -> tuple[int | None, str]:
        """``wirespeed login ARGS``, with a user at the page. Returns the status and all text."""
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-W", "error", "-m", "wirespeed", "login", *args, "--no-browser"),
            env=environment(),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert child.stdout is not None
        async with asyncio.timeout(30):
            while not (line := (await child.stdout.readline()).decode().strip()).startswith("http"):
                assert line or not child.stdout.at_eof(), "no address of a page"
            await User().browse(line)
            text = (await child.stdout.read()).decode()
            return await child.wait(), text


@contextlib.asynccontextmanager
async def bound(dpop: Any = "required") -> AsyncIterator[Bound]:
    async with web.listening(AuthorizationServer()) as authority:
        authority.proofs = DpopProofs()
        authority.changes["revocation_endpoint"] = f"{authority.issuer}/revoke"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{probe.getsockname()[1]}/mcp"
        found = Bound(authority, url)
        auth = ResourceServer(
            url, [authority.issuer], verifier=found.verify, scopes=["read"], dpop=dpop
        )
        server = Server("notes", auth=auth)

        @server.tool(scopes=["write"])
        async def write() -> str:
            return "written"

        async with serving(server, url):
            yield found


async def test_other_commands_use_a_login_that_is_bound_to_a_key() -> None:
    async with bound() as found:
        status, text = await found.log_in(found.url, "--dpop")
        assert status == 0, text
        assert f"logged in to {found.url}" in text
        assert (await found.run("list", found.url)).returncode == 0
        assert [token.key is None for token in found.authority.tokens.values()] == [False]
        # a renewal proves the same key
        age(stored(), found.url)
        assert (await found.run("list", found.url)).returncode == 0
        first, second = found.authority.tokens.values()
        assert first.key == second.key
        done = await found.run("call", found.url, "write")
        assert done.returncode == Exit.UNREACHABLE
        more = f"wirespeed login {found.url} --scope write --dpop"
        assert one_line(done).endswith(more)
        status, text = await found.log_in(*more.split()[2:])
        assert status == 0, text
        assert (await found.run("call", found.url, "write")).stdout == "written\n"
        done = await found.run("logout", found.url)
        assert (done.stdout, done.stderr) == (f"logged out of {found.url}\n", "")
        assert len(found.authority.asked("revoke")) == 2
        assert stored().servers() == []


@pytest.mark.parametrize("says", [True, False])
async def test_a_bound_login_of_a_configuration(tmp_path: Path, says: bool) -> None:
    """A file that demands bound tokens, and one that says nothing, with the option."""
    auth = {"type": "oauth"} | ({"dpop": True} if says else {})
    file = tmp_path / "mcp.json"
    async with bound() as found:
        file.write_text(json.dumps({"mcpServers": {"notes": {"url": found.url, "auth": auth}}}))
        status, text = await found.log_in(str(file), *([] if says else ["--dpop"]))
        assert status == 0, text
        for target in (str(file), found.url):
            done = await found.run("list", target)
            assert done.returncode == 0, done.stderr
        done = await found.run("logout", str(file))
        assert done.stdout == f"logged out of {found.url}\n"
        assert len(found.authority.asked("revoke")) == 2


async def test_a_configuration_that_demands_bound_tokens_uses_no_other(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    async with bound("accepted") as found:
        found.authority.proofs = None
        auth = {"type": "oauth", "dpop": True}
        file.write_text(json.dumps({"mcpServers": {"notes": {"url": found.url, "auth": auth}}}))
        status, text = await found.log_in(found.url)
        assert status == 0, text
        done = await found.run("list", str(file))
        assert done.returncode == Exit.UNREACHABLE
        assert one_line(done).endswith(f"wirespeed login {found.url} --dpop")
        status, text = await found.log_in(found.url, "--dpop")
        assert status == Exit.UNREACHABLE
        assert "sent a bearer token" in text
        assert (await found.run("list", found.url)).returncode == 0  # the former login is kept
        done = await found.run("logout", str(file))
        assert done.stdout == f"logged out of {found.url}\n"


async def test_a_stored_login_that_cannot_be_read_is_replaced() -> None:
    async with bound() as found:
        stored().save(found.url, "nonsense")
        assert (await found.run("list", found.url)).returncode == Exit.UNREACHABLE
        status, text = await found.log_in(found.url, "--dpop")
        assert status == 0, text
        assert (await found.run("list", found.url)).returncode == 0


LITE = """
from wirespeed.litemcp import LiteServer

server = LiteServer()

@server.tool
async def add(a: int, b: int) -> int:
    return a + b
"""


def test_litemcp_has_no_logins(tmp_path: Path) -> None:
    file = tmp_path / "lite.py"
    file.write_text(LITE)
    with listening(str(file), "--lite", "--on", "http://127.0.0.1:0/add") as url:
        stored().save(
            url, json.dumps({"server": url, "issuer": url, "tokens": {"access_token": SECRET}})
        )
        done = wirespeed("call", "--lite", url, "add", "[1, 2]")
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"a": {"url": NOWHERE, "auth": "oauth"}}}))
    done = wirespeed("list", "--lite", str(config))
    assert done.returncode == Exit.USAGE
    assert one_line(done).startswith("--lite: LiteMCP has no logins")


CONFIG = {
    "mcpServers": {
        "job": {
            "url": NOWHERE,
            "auth": {"type": "client_credentials", "clientId": "job", "clientSecret": SECRET},
        },
        "fixed": {"url": NOWHERE, "auth": SECRET},
        "child": {"command": "x"},
        "socket": {"url": "unix:/tmp/x"},
    }
}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["login"], "Missing argument"),
        (["login", "unix:/tmp/x"], "unix:/tmp/x takes no login: a login is for URLs of HTTP"),
        (["logout", "tcp://127.0.0.1:1"], "tcp://127.0.0.1:1 takes no login"),
        (["login", "mcp.json#child"], "mcp.json#child takes no login"),
        (["login", "mcp.json#socket"], "mcp.json#socket takes no login"),
        (["login", "mcp.json#fixed"], "mcp.json#fixed takes no login"),
        (["logout", "mcp.json#job"], "mcp.json#job takes no login"),
        (["login", "https://h:0/mcp"], "port"),
        (["login", NOWHERE, "--redirect-uri", "https://h/"], "redirect_uri must lead to this"),
        (["login", NOWHERE, "--client-secret-file", "secret"], "needs --client-id"),
        (
            ["login", NOWHERE, "--client-id", "a", "--client-secret-file", "none"],
            "cannot read the --client-secret-file none: No such file",
        ),
        (
            ["login", NOWHERE, "--client-id", "a", "--client-secret-file", "two"],
            "the --client-secret-file two has 2 lines; the secret is one",
        ),
    ],
)
def test_wrong_lines(arguments: list[str], text: str, tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps(CONFIG))
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "two").write_text(f"{SECRET}\n{SECRET}\n")
    done = wirespeed(*arguments, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert text in done.stderr.splitlines()[-1]
    assert SECRET not in done.stdout + done.stderr
