"""What clients get of exceptions of handlers, and what the log has of them."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from typing import Any

import pytest
from lab.server import Peer, text_of

from wirespeed import Client, Server
from wirespeed.errors import ProtocolError, ToolError

pytestmark = pytest.mark.compiled

KINDS = ("coroutine", "later", "thread", "inline", "generator")


def failing(kind: str, exc: BaseException) -> Callable[..., Any]:
    """A handler of this kind that raises the exception."""

    async def coroutine() -> str:
        raise exc

    async def later() -> str:
        await asyncio.sleep(0)
        raise exc

    def thread() -> str:
        raise exc

    def generator() -> Any:
        yield "begun"
        raise exc

    return {"coroutine": coroutine, "later": later, "generator": generator}.get(kind, thread)


def everywhere(server: Server, kind: str, exc: BaseException) -> None:
    """Register the handler as a tool, and unless it is inline, as everything else."""
    handler = failing(kind, exc)
    server.add_tool(handler, name="tool", inline=kind == "inline")
    if kind != "generator":
        plain = failing("thread" if kind == "inline" else kind, exc)
        server.add_resource("lab://it", plain, name="it")
        server.add_prompt(plain, name="prompt")


def reference_in(text: str, records: list[logging.LogRecord]) -> str:
    """The reference in a client's text, which one line of the log must have, with the traceback."""
    (reference,) = re.findall(r"reference ([0-9a-f]{8})\b", text)
    (record,) = [r for r in records if f"(reference {reference})" in r.getMessage()]
    assert record.levelno == logging.ERROR
    assert record.exc_info is not None
    return reference


def others(caller: Any) -> list[Any]:
    """The errors of the handlers that are not tools."""
    return [
        caller.error("resources/read", uri="lab://it"),
        caller.error("prompts/get", name="prompt"),
    ]


@pytest.mark.parametrize("mask", [None, False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_a_tool_error_always_passes(
    kind: str, mask: bool | None, caller: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "wirespeed")
    server = Server("lab", mask_errors=mask)
    everywhere(server, kind, ToolError("no such city"))
    one = caller(server)
    result = one.result("tools/call", name="tool")
    assert (result["isError"], text_of(result)) == (True, "no such city")
    if kind != "generator":
        for error in others(one):
            assert (error["code"], error["message"]) == (-32603, "no such city")
    assert [r for r in caplog.records if r.getMessage() == "tool tool: no such city"]
    assert not [r for r in caplog.records if r.levelno > logging.INFO]


@pytest.mark.parametrize("kind", KINDS)
def test_masked_errors_show_their_class_and_a_reference(
    kind: str, caller: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("lab", mask_errors=True)
    everywhere(server, kind, LookupError("the password is x"))
    one = caller(server)
    result = one.result("tools/call", name="tool")
    assert result["isError"] is True
    texts = [text_of(result)]
    if kind != "generator":
        for error in others(one):
            assert error["code"] == -32603
            texts.append(error["message"])
    whats = ("tool tool", "resource it", "prompt prompt")
    for what, text in zip(whats, texts, strict=False):
        reference = reference_in(text, caplog.records)
        expected = f"{what} failed with LookupError; reference {reference} in the server's log"
        assert text == expected
    assert "the password is x" in caplog.text


def test_what_is_no_failure_of_a_handler_is_not_masked(caller: Any) -> None:
    server = Server("lab", mask_errors=True)

    @server.tool
    async def refuse(n: int) -> str:
        raise ProtocolError(4711, "not now")

    @server.tool(timeout=0.01)
    async def slow() -> str:
        await asyncio.Event().wait()
        return ""

    one = caller(server)
    error = one.error("tools/call", name="refuse", arguments={"n": 1})
    assert (error["code"], error["message"]) == (4711, "not now")
    assert text_of(one.result("tools/call", name="slow")) == "Tool slow timed out after 0.01 s"


def test_a_result_that_cannot_be_sent_is_masked(
    caller: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("lab", mask_errors=True)

    @server.tool
    def unsendable() -> Any:
        return object()

    text = text_of(caller(server).result("tools/call", name="unsendable"))
    assert text.startswith("tool unsendable failed with ResultError; ")
    reference_in(text, caplog.records)


def test_texts_of_all_handlers_may_be_shown(caller: Any) -> None:
    server = Server("lab", mask_errors=False)
    everywhere(server, "coroutine", KeyError("city"))
    one = caller(server)
    assert text_of(one.result("tools/call", name="tool")) == "KeyError: 'city'"
    assert [error["message"] for error in others(one)] == ["KeyError: 'city'"] * 2


def test_the_text_of_a_tool_error_may_be_empty_or_not_valid(peer: Peer, server: Server) -> None:
    server.add_tool(failing("coroutine", ToolError()), name="empty")
    server.add_tool(failing("coroutine", ToolError("\ud800")), name="odd")
    for name, text in (("empty", "ToolError"), ("odd", "\\ud800")):
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name}}
        assert text_of(peer.result(call)) == text


@pytest.mark.parametrize(
    "outer, inner, shown",
    [
        (True, None, "masked"),
        (True, False, "masked"),
        (None, True, "masked"),
        (False, True, "masked"),
        (None, False, "text"),
        (False, None, "text"),
        (None, None, "Internal error"),
    ],
)
def test_the_stricter_setting_counts_where_servers_are_mounted(
    outer: bool | None, inner: bool | None, shown: str, caller: Any
) -> None:
    front, back = Server("front", mask_errors=outer), Server("back", mask_errors=inner)
    everywhere(back, "coroutine", ValueError("these words"))
    front.mount("b", back)
    one = caller(front)
    text = one.error("prompts/get", name="b_prompt")["message"]
    if shown == "masked":
        assert "failed with ValueError; reference " in text
    else:
        assert text == ("these words" if shown == "text" else shown)


def test_middleware_masks_and_reports_as_handlers_do(
    caller: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server("lab", mask_errors=True)
    server.add_tool(failing("coroutine", ValueError("unused")), name="tool")

    @server.add_middleware
    async def refuse(request: Any, call_next: Any) -> Any:
        if request.method == "tools/call":
            raise ToolError("too many calls")
        if request.method == "tools/list":
            raise ToolError("closed")
        if request.method == "prompts/get":
            raise ValueError("secret")
        return await call_next(request)

    one = caller(server)
    result = one.result("tools/call", name="tool")
    assert (result["isError"], text_of(result)) == (True, "too many calls")
    error = one.error("tools/list")
    assert (error["code"], error["message"]) == (-32603, "closed")
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]
    error = one.error("prompts/get", name="prompt")
    assert error["message"].startswith("middleware at prompts/get failed with ValueError; ")
    reference_in(error["message"], caplog.records)


async def test_a_task_fails_with_what_its_tool_would_answer() -> None:
    from wirespeed import TASKS, Client

    server = Server("lab", mask_errors=True)
    server.add_tool(failing("later", ToolError("no such city")), name="told", task="required")
    server.add_tool(failing("later", ValueError("secret")), name="masked", task="required")
    async with Client(server, extensions=[TASKS]) as client:
        for name, text in (
            ("told", "no such city"),
            ("masked", "tool masked failed with ValueError"),
        ):
            task = await client.start_tool(name)
            result = await task.result()
            assert result.is_error
            assert result.text.startswith(text)
            assert "secret" not in result.text


async def test_a_failed_assertion_without_a_text_says_where_to_look() -> None:
    server = Server("checks")

    @server.tool
    async def check() -> None:
        raise AssertionError  # as `assert False` does

    async with Client(server) as client:
        result = await client.call_tool("check")
    assert result.text == "AssertionError: a check failed; the log of the server says where"
