"""Extensions by name: offered, declared, refused (2026-07-28 basic/index, docs/extensions)."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from lab.raw import META, modern, notification, request
from lab.rows import every
from lab.wording import raises

from wirespeed import Client, Context, Server
from wirespeed.errors import ProtocolError, RemoteError
from wirespeed.server.extensions import Extension, ExtensionResult

SCALES = "com.example/scales"
DECLARED = {META + "clientCapabilities": {"extensions": {SCALES: {"unit": "lb"}}}}
REQUIRED = {"requiredCapabilities": {"extensions": {SCALES: {}}}}


class Weight(msgspec.Struct):
    grams: float


class Pounds(msgspec.Struct):
    pounds: float


def scales(heard: list[Any] | None = None, **options: Any) -> Extension:
    async def weigh(params: Weight, ctx: Context) -> Pounds:
        assert ctx.protocol_version == "2026-07-28"
        settings = extension.settings_of(ctx)
        assert settings == {"unit": "lb"}
        return Pounds(params.grams / 453.59237)

    def tare(params: dict[str, Any]) -> None:
        if params:
            raise ProtocolError(-31700, "it only takes nothing", params)

    async def busy(params: dict[str, Any]) -> ExtensionResult:
        return ExtensionResult("com.example/busy", {"seconds": 3})

    async def wrong(params: dict[str, Any]) -> Any:
        return ExtensionResult("com.example/unheard", {}) if params else [1]

    async def meets_a_bug(params: dict[str, Any]) -> Any:
        raise LookupError("secret")

    extension = Extension(
        SCALES,
        {"max": 1000},
        requests={
            "scales/weigh": weigh,
            "scales/tare": tare,
            "scales/busy": busy,
            "scales/wrong": wrong,
            "scales/bug": meets_a_bug,
        },
        notifications={"notifications/scales/bumped": ([] if heard is None else heard).append},
        result_types=["com.example/busy"],
        **options,
    )
    return extension


@pytest.fixture
def server() -> Server:
    server = Server("kitchen")
    server.add_extension(scales())
    return server


@pytest.fixture
def peer(connect: Any, server: Server) -> Any:
    return connect(server)


def ask(id: Any, method: str, params: Any = None) -> Any:
    return modern(id, method, params, **DECLARED)


def test_it_is_announced_to_modern_clients(connect: Any, server: Server, peer: Any) -> None:
    capabilities = peer.result(modern(1, "server/discover"))["capabilities"]
    assert capabilities["extensions"] == {SCALES: {"max": 1000}}
    for version in ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"):
        assert "extensions" not in connect(server).handshake(version)["capabilities"]
    # also one that comes later
    server.add_extension(Extension("com.example/timer"))
    capabilities = peer.result(modern(2, "server/discover"))["capabilities"]
    assert capabilities["extensions"] == {SCALES: {"max": 1000}, "com.example/timer": {}}
    assert set(server.extensions) == {SCALES, "com.example/timer"}


def test_a_request_of_both_sides(peer: Any) -> None:
    result = peer.result(ask(1, "scales/weigh", {"grams": 453.59237}))
    assert result["pounds"] == 1.0 and result["resultType"] == "complete"
    assert result["_meta"][META + "serverInfo"]["name"] == "kitchen"
    assert peer.result(ask(2, "scales/tare"))["resultType"] == "complete"


def test_a_result_type_of_its_own(peer: Any) -> None:
    result = peer.result(ask(1, "scales/busy"))
    assert result["resultType"] == "com.example/busy" and result["seconds"] == 3
    assert result["_meta"][META + "serverInfo"]["name"] == "kitchen"


@pytest.mark.parametrize("typed", [True, False])
def test_a_result_with_a_meta_of_its_own(typed: bool, connect: Any, server: Server) -> None:
    async def run(params: dict[str, Any]) -> Any:
        members = {"_meta": {"com.example/n": 1}, "deep": {"_meta": 2, "resultType": 3}}
        return ExtensionResult("odd", members) if typed else members

    server.add_extension(Extension("com.example/x", requests={"x/run": run}, result_types=["odd"]))
    declared = {META + "clientCapabilities": {"extensions": {"com.example/x": {}}}}
    result = connect(to=server).result(modern(1, "x/run", {}, **declared))
    info = result["_meta"][META + "serverInfo"]
    assert info["name"] == "kitchen"
    assert result == {
        "resultType": "odd" if typed else "complete",
        "deep": {"_meta": 2, "resultType": 3},
        "_meta": {META + "serverInfo": info, "com.example/n": 1},
    }


@pytest.mark.parametrize("members", [{"_meta": 1}, {"resultType": "odd"}])
def test_a_result_that_says_what_the_server_says(
    members: dict[str, Any], connect: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    async def run(params: dict[str, Any]) -> Any:
        return members

    server.add_extension(Extension("com.example/x", requests={"x/run": run}))
    declared = {META + "clientCapabilities": {"extensions": {"com.example/x": {}}}}
    peer = connect(to=server)
    assert peer.error(modern(1, "x/run", {}, **declared)) == (-32603, "Internal error")
    assert "_meta must be an object" in caplog.text


def test_what_the_client_did_not_declare(peer: Any) -> None:
    error = peer.ask(modern(1, "scales/weigh", {"grams": 1}))["error"]
    assert error["code"] == -32021 and error["data"] == REQUIRED
    other = {META + "clientCapabilities": {"extensions": {"com.example/scale": {}}}}
    assert peer.error(modern(2, "scales/weigh", {"grams": 1}, **other))[0] == -32021
    # nor does an earlier declaration help
    peer.result(ask(3, "scales/weigh", {"grams": 1}))
    assert peer.error(modern(4, "scales/weigh", {"grams": 1}))[0] == -32021


def test_what_the_client_need_not_declare(connect: Any) -> None:
    async def weigh(params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        return {"settings": extension.settings_of(ctx)}

    extension = Extension(SCALES, requests={"scales/weigh": weigh}, required=False)
    server = Server("kitchen")
    server.add_extension(extension)
    peer = connect(server)
    assert peer.result(modern(1, "scales/weigh"))["settings"] is None
    assert peer.result(ask(2, "scales/weigh"))["settings"] == {"unit": "lb"}


def test_what_the_server_does_not_have(connect: Any, peer: Any) -> None:
    assert peer.error(ask(1, "scales/unknown"))[0] == -32601
    assert connect(Server("bare")).error(ask(1, "scales/weigh", {"grams": 1}))[0] == -32601


def test_legacy_clients_do_not_reach_it(connect: Any, server: Server) -> None:
    peer = connect(server, "2025-11-25")
    assert peer.error(request(1, "scales/weigh", {"grams": 1}))[0] == -32601


def test_params_that_do_not_fit(peer: Any) -> None:
    code, text = peer.error(ask(1, "scales/weigh", {"grams": "much"}))
    assert code == -32602 and "params.grams" in text


def test_errors(peer: Any, caplog: pytest.LogCaptureFixture) -> None:
    error = peer.ask(ask(1, "scales/tare", {"x": 1}))["error"]
    assert error == {"code": -31700, "message": "it only takes nothing", "data": {"x": 1}}
    for params in ({}, {"x": 1}):
        assert peer.error(ask(2, "scales/wrong", params)) == (-32603, "Internal error")
    assert peer.error(ask(3, "scales/bug")) == (-32603, "Internal error")
    assert "secret" in caplog.text and "com.example/unheard" in caplog.text


def test_notifications(connect: Any, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Any] = []
    server = Server("kitchen")
    server.add_extension(scales(heard))

    def breaks(params: dict[str, Any]) -> None:
        raise LookupError("oops")

    server.add_extension(Extension("com.example/b", notifications={"notifications/b": breaks}))
    peer = connect(server)
    peer.send(
        notification("notifications/scales/bumped", {"hard": True}),
        notification("notifications/scales/bumped"),
        notification("notifications/b"),
        notification("notifications/unknown"),
    )
    assert peer.fence() == []
    assert heard == [{"hard": True}, {}]
    assert "handler of notifications/b failed" in caplog.text and "oops" in caplog.text


@every("name", ["scales", "com.example/", "/x", "com..x/y", "1com/x", "a b/c", ""])
def test_names(name: str) -> None:
    with raises(ValueError):
        Extension(name)


def test_what_is_taken_is_refused(server: Server) -> None:
    async def serve(params: dict[str, Any]) -> None: ...

    with raises(ValueError):
        Extension("com.example/x", requests={"tools/call": serve})
    with raises(ValueError):
        Extension("com.example/x", result_types=["complete"])
    with raises(ValueError):
        server.add_extension(scales())
    with raises(ValueError):
        server.add_extension(Extension("com.example/x", requests={"scales/weigh": serve}))
    with pytest.raises(TypeError):
        Extension("com.example/x", {"x": object()})


def test_functions_that_cannot_serve() -> None:
    async def too_many(a: Any, b: Any, c: Any) -> None: ...

    async def no_context(params: dict[str, Any], other: int) -> None: ...

    for function in (too_many, no_context, lambda: None):
        with raises(TypeError):
            Extension("com.example/x", requests={"x/y": function})


async def test_from_client_to_server() -> None:
    server = Server("kitchen")
    server.add_extension(scales())
    async with Client(server, era="modern", extensions={SCALES: {"unit": "lb"}}) as client:
        assert client.server_capabilities["extensions"] == {SCALES: {"max": 1000}}
        result = await client.request("scales/weigh", {"grams": 453.59237})
        assert result["pounds"] == 1.0
    async with Client(server, era="modern") as client:
        with pytest.raises(RemoteError) as caught:
            await client.request("scales/weigh", {"grams": 1})
        assert caught.value.code == -32021
    async with Client(server, era="legacy", extensions=[SCALES]) as client:
        with pytest.raises(RemoteError) as caught:
            await client.request("scales/weigh", {"grams": 1})
        assert caught.value.code == -32601
    await asyncio.sleep(0)
