"""``wirespeed login`` at a real authorization server: by plain requests, and in a real browser."""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import browser
import logins
import pytest
from programs import login

SECONDS = 60


class Commands:
    """The command line of one person, whose logins are in a folder."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "wirespeed" / "logins"
        self.env = {**os.environ, "XDG_STATE_HOME": str(home), "HOME": str(home)}
        self.said = ""

    @asynccontextmanager
    async def running(self, *args: str, **env: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """``wirespeed ARGS``."""
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "wirespeed", *args),
            env={**self.env, **env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(SECONDS):
                yield child
        finally:
            if child.returncode is None:
                child.kill()
                await child.wait()

    async def run(self, *args: str, **env: str) -> tuple[int, str]:
        """The status of a command, and its stdout. `said` is its stderr."""
        async with self.running(*args, **env) as child:
            return await self.end(child)

    async def end(self, child: asyncio.subprocess.Process) -> tuple[int, str]:
        """As `run`, of a command that runs."""
        out, said = await child.communicate()
        self.said = said.decode()
        assert child.returncode is not None
        return child.returncode, out.decode()

    async def log_in(self, *args: str, form: dict[str, str] = login.ADA) -> tuple[int, str]:
        """``wirespeed login ARGS --no-browser``, with a person at the page that it prints."""
        async with self.running("login", *args, "--no-browser") as child:
            assert child.stderr is not None
            while not (line := await child.stderr.readline()).strip().startswith(b"http"):
                assert line, "no address of a page"
            await asyncio.to_thread(login.go, line.decode().strip(), form)
            return await self.end(child)

    async def whoami(self, target: str, tool: str = "whoami", **env: str) -> Any:
        """What a server says of the person."""
        status, out = await self.run("call", target, tool, "--json", **env)
        assert status == 0, self.said
        return json.loads(json.loads(out)["content"][0]["text"])


@pytest.fixture
def commands(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


async def test_login_and_logout(commands: Commands) -> None:
    async with logins.issuing() as issuer, logins.protected("ours", issuer) as url:
        status, _ = await commands.run("list", url)
        assert status == 3
        assert "wirespeed login" in commands.said
        status, out = await commands.log_in(url)
        assert (status, out) == (0, f"logged in to {url} at {issuer.url}\nscopes: mcp\n")
        (file,) = commands.folder.glob("*.json")
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(commands.folder.stat().st_mode) == 0o700
        assert await commands.whoami(url) == {"user": "ada", "scopes": ["mcp"]}
        # a tool that needs another scope, which only a person can give
        status, _ = await commands.run("call", url, "write")
        assert status == 3
        more = f"wirespeed login {url} --scope tools:write"
        assert commands.said.strip().endswith(more)
        assert (await commands.log_in(*more.split()[2:]))[0] == 0
        assert (await commands.whoami(url, "write"))["scopes"] == ["mcp", "tools:write"]
        assert len(await issuer.journal("POST /register")) == 1
        text = file.read_text()
        status, out = await commands.run("logout", url)
        assert (status, out, commands.said) == (0, f"logged out of {url}\n", "")
        assert {entry["status"] for entry in await issuer.journal("POST /revoke")} == {200}
        assert not list(commands.folder.glob("*.json"))
        # the tokens are worth nothing, even to a thief of the file
        commands.folder.joinpath(file.name).write_text(text)
        file.chmod(0o600)
        tokens = json.loads(text)["tokens"]
        form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
        client = json.loads(text)["clients"][issuer.url]["client_id"]
        status, _, _ = login.fetched(f"{issuer.url}/token", form | {"client_id": client})
        assert status == 400


async def test_tokens_are_renewed_by_later_commands(commands: Commands) -> None:
    async with logins.issuing("--lifetime", "1") as issuer, logins.protected("ours", issuer) as url:
        assert (await commands.log_in(url, "--json"))[0] == 0
        for _ in range(2):
            await asyncio.sleep(1.1)
            assert (await commands.whoami(url))["user"] == "ada"
        asked = await issuer.journal("POST /token")
        assert {entry["status"] for entry in asked} == {200}
        assert len(await issuer.journal("GET /authorize")) == 1


async def test_a_server_of_a_configuration_file(commands: Commands, tmp_path: Path) -> None:
    options = ("--no-registration", "--client", "desk:a-secret-of-desk", "--lifetime", "1")
    async with logins.issuing(*options) as issuer, logins.protected("ours", issuer) as url:
        file = tmp_path / "mcp.json"
        auth = {"clientId": "desk", "clientSecret": "${DESK}", "scopes": ["tools:read"]}
        entry = {"url": url, "auth": auth}
        file.write_text(json.dumps({"mcpServers": {"tools": entry}}))
        target = f"{file}#tools"
        status, _ = await commands.run("login", target, "--no-browser")
        assert status == 3
        assert "the environment variable DESK is not set" in commands.said
        commands.env["DESK"] = "a-secret-of-desk"
        status, out = await commands.log_in(target, "--json")
        said = json.loads(out)
        assert (status, said["server"], said["issuer"]) == (0, url, issuer.url)
        assert said["scopes"] == ["tools:read", "mcp"]
        await asyncio.sleep(1.1)  # a renewal needs the secret
        assert (await commands.whoami(target))["user"] == "ada"
        status, out = await commands.run("logout", target, "--json")
        assert json.loads(out) == {"server": url, "login": True, "revoked": True}
        assert "a-secret-of-desk" not in "".join(p.read_text() for p in commands.folder.iterdir())


async def test_a_person_who_refuses(commands: Commands) -> None:
    async with logins.issuing() as issuer, logins.protected("ours", issuer) as url:
        status, out = await commands.log_in(url, form={"deny": "yes"})
        assert (status, out) == (3, "")
        assert "access_denied" in commands.said
        assert await issuer.journal("POST /token") == []


@pytest.mark.skipif(
    browser.find() is None, reason="no chromium: install one, or name it in WIRESPEED_CHROMIUM"
)
async def test_a_person_at_a_browser(commands: Commands, tmp_path: Path) -> None:
    program = browser.find()
    assert program is not None
    opened = tmp_path / "opened"
    opener = tmp_path / "opener"
    opener.write_text(f'#!/bin/sh\necho "$1" > {opened}.new && mv {opened}.new {opened}\n')
    opener.chmod(0o700)
    async with (
        logins.issuing() as issuer,
        logins.protected("ours", issuer) as url,
        browser.opened(program, tmp_path / "profile") as window,
        commands.running("login", url, BROWSER=str(opener)) as child,
    ):
        while not opened.exists():
            assert child.returncode is None
            await asyncio.sleep(0.05)
        async with window.page(opened.read_text().strip()) as page:
            asked = "document.querySelector('#scope').textContent"
            assert await page.evaluated(asked) == "mcp"
            await page.type("#user", "grace")
            await page.type("#password", "wrong")
            await page.click("#consent")
            await page.click("#go")
            await page.until("document.querySelector('#wrong')")
            await page.type("#user", "grace")
            await page.type("#password", "hopper")
            await page.click("#consent")
            await page.click("#go")
            await page.until("location.pathname === '/callback'")
            shown = await page.evaluated("document.body.textContent")
            assert "You can close this page" in shown
        status, out = await commands.end(child)
        assert (status, out) == (0, f"logged in to {url} at {issuer.url}\nscopes: mcp\n")
        assert await commands.whoami(url) == {"user": "grace", "scopes": ["mcp"]}
