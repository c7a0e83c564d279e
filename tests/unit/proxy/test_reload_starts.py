"""A reload whose servers are slow to start, or cannot be started."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest
from lab.principals import client, principal
from lab.proxy import call, said
from lab.reload import ReloadLab, server

from wirespeed import Stdio
from wirespeed.errors import WirespeedError
from wirespeed.proxy import BackendConfig

pytestmark = [pytest.mark.off_schema]


def broken(name: str, **fields: Any) -> BackendConfig:
    return BackendConfig(target=Stdio("/no/such/program"), name=name, **fields)


def silent(name: str) -> BackendConfig:
    """A server that never answers."""
    return BackendConfig(
        target=Stdio("sleep", ("1000",)), name=name, isolation="shared", start_timeout=1000.0
    )


@pytest.mark.parametrize("isolation", ["shared", "session", "pool", "auto"])
async def test_one_that_cannot_be_started_replaces_none(tmp_path: Path, isolation: str) -> None:
    lab = ReloadLab(tmp_path, server(tmp_path, isolation=isolation))
    async with lab.serving() as proxy:
        one = await lab.connect()
        first = said(await one.ask(call(1, "echo")))["pid"]
        changes = await lab.reload(broken("b", isolation=isolation))
        assert changes.changed == changes.kept == ("b",)
        assert said(await one.ask(call(2, "echo")))["pid"] == first
        other = await lab.connect()
        assert "pid" in said(await other.ask(call(1, "echo")))
        assert "no/such/program" in proxy.facts().coming["b"]
        # the earlier configuration again: nothing is started any more
        changes = await lab.reload(server(tmp_path, isolation=isolation))
        assert not changes.kept and not proxy.facts().coming
        assert said(await one.ask(call(3, "echo")))["pid"] == first


@pytest.mark.parametrize("isolation", ["shared", "session"])
async def test_one_that_ends_at_once_replaces_none(tmp_path: Path, isolation: str) -> None:
    """It takes the place when it can be started after all."""
    lab = ReloadLab(tmp_path, server(tmp_path, isolation=isolation))
    flag = tmp_path / "may-start"
    again = server(tmp_path, isolation=isolation)
    assert isinstance(again.target, Stdio)
    script = 'test -e "$0" || exit 3; exec "$@"'
    words = ("-c", script, str(flag), again.target.command, *again.target.args)
    changed = dataclasses.replace(again, target=Stdio("sh", words))
    async with lab.serving() as proxy:
        one = await lab.connect()
        first = said(await one.ask(call(1, "echo")))["pid"]
        changes = await lab.reload(changed)
        assert changes.kept == ("b",)
        assert said(await one.ask(call(2, "echo")))["pid"] == first
        flag.touch()
        while proxy.facts().coming:
            await asyncio.sleep(0.01)
        other = await lab.connect()
        assert said(await other.ask(call(1, "echo")))["pid"] != first


async def test_a_token_is_revoked_while_a_server_starts(tmp_path: Path) -> None:
    lab = ReloadLab(
        tmp_path,
        server(tmp_path, "a"),
        server(tmp_path, "gone"),
        listen=("http://127.0.0.1:0/mcp",),
    )
    lab.config = dataclasses.replace(
        lab.config, principals=(principal("root"), principal("anne"), principal("bob"))
    )
    async with lab.serving() as proxy:
        (urls,) = lab.urls
        url = next(url for url in urls if url.endswith("/servers/a"))
        async with client(url, "anne", "legacy") as anne:
            await anne.call_tool("echo", {})
        keep = server(tmp_path, "a")
        first = asyncio.ensure_future(
            lab.reload(keep, silent("slow"), principals=(principal("root"), principal("bob")))
        )
        while "slow" not in proxy.facts().coming:
            await asyncio.sleep(0.01)
        for path in (url, url.replace("/a", "/gone")):
            with pytest.raises(WirespeedError):
                async with client(path, "anne", "legacy") as anne:
                    await anne.call_tool("echo", {})
        # the next reload does not wait for the start either
        second = asyncio.ensure_future(
            lab.reload(keep, silent("slow"), principals=(principal("root"),))
        )
        while proxy.reloads.ok < 2:
            await asyncio.sleep(0.01)
        with pytest.raises(WirespeedError):
            async with client(url, "bob", "legacy") as bob:
                await bob.call_tool("echo", {})
        async with client(url, "root", "legacy") as root:
            await root.call_tool("echo", {})
        assert not first.done() and not second.done()
        # the server is not wanted any more
        await lab.reload(keep)
        await asyncio.wait((first, second))
        assert not proxy.facts().coming


async def test_a_reload_to_servers_of_which_none_is_there(tmp_path: Path) -> None:
    """What was removed does not go on because the new one cannot be started."""
    lab = ReloadLab(tmp_path, server(tmp_path, "a"))
    async with lab.serving() as proxy:
        one = await lab.connect()
        await one.ask(call(1, "echo"))
        await lab.reload(broken("b"))
        assert set(proxy.services) == {"b"}
        await one.ended()
