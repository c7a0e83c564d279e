"""Hooks: the calls of some tools are allowed, refused and edited; all others take the short way."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from lab.audit import until
from lab.gateway import gateway, inside
from lab.principals import PRINCIPALS, TOKENS, principal
from lab.raw import surroundings
from lab.wording import raises

from wirespeed import Context, HttpOptions, HttpRequest, HttpResponse, Server, Stdio, ToolSearch
from wirespeed.errors import ConfigError, RemoteError
from wirespeed.litemcp import LiteClient
from wirespeed.proxy import BackendConfig, HookCall, HookConfig, HookRefusal
from wirespeed.proxy.file import load
from wirespeed.types import Accept

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]

ERAS = ("legacy", "modern")
WS = "ws://127.0.0.1:0/mcp"


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


def notes(calls: list[Any], **options: Any) -> Server:
    server = Server("notes", **options)

    @server.tool
    async def save(text: str, n: int = 0) -> str:
        calls.append(text)
        return f"saved {text}"

    @server.tool
    async def read(text: str = "") -> str:
        return f"read {text}"

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("Who?", str)
        return f"hello {answer.content}"

    @server.tool
    async def fail() -> None:
        raise ValueError("broken")

    return server


class Guard:
    """A hook that does as its functions say, and what it was asked."""

    def __init__(self, before: Any = None, after: Any = None) -> None:
        self.asked: list[tuple[str, HookCall, Any]] = []
        self._before, self._after = before, after

    async def before(self, call: HookCall) -> Any:
        self.asked.append(("before", call, None))
        return await self._done(self._before, call)

    async def after(self, call: HookCall, result: Any) -> Any:
        self.asked.append(("after", call, result))
        return await self._done(self._after, result)

    @staticmethod
    async def _done(function: Any, given: Any) -> Any:
        found = function(given) if callable(function) else function
        return await found if asyncio.iscoroutine(found) else found


def hook(guard: Any, *tools: str, **options: Any) -> HookConfig:
    return HookConfig(tools=tools or ("save", "ask"), function=guard, **options)


@pytest.mark.parametrize("path", ["/mcp", "/servers/notes"])
async def test_edits(era: Any, path: str) -> None:
    calls: list[Any] = []
    guard = Guard(
        lambda call: {**call.arguments, "text": call.arguments["text"].strip()},
        lambda result: {**result, "_meta": {"a/b": 1}},
    )
    backend = inside("notes", notes(calls), hooks=(hook(guard),))
    async with (
        gateway(backend, inside("other", notes([]))) as gate,
        gate.client(era=era, path=path) as client,
    ):
        name = "notes_save" if path == "/mcp" else "save"
        result = await client.call_tool(name, {"text": " x "})
        assert (result.text, (result.meta or {})["a/b"]) == ("saved x", 1)
        hooks = gate.proxy.services["notes"].hooks
        assert hooks is not None
        assert hooks.n_held == 1
        await client.call_tool(name.replace("save", "read"))
        assert hooks.n_held == 1
    assert calls == ["x"]
    (_, before, _), (_, after, result) = guard.asked
    assert (before.server, before.tool, before.arguments) == ("notes", "save", {"text": " x "})
    assert (before.principal, after.arguments) == (None, {"text": "x"})
    assert before.address
    assert result["content"] == [{"type": "text", "text": "saved x"}]


async def test_other_calls_take_the_short_way() -> None:
    """They are looked up by the text of their name: after the first, nothing of ours runs."""
    guard = Guard()
    async with gateway(inside("notes", notes([]), hooks=(hook(guard),)), listen=WS) as gate:
        hooks = gate.proxy.services["notes"].hooks
        assert hooks is not None
        async with gate.client() as client:
            await client.call_tool("read")
            assert dict(hooks) == {b'"read"': ()}
            seen: list[Any] = []
            hooks._hooks = _Watched(seen)  # asked only for names that are not known
            for _ in range(10):
                await client.call_tool("read")
            assert seen == []
            assert (hooks.n_held, guard.asked) == (0, [])


class _Watched(tuple[Any, ...]):
    def __new__(cls, seen: list[Any]) -> Any:
        made = super().__new__(cls)
        made.seen = seen
        return made

    def __iter__(self) -> Any:
        self.seen.append("iterated")  # type: ignore[attr-defined]
        return super().__iter__()


async def test_refusals(tmp_path: Path, era: Any) -> None:
    def refuse(call: HookCall) -> None:
        raise HookRefusal(f"not {call.principal}")

    def withhold(result: Any) -> None:
        raise HookRefusal("too long")

    audit = tmp_path / "audit"
    first, second = Guard(refuse), Guard(None, withhold)
    backend = inside("notes", notes([]), hooks=(hook(first, "save"), hook(second, "read")))
    async with (
        gateway(backend, principals=PRINCIPALS, audit=str(audit)) as gate,
        gate.client("root", era) as client,
    ):
        with raises(RemoteError, code=-32600):
            await client.call_tool("save", {"text": "x"})
        with raises(RemoteError, code=-32600):
            await client.call_tool("read")
        noted = await until(audit, 2)
        hooks = gate.proxy.services["notes"].hooks
        assert hooks is not None
        assert (hooks.n_held, hooks.n_refused) == (2, 2)
    assert [(one["tool"], one["outcome"], one["code"]) for one in noted] == [
        ("save", "refused", -32600),
        ("read", "error", -32600),
    ]


async def test_several_hooks() -> None:
    """Each sees what the one before has made of a call. One that refuses is the last."""
    first = Guard(lambda call: {"text": "1"}, lambda result: {**result, "a": 1})
    second = Guard(lambda call: {"text": call.arguments["text"] + "2"})
    calls: list[Any] = []
    hooks = (hook(first), hook(second, "s*", "other"))
    async with gateway(inside("notes", notes(calls), hooks=hooks)) as gate, gate.client() as client:
        assert (await client.call_tool("save", {"text": "0"})).text == "saved 12"
    assert second.asked[1][2]["a"] == 1


async def test_failures(era: Any) -> None:
    """A hook that fails costs its own call."""

    def broken(_: Any) -> None:
        raise ZeroDivisionError

    async def late(_: Any) -> None:
        await asyncio.sleep(60)

    for function in (broken, late, lambda _: 5, lambda _: [1]):
        calls: list[Any] = []
        strict = hook(Guard(function), "save", timeout=0.05)
        lax = hook(Guard(None, function), "read", timeout=0.05, on_failure="pass")
        async with (
            gateway(inside("notes", notes(calls), hooks=(strict, lax))) as gate,
            gate.client(era=era) as client,
        ):
            with raises(RemoteError, code=-32603):
                await client.call_tool("save", {"text": "x"})
            assert (await client.call_tool("read", {"text": "y"})).text == "read y"
            hooks = gate.proxy.services["notes"].hooks
            assert hooks is not None
            assert hooks.n_failed == 2
        assert calls == []


async def test_a_held_call_holds_up_no_other(era: Any) -> None:
    go = asyncio.Event()

    async def wait(_: Any) -> None:
        await go.wait()

    guard = Guard(wait)
    async with (
        gateway(inside("notes", notes([]), hooks=(hook(guard),)), listen=WS) as gate,
        gate.client(era=era) as client,
    ):
        held = asyncio.ensure_future(client.call_tool("save", {"text": "x"}))
        while not guard.asked:
            await asyncio.sleep(0.01)
        assert (await client.call_tool("read")).text == "read "
        assert not held.done()
        go.set()
        assert (await held).text == "saved x"


async def test_a_client_that_gives_up(era: Any) -> None:
    """The work of the hook ends, and the server never sees the call."""
    ended = asyncio.Event()

    async def wait(_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    calls: list[Any] = []
    guard = Guard(wait)
    async with (
        gateway(inside("notes", notes(calls), hooks=(hook(guard),)), listen=WS) as gate,
        gate.client(era=era) as client,
    ):
        held = asyncio.ensure_future(client.call_tool("save", {"text": "x"}))
        while not guard.asked:
            await asyncio.sleep(0.01)
        held.cancel()
        await ended.wait()
        assert (await client.call_tool("read")).text == "read "
    assert calls == []


# The era of the client, and those of the server: where they differ, the proxy translates.
@pytest.mark.parametrize("versions", [("2025-11-25",), ("2026-07-28",), None])
@pytest.mark.parametrize("isolation", ["shared", "pool", "session"])
async def test_translated(era: Any, versions: Any, isolation: str) -> None:
    """Hooks see each call once, whatever stands between."""
    guard = Guard(lambda call: {"text": "edited"}, lambda result: {**result, "_meta": {"a/b": 1}})
    server = notes([], versions=versions)
    backend = inside("notes", server, hooks=(hook(guard, "save"),), isolation=isolation)
    async with gateway(backend, listen=WS) as gate, gate.client(era=era) as client:
        result = await client.call_tool("save", {"text": "x"})
        assert (result.text, (result.meta or {})["a/b"]) == ("saved edited", 1)
        assert [phase for phase, _, _ in guard.asked] == ["before", "after"]


async def test_a_question_on_the_way(era: Any) -> None:
    """The result comes in a later round for a client of 2026-07-28 of a legacy server."""
    guard = Guard(None, lambda result: {**result, "_meta": {"a/b": 1}})
    for versions in (("2025-11-25",), ("2026-07-28",)):
        backend = inside(
            "notes", notes([], versions=versions), hooks=(hook(guard),), isolation="session"
        )
        async with gateway(backend, listen=WS) as gate:
            answer = lambda question: Accept({"value": "anne"})  # noqa: E731
            async with gate.client(era=era, on_elicit=answer) as client:
                result = await client.call_tool("ask")
                assert (result.text, (result.meta or {})["a/b"]) == ("hello anne", 1)


async def test_a_search_and_litemcp() -> None:
    calls: list[Any] = []
    guard = Guard(lambda call: {"text": "edited"})
    backend = inside("notes", notes(calls), hooks=(hook(guard),), lite=("save",))
    async with gateway(backend, tool_search=ToolSearch()) as gate:
        async with gate.client() as client:
            wanted = {"name": "save", "arguments": {"text": "x"}}
            assert (await client.call_tool("call_tool", wanted)).text == "saved edited"
        async with LiteClient(gate.place("/lite/notes/save")) as lite:
            await lite.call("x", "1")
    assert calls == ["edited", "edited"]


async def test_a_reload() -> None:
    """Hooks change at once, and the server stays."""
    guard = Guard(lambda call: {"text": "edited"})
    backend = inside("notes", notes([]))
    async with gateway(backend, listen=WS) as gate, gate.client() as client:
        config = gate.proxy.config
        with_hook = dataclasses.replace(backend, hooks=(hook(guard),))
        changes = await gate.proxy.reload(dataclasses.replace(config, backends=(with_hook,)))
        assert (changes.changed, changes.shown) == ((), ("notes",))
        assert (await client.call_tool("save", {"text": "x"})).text == "saved edited"
        await gate.proxy.reload(config)
        assert (await client.call_tool("save", {"text": "x"})).text == "saved x"


def test_plain_functions_and_wrong_values() -> None:
    for options, text in (
        ({}, "either a service"),
        ({"url": "https://a.example/", "function": print}, "either a service"),
        ({"url": "http://a.example/"}, "https is needed"),
        ({"function": 5}, "must be Callable"),
        ({"function": print, "token": "x"}, "goes with a url"),
        ({"function": print, "timeout": 0}, "above 0"),
        ({"function": print, "phases": ()}, "phases"),
        ({"function": print, "tools": ()}, "has tools"),
        ({"function": print, "on_failure": "no"}, "on_failure"),
    ):
        with pytest.raises((TypeError, ValueError), match=text):
            HookConfig(**{"tools": ("a",), **options})  # type: ignore[arg-type]
    assert "secret" not in repr(HookConfig(tools=("a",), url="https://a.example/", token="secret"))


async def test_a_function_runs_in_a_thread() -> None:
    import threading

    threads = []

    def before(call: HookCall) -> None:
        threads.append(threading.current_thread())

    async with (
        gateway(inside("notes", notes([]), hooks=(hook(before),))) as gate,
        gate.client() as client,
    ):
        await client.call_tool("save", {"text": "x"})
    assert threads != [threading.main_thread()]
    assert len(threads) == 1


async def test_a_function_that_hangs() -> None:
    """It costs the calls that it holds, and neither other hooks nor what else needs a thread."""
    import threading

    over = threading.Event()

    def before(call: HookCall) -> None:
        over.wait(60)

    def fine(call: HookCall) -> None:
        pass

    slow = hook(before, "save", timeout=0.05)
    hooks = (slow, hook(fine, "read", timeout=5.0))
    try:
        async with (
            gateway(inside("notes", notes([]), hooks=hooks), listen=WS) as gate,
            gate.client() as client,
        ):
            found = await asyncio.gather(
                *(client.call_tool("save", {"text": "x"}) for _ in range(60)),
                return_exceptions=True,
            )
            assert {type(one) for one in found} == {RemoteError}
            async with asyncio.timeout(10):
                assert (await client.call_tool("read")).text == "read "
                await asyncio.to_thread(int)
    finally:
        over.set()


# -- services --------------------------------------------------------------------------------------


@contextlib.asynccontextmanager
async def service(answer: Callable[[Any], Any]) -> AsyncIterator[tuple[str, list[Any]]]:
    """An HTTP service: its URL, and what it was asked. ``answer``: may be a coroutine function."""
    asked: list[Any] = []

    async def check(request: HttpRequest) -> HttpResponse:
        body = json.loads(request.body)
        asked.append((request.headers.get("authorization"), body))
        found = answer(body)
        return await found if asyncio.iscoroutine(found) else found

    listening: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    options = HttpOptions(routes={"POST /check": check})
    task = asyncio.ensure_future(
        Server("hook").serve(
            "http://127.0.0.1:0/mcp", http=options, on_listening=listening.set_result
        )
    )
    try:
        (url, *_) = await listening
        yield url.replace("/mcp", "/check"), asked
    finally:
        task.cancel()
        await asyncio.wait((task,))


def said(**members: Any) -> HttpResponse:
    return HttpResponse(200, json.dumps(members).encode(), {}, "application/json")


async def test_a_service(era: Any) -> None:
    def answer(body: Any) -> HttpResponse:
        if body["phase"] == "after":
            return said(action="edit", result={**body["result"], "_meta": {"a/b": 1}})
        text = body["arguments"]["text"]
        if text == "refuse":
            return said(action="refuse", message="not that")
        if text == "edit":
            return said(action="edit", arguments={"text": "other", "n": 12345678901234567})
        return HttpResponse(204, "")

    calls: list[Any] = []
    async with service(answer) as (url, asked):
        config = HookConfig(tools=("save",), url=url, token="s3cret")
        async with (
            gateway(inside("notes", notes(calls), hooks=(config,))) as gate,
            gate.client(era=era) as client,
        ):
            result = await client.call_tool("save", {"text": "x"})
            assert (result.text, (result.meta or {})["a/b"]) == ("saved x", 1)
            assert (await client.call_tool("save", {"text": "edit"})).text == "saved other"
            with raises(RemoteError, code=-32600):
                await client.call_tool("save", {"text": "refuse"})
        assert asked[0][0] == "Bearer s3cret"
        assert {key: asked[0][1][key] for key in ("phase", "server", "tool", "arguments")} == {
            "phase": "before", "server": "notes", "tool": "save", "arguments": {"text": "x"},
        }  # fmt: skip
        assert asked[1][1]["result"]["content"][0]["text"] == "saved x"
    assert calls == ["x", "other"]


async def test_a_client_does_not_take_all_of_a_service() -> None:
    over = asyncio.Event()

    async def answer(body: Any) -> HttpResponse:
        if body["principal"] == "anne":
            await over.wait()
        return HttpResponse(204, "")

    async with service(answer) as (url, asked):
        config = HookConfig(tools=("save",), url=url, timeout=60.0)
        backend = inside("notes", notes([]), hooks=(config,))
        async with (
            gateway(backend, principals=tuple(map(principal, TOKENS))) as gate,
            gate.client("anne") as anne,
            gate.client("bob") as bob,
        ):
            calls = [
                asyncio.ensure_future(anne.call_tool("save", {"text": "x"})) for _ in range(80)
            ]
            while len(asked) < 16:
                await asyncio.sleep(0.01)
            assert (await bob.call_tool("save", {"text": "y"})).text == "saved y"
            assert len(asked) == 18  # about his call and about its result
            over.set()
            assert {(await one).text for one in calls} == {"saved x"}


async def test_a_service_that_fails() -> None:
    for answer in (
        lambda body: HttpResponse(500, "no"),
        lambda body: HttpResponse(200, "no"),
        lambda body: said(action="edit"),
        lambda body: said(action="edit", arguments=[1]),
        lambda body: said(action="what"),
        lambda body: HttpResponse(200, b'{"action":"edit","arguments":{"text":"\xff"}}'),
    ):
        async with service(answer) as (url, _):
            strict = HookConfig(tools=("save",), url=url)
            lax = HookConfig(tools=("read",), url=url, on_failure="pass")
            async with (
                gateway(inside("notes", notes([]), hooks=(strict, lax))) as gate,
                gate.client() as client,
            ):
                with raises(RemoteError, code=-32603):
                    await client.call_tool("save", {"text": "x"})
                assert (await client.call_tool("read")).text == "read "


async def test_a_service_that_writes_lines(tmp_path: Path) -> None:
    """A server and a client over lines get each message on one."""
    program = tmp_path / "notes.py"
    program.write_text(
        "from wirespeed import Server\n"
        "server = Server('notes')\n"
        "@server.tool\n"
        "async def save(text: str) -> str:\n"
        "    return text\n"
        "server.run()\n"
    )

    def answer(body: Any) -> HttpResponse:
        name = "arguments" if body["phase"] == "before" else "result"
        given = {"text": "y"} if name == "arguments" else body["result"]
        return HttpResponse(200, json.dumps({"action": "edit", name: given}, indent=1))

    async with service(answer) as (url, _):
        config = HookConfig(tools=("save",), url=url)
        target = Stdio(sys.executable, [str(program)], env=surroundings())
        backend = BackendConfig(target=target, name="notes", hooks=(config,))
        async with gateway(backend) as gate, gate.client() as client:
            assert (await client.call_tool("save", {"text": "x"})).text == "y"


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "guards_of_test.py").write_text("def guard(call):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "proxy.json"

    def of(**keys: Any) -> Any:
        server = {"command": "x", "proxy": {"hooks": [{"tools": ["a*"], **keys}]}}
        file.write_text(json.dumps({"mcpServers": {"s": server}}))
        (found,) = load(file, {"TOKEN": "s3cret"}).backends[0].hooks
        return found

    found = of(url="https://a.example/x", token="${TOKEN}", onFailure="pass", phases=["after"])
    assert (found.token, found.on_failure, found.phases) == ("s3cret", "pass", ("after",))
    found = of(call="guards_of_test:guard", timeout=2)
    assert found.function.__name__ == "guard"
    assert found == of(call="guards_of_test:guard", timeout=2)  # so that a reload changes nothing
    for keys, text in (
        ({}, r'hooks\[0\]: give either "url" or "call"'),
        ({"url": "https://a.example/", "call": "a:b"}, 'either "url" or "call"'),
        ({"call": "no_module:x"}, r"hooks\[0\].call: no_module:x cannot be loaded.*PYTHONPATH"),
        ({"call": "guards_of_test:none"}, "cannot be loaded"),
        ({"call": "json:__name__"}, r"hooks\[0\]: function of HookConfig must be .*not str"),
        ({"url": "http://a.example/"}, "https is needed"),
    ):
        with pytest.raises(ConfigError, match=text):
            of(**keys)
