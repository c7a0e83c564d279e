"""The places that a value of an extension has in servers and clients: both directions, hooks,
revisions, dependencies, eras."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from wirespeed import Client, Context, Extension, Server
from wirespeed.errors import ProtocolError, RemoteError, StartupError, Unsupported
from wirespeed.types import Notice, SeenNotification

NAME = "com.example/bell"
BOTH = ("legacy", "modern")

pytestmark = [pytest.mark.compiled, pytest.mark.off_schema]


@pytest.fixture(params=BOTH)
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


def bell(**options: Any) -> Extension:
    async def ring(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        extension.notify(ctx, "notifications/bell/rung", {"times": params["times"]})
        await ctx.progress(1)
        return {"settings": extension.settings_of(ctx)}

    async def ask(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return await extension.ask(ctx, "bell/answer", {"door": 1})

    extension = Extension(
        NAME, options.pop("settings", None), requests={"bell/ring": ring, "bell/ask": ask},
        eras=BOTH, **options,
    )  # fmt: skip
    return extension


async def test_one_value_for_both_sides(era: Any) -> None:
    rung: list[Any] = []
    heard: list[Any] = []

    async def answer(params: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(0)
        return {"who": "nobody", **params}

    value = bell(
        settings={"tone": "c"},
        notifications={"notifications/bell/pressed": heard.append},
        client_notifications={"notifications/bell/rung": rung.append},
        client_requests={"bell/answer": answer},
    )
    server = Server("door")
    server.add_extension(value)
    async with Client(server, era=era, extensions=[value]) as client:
        assert client.server_capabilities["extensions"] == {NAME: {"tone": "c"}}
        assert value.settings_at(client) == {"tone": "c"}
        result = await client.request("bell/ring", {"times": 2})
        assert result["settings"] == {"tone": "c"}
        assert rung == [{"times": 2}]
        connection = client._life.live
        assert connection is not None
        connection.notify("notifications/bell/pressed", b'{"long":true}')
        if era == "modern":
            with pytest.raises(RemoteError):
                await client.request("bell/ask")
        else:
            assert (await client.request("bell/ask"))["who"] == "nobody"
        assert heard == [{"long": True}]


async def test_a_request_of_a_server_that_fails(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    def refuses(params: dict[str, Any]) -> Any:
        raise ProtocolError(-31900, "nobody is at home")

    def fails(params: dict[str, Any]) -> Any:
        raise LookupError("secret")

    async def knock(ctx: Context) -> int:
        try:
            await values[-1].ask(ctx, "bell/answer")
        except RemoteError as exc:
            return exc.code
        except Unsupported:
            return 0
        return 1

    values: list[Extension] = []
    for function, code in ((refuses, -31900), (fails, -32603)):
        server = Server("door")
        server.add_tool(knock)
        values.append(bell(client_requests={"bell/answer": function}))
        server.add_extension(values[-1])
        async with Client(server, era=era, extensions=[values[-1]]) as client:
            result = await client.call_tool("knock")
            assert result.structured_content == {"result": code if era == "legacy" else 0}


async def test_an_extension_that_one_side_lacks(era: Any) -> None:
    rung: list[Any] = []
    server = Server("door")
    server.add_extension(bell())
    async with Client(server, era=era) as client:
        with pytest.raises(RemoteError) as refused:
            await client.request("bell/ring", {"times": 1})
        assert refused.value.code == -32021
    other = Extension(
        "com.example/other", client_notifications={"notifications/bell/rung": rung.append}
    )
    async with Client(server, era=era, extensions=[other, NAME]) as client:
        if era == "modern":  # a bare name is of the modern era
            await client.request("bell/ring", {"times": 1})
        assert rung == []


async def test_an_era_is_its_own_word() -> None:
    for eras, declared in ((["legacy"], "legacy"), (["modern"], "modern")):
        value = Extension("com.example/x", requests={"x/run": lambda params: {}}, eras=eras)
        for era in BOTH:
            server = Server("lab")
            server.add_extension(value)
            async with Client(server, era=era, extensions=[value]) as client:  # type: ignore[arg-type]
                found = client.server_capabilities.get("extensions", {})
                assert (value.name in found) is (era == declared)
                if era == declared:
                    await client.request("x/run")
                else:
                    with pytest.raises(RemoteError) as refused:
                        await client.request("x/run")
                    assert refused.value.code == -32601


# -- hooks -----------------------------------------------------------------------------------------


async def test_hooks_see_each_message_in_one_order(era: Any) -> None:
    seen: list[str] = []

    def watcher(name: str) -> Extension:
        async def around(request: Any, call_next: Any) -> Any:
            seen.append(f"{name}> {request.method}")
            try:
                return await call_next(request)
            finally:
                seen.append(f"{name}< {request.method}")

        async def asks(question: Any, call_next: Any) -> Any:
            seen.append(f"{name}? {question.method}")
            return await call_next(question)

        def told(notification: SeenNotification) -> None:
            mark = "+" if notification.sent else "-"
            seen.append(f"{name}{mark} {notification.method}")

        return Extension(
            f"com.example/{name}", middleware=around, ask_middleware=asks, on_notification=told
        )

    server = Server("lab")
    server.add_extension(watcher("a"))
    server.add_extension(watcher("b"))

    @server.tool
    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.log("info", "working")
        if ctx.protocol_version < "2026":
            await ctx.roots()
        return "done"

    async with Client(
        server, era=era, roots=[], log_level="info", on_tools_changed=lambda tools: None
    ) as client:
        seen.clear()
        await client.call_tool("work", on_progress=lambda *_: None)
        progress, log = "notifications/progress", "notifications/message"
        expected = ["a> tools/call", "b> tools/call", f"a+ {progress}", f"b+ {progress}"]
        expected += [f"a+ {log}", f"b+ {log}"]
        if era == "legacy":
            expected += ["a? roots/list", "b? roots/list"]
        assert seen == [*expected, "b< tools/call", "a< tools/call"]
        seen.clear()
        server.add_resource("a://b", "text")
        server.add_tool(lambda: "x", name="late")
        while "a+ notifications/tools/list_changed" not in seen:
            await asyncio.sleep(0.001)
        connection = client._life.live
        assert connection is not None
        connection.notify("notifications/roots/list_changed")
        await client.list_resources()
        assert "b- notifications/roots/list_changed" in seen


async def test_hooks_of_a_client(era: Any) -> None:
    seen: list[str] = []

    def watcher(name: str) -> Extension:
        async def around(request: Any, call_next: Any) -> Any:
            seen.append(f"{name}> {request.method}")
            return await call_next(request)

        def told(notification: SeenNotification) -> None:
            assert notification.decode() is not None
            mark = "+" if notification.sent else "-"
            seen.append(f"{name}{mark} {notification.method}")

        return Extension(f"com.example/{name}", client_middleware=around, on_notification=told)

    async def own(request: Any, call_next: Any) -> Any:
        seen.append(f"own> {request.method}")
        return await call_next(request)

    server = Server("lab")

    @server.tool
    async def work(ctx: Context) -> None:
        await ctx.progress(1)

    async with Client(
        server, era=era, extensions=[watcher("a"), watcher("b")], middleware=[own]
    ) as client:
        if era == "legacy":
            assert seen == ["a+ notifications/initialized", "b+ notifications/initialized"]
        seen.clear()
        await client.call_tool("work", on_progress=lambda *_: None)
        assert seen == [
            "own> tools/call", "a> tools/call", "b> tools/call", "a- notifications/progress",
            "b- notifications/progress",
        ]  # fmt: skip


async def test_a_hook_that_fails_is_logged(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    def fails(notification: SeenNotification) -> None:
        raise LookupError

    value = bell(on_notification=fails)
    server = Server("door")
    server.add_extension(value)
    async with Client(server, era=era, extensions=[value]) as client:
        await client.request("bell/ring", {"times": 1})
    assert caplog.text.count("the hook of an extension failed") >= 2


# -- revisions, dependencies, codes ----------------------------------------------------------------


async def test_a_revision_that_is_not_known_leaves_it_off(
    era: Any, caplog: pytest.LogCaptureFixture
) -> None:
    rung: list[Any] = []
    old = bell(client_notifications={"notifications/bell/rung": rung.append})
    new = bell(revision="2")
    server = Server("door")
    server.add_extension(new)
    async with Client(server, era=era, extensions=[old]) as client:
        assert client.server_capabilities["extensions"] == {NAME: {"revision": "2"}}
        for _ in range(2):
            with pytest.raises(RemoteError) as refused:
                await client.request("bell/ring", {"times": 1})
            assert refused.value.code == -32021
            assert refused.value.data == {
                "requiredCapabilities": {"extensions": {NAME: {"revision": "2"}}}
            }
        assert old.settings_at(client) is None
    assert caplog.text.count("the client has its revision the first") == 1
    assert caplog.text.count("the server has its revision 2") == 1
    # one that works with both
    server = Server("door")
    server.add_extension(bell(revision="2", understands=[None]))
    async with Client(server, era=era, extensions=[old]) as client:
        await client.request("bell/ring", {"times": 1})
    assert rung == []  # the client knows only the first


def test_a_second_one_and_dependencies() -> None:
    server = Server("lab")
    server.add_extension(Extension("com.example/a", depends=["com.example/b"]))
    with pytest.raises(ValueError, match="already"):
        server.add_extension(Extension("com.example/a"))

    async def start() -> None:
        async with server.running():
            pass

    with pytest.raises(StartupError, match=r"com\.example/a depends on com\.example/b"):
        asyncio.run(start())
    server.add_extension(Extension("com.example/b"))
    asyncio.run(start())

    a = Extension("com.example/a", depends=["com.example/b"])
    with pytest.raises(ValueError, match=r"depends on com\.example/b"):
        Client("http://127.0.0.1:1/mcp", extensions=[a])
    Client("http://127.0.0.1:1/mcp", extensions=[a, "com.example/b"])
    with pytest.raises(ValueError, match="twice"):
        Client("http://127.0.0.1:1/mcp", extensions=[a, "com.example/a", "com.example/b"])
    hear = {"notifications/x": lambda params: None}
    with pytest.raises(ValueError, match="notifications/x already"):
        Client(
            "http://127.0.0.1:1/mcp",
            extensions=[
                Extension("com.example/c", client_notifications=hear),
                Extension("com.example/d", client_notifications=hear),
            ],
        )


@pytest.mark.parametrize("code", [-32000, -32023, -32768])
def test_codes_that_are_reserved(code: int) -> None:
    with pytest.raises(ValueError, match="is reserved for JSON-RPC and MCP"):
        Extension("com.example/a", codes=[code])
    Extension("com.example/a", codes=[-31999, -32769, 7])


async def test_a_code_that_is_raised(era: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def run(params: dict[str, Any]) -> Any:
        raise ProtocolError(params["code"], "no")

    value = Extension("com.example/x", requests={"x/run": run}, codes=[-31900], eras=BOTH)
    server = Server("lab")
    server.add_extension(value)
    async with Client(server, era=era, extensions=[value]) as client:
        for raised, code in ((-31900, -31900), (-32602, -32602), (5, 5), (-32050, -32603)):
            with pytest.raises(RemoteError) as refused:
                await client.request("x/run", {"code": raised})
            assert refused.value.code == code
    assert "-32050 is reserved" in caplog.text


# -- requests that stay open -----------------------------------------------------------------------


class Topic:
    """Events on subscriptions that stay open, by the places of extensions alone."""

    def __init__(self) -> None:
        self.open: dict[Any, str] = {}

    def honoured(self, message: Any, value: Any) -> Any:
        if not isinstance(value, str):
            raise ProtocolError(-32602, "a topic is a text")
        return value

    def started(self, subscription: Any) -> None:
        self.open[subscription] = subscription.extras["topic"]
        subscription.on_over = lambda: self.open.pop(subscription, None)

    def publish(self, topic: str, event: bytes) -> None:
        for subscription, wanted in list(self.open.items()):
            if subscription.is_over:
                self.open.pop(subscription)
            elif wanted == topic:
                subscription.notify("notifications/events/event", event)


async def test_a_toy_of_events() -> None:
    topics = Topic()
    events = Extension("com.example/events", listening={"topic": topics}, required=False)
    server = Server("lab")
    server.add_extension(events)
    async with Client(server, extensions=[events]) as client:
        async with client.subscribe(more={"topic": "news"}) as subscription:
            assert subscription.honoured is not None
            assert subscription.honoured.more == {"topic": "news"}
            topics.publish("other", b'{"n":0}')
            topics.publish("news", b'{"n":1}')
            assert await subscription.next_event(5) == Notice(
                "notifications/events/event", {"n": 1}
            )
        while topics.open:
            await asyncio.sleep(0.001)
        with pytest.raises(RemoteError):
            async with client.subscribe(more={"topic": 1}):
                pass
