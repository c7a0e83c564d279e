"""The roots that a client shows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from lab.asking import LEGACY_VERSIONS, ask, asked, legacy
from lab.client import Run, until
from lab.peer import MODERN_PEER, LinePeer
from lab.rows import every
from lab.wording import raises

from wirespeed import Client
from wirespeed.client.answering.answerer import as_root
from wirespeed.protocol.asking import Root


@pytest.mark.parametrize("version", LEGACY_VERSIONS)
def test_roots_are_listed(once: Run, tmp_path: Path, version: str) -> None:
    roots = [Root("file:///a", "A"), "file:///b%20c", tmp_path / "d"]
    [got] = once(asked(tmp_path, ("roots/list", None), version=version, roots=roots))
    assert got["result"] == {
        "roots": [
            {"uri": "file:///a", "name": "A"},
            {"uri": "file:///b%20c"},
            {"uri": (tmp_path / "d").as_uri()},
        ]
    }


@pytest.mark.parametrize("params", [{}, {"_meta": {"progressToken": 1}}, {"more": 1}])
def test_roots_are_listed_whatever_the_params_hold(
    once: Run, tmp_path: Path, params: dict[str, Any]
) -> None:
    [got] = once(asked(tmp_path, ("roots/list", params), roots=[]))
    assert got["result"] == {"roots": []}


def test_paths_become_uris(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = Path(os.path.realpath(tmp_path)).as_uri()
    assert as_root("ä b/../c").uri == f"{here}/c"
    assert as_root("ä b").uri == f"{here}/%C3%A4%20b"
    assert as_root("a:b").uri == f"{here}/a%3Ab" or os.name == "nt"


@every(
    "bad",
    [
        "https://example.com/x",
        "file:relative",
        "file:///a/../b",
        "file:///a/%2e%2e/b",
        "file:///a\\..\\b",
        "file:///a?b",
        "file:///a#b",
        "file://",
        "file:///a%00b",
        "a\0b",
        "",
    ],
)
def test_what_leaves_its_place_or_is_no_file_is_refused(bad: str) -> None:
    for root in (bad, Root(bad)):
        with pytest.raises(ValueError, match=r"root|path"):
            as_root(root)


@pytest.mark.parametrize("given", [None, "file:///a", 7, ["https://x/"], [1]])
def test_a_function_that_gives_no_roots(once: Run, tmp_path: Path, given: Any) -> None:
    [got] = once(asked(tmp_path, ("roots/list", None), roots=lambda: given))
    assert got["error"] == {"code": -32603, "message": "Internal error"}


async def test_functions_are_asked_each_time(tmp_path: Path) -> None:
    now: list[str] = []

    async def current() -> list[str]:
        return now

    for roots in (current, lambda: list(now)):
        now.clear()
        async with LinePeer(legacy(), tmp_path) as peer, Client(peer.url, roots=roots) as client:
            talk = await peer.talk(0)
            assert (await ask(talk, "roots/list", id=1))["result"] == {"roots": []}
            now.append("file:///a")
            got = await ask(talk, "roots/list", id=2)
            assert got["result"] == {"roots": [{"uri": "file:///a"}]}
            assert not peer.sent("notifications/roots/list_changed")
            await client.roots_changed()
            await peer.got("notifications/roots/list_changed")
            with raises(TypeError):
                await client.add_root("file:///b")


async def test_adding_and_removing_tells_a_legacy_server(tmp_path: Path) -> None:
    async with (
        LinePeer(legacy(), tmp_path) as peer,
        Client(peer.url, roots=["file:///a"]) as client,
    ):
        talk = await peer.talk(0)
        changed = "notifications/roots/list_changed"
        assert await client.add_root("file:///b")
        assert len(await peer.got(changed)) == 1
        assert not await client.add_root("file:///b")
        assert await client.add_root(Root("file:///b", "B"))
        assert await client.remove_root("file:///a")
        assert not await client.remove_root("file:///a")
        got = await ask(talk, "roots/list")
        assert got["result"] == {"roots": [{"uri": "file:///b", "name": "B"}]}
        assert len(peer.sent(changed)) == 3
        with raises(TypeError):
            await client.roots_changed()
        with raises(ValueError):
            await client.add_root("http://x/")


async def test_a_modern_server_is_not_told(once: Run, tmp_path: Path) -> None:
    async with LinePeer(MODERN_PEER, tmp_path) as peer, Client(peer.url, roots=[]) as client:
        assert await client.add_root("file:///a")
        await client.call_tool("echo")
        await until(lambda: peer.sent("tools/call"))
        assert not peer.sent("notifications/roots/list_changed")


async def test_roots_may_change_while_the_client_is_closed(once: Run, tmp_path: Path) -> None:
    async with LinePeer(legacy(), tmp_path) as peer:
        client = Client(peer.url, roots=[])
        await client.add_root("file:///a")
        async with client:
            got = await ask(await peer.talk(0), "roots/list")
            assert got["result"] == {"roots": [{"uri": "file:///a"}]}
        await client.remove_root("file:///a")
        assert not peer.sent("notifications/roots/list_changed")


async def test_without_roots_there_is_nothing_to_add_to(once: Run) -> None:
    for options in ({}, {"on_elicit": print}):
        client = Client("tcp://127.0.0.1:1", **options)
        with raises(TypeError):
            await client.add_root("file:///a")
