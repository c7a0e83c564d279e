"""Digests of the lists of servers behind the proxy (`wirespeed.protocol.digests`)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lab.gateway import gateway, inside
from lab.merge import MergeLab
from lab.principals import principal

from wirespeed import Client, Server, Socket
from wirespeed.errors import ProtocolError
from wirespeed.proxy import BackendConfig, ToolRules
from wirespeed.tool_search import ToolSearch

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


class Behind:
    """A server behind the proxy, and the cursors of its list that were asked for."""

    def __init__(self, lab: MergeLab, name: str, digests: bool) -> None:
        self.asked: list[Any] = []
        self.server = Server(name, digests=digests, page_size=2)
        for i in range(5):
            self.server.add_tool(lambda: 1, name=f"tool{i}")
        self.server.add_middleware(self._note)
        url = f"unix:{lab.path}-{name}"
        lab.servers[url] = self.server
        lab.backends.append(BackendConfig(target=Socket(url), name=name))

    async def _note(self, request: Any, call_next: Any) -> Any:
        if request.method == "tools/list":
            self.asked.append(request.decode().get("cursor"))
        return await call_next(request)

    def pages(self) -> int:
        found = len(self.asked)
        self.asked.clear()
        return found


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_list_with_the_same_digest_is_asked_for_once(tmp_path: Path, keeps: bool) -> None:
    lab = MergeLab(tmp_path, list_digests=keeps)
    a, b = Behind(lab, "a", True), Behind(lab, "b", False)
    async with lab.serving() as urls, Client(urls[0], era="modern", cache=False) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert len(names) == 10
        assert (a.pages(), b.pages()) == (3, 3)
        assert [tool.name for tool in await client.list_tools()] == names
        assert (a.pages(), b.pages()) == (1 if keeps else 3, 3)
        a.server.add_tool(lambda: 1, name="more")
        assert "a_more" in [tool.name for tool in await client.list_tools()]
        assert a.pages() == 3
        # what the client knows is no server's
        assert (await client.request("tools/list")).get("digest") is None


async def test_pages_of_different_digests_are_not_joined(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path, list_digests=True)
    a, b = Behind(lab, "a", True), Behind(lab, "b", True)

    async def grow(request: Any, call_next: Any) -> Any:
        reply = await call_next(request)
        if request.method == "tools/list" and len(a.asked) == 1:
            a.server.add_tool(lambda: 1, name="more")  # behind its first page
        return reply

    a.server.add_middleware(grow)
    async with lab.serving() as urls, Client(urls[0], era="modern", cache=False) as client:
        names = [tool.name for tool in await client.list_tools()]
        assert len(names) == len(set(names)) == 11
        assert a.asked[:3] == [None, a.asked[1], None]  # begun anew at the second page
        assert b.pages() == 3


async def test_a_server_that_has_no_tools_any_more(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path, list_digests=True)
    a, b = Behind(lab, "a", True), Behind(lab, "b", True)
    gone: list[str] = []

    async def leave(request: Any, call_next: Any) -> Any:
        if request.method in gone:
            raise ProtocolError(-32601, "Method not found")
        return await call_next(request)

    a.server.add_middleware(leave)
    async with lab.serving() as urls, Client(urls[0], era="modern", cache=False) as client:
        assert len(await client.list_tools()) == 10
        gone.append("tools/list")
        assert len(await client.list_tools()) == 5
        assert b.pages() > 0


async def test_a_list_that_the_proxy_changes_has_no_digest(tmp_path: Path) -> None:
    """The server's digest stays the same, whatever becomes of rights and approvals."""
    server = Server("a", digests=True)
    for name in ("x", "y"):
        server.add_tool(lambda: 1, name=name)
    server.add_resource("data:1", lambda: "1", name="one")

    def who(allowed: str) -> Any:
        return (
            principal("anne", tools=ToolRules(allow=(allowed, f"a_{allowed}"))),
            principal("root"),
        )

    backends = (
        inside("a", server, skills="approved"),
        inside("b", server, tool_search=ToolSearch()),
    )
    approvals = str(tmp_path / "approvals.json")
    async with gateway(*backends, principals=who("x"), approvals=approvals) as lab:
        async with lab.client("root", path="/servers/a", cache=False) as client:
            assert "digest" in await client.request("tools/list")
            assert "digest" not in await client.request("resources/list")
        async with lab.client("root", path="/servers/b", cache=False) as client:
            assert "digest" not in await client.request("tools/list")
            assert "digest" in await client.request("resources/list")
        async with lab.client("anne", path="/servers/a", cache=False, digests=True) as client:
            assert [tool.name for tool in await client.list_tools()] == ["x"]
            await lab.proxy.reload(replace(lab.proxy.config, principals=who("y")))
            assert [tool.name for tool in await client.list_tools()] == ["y"]
