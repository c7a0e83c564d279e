"""completion/complete in every revision."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

import pytest
from lab.caller import Caller, before, since
from lab.server import LEGACY, MODERN
from lab.wording import raises

from wirespeed import Context, Server
from wirespeed.errors import SignatureError
from wirespeed.types import Completion

NOTHING = {"values": [], "total": 0, "hasMore": False}


def of_prompt(name: str) -> dict[str, str]:
    return {"type": "ref/prompt", "name": name}


def of_template(uri: str) -> dict[str, str]:
    return {"type": "ref/resource", "uri": uri}


def complete(caller: Caller, ref: Any, name: str, value: str = "", **more: Any) -> Any:
    argument = {"name": name, "value": value}
    result = caller.result("completion/complete", ref=ref, argument=argument, **more)
    assert result.keys() == {"completion"}
    return result["completion"]


def values(caller: Caller, ref: Any, name: str, value: str = "", **more: Any) -> list[str]:
    found: list[str] = complete(caller, ref, name, value, **more)["values"]
    return found


def add_review(server: Server) -> Callable[..., str]:
    @server.prompt
    def review(
        code: str = "", language: Literal["python", "perl", "c"] = "c", framework: str = ""
    ) -> str:
        return ""

    @server.completion("review", "language")
    def languages(value: str) -> list[str]:
        return [one for one in LANGUAGES if one.startswith(value)]

    return review


# -- by functions ---------------------------------------------------------------------------------

LANGUAGES = ["python", "perl", "c"]


def test_a_function_completes_an_argument(caller: Any, server: Server) -> None:
    add_review(server)

    @server.completion("review", "code")
    def codes(value: str) -> list[str]:
        return [value + "1", value + "2"]

    assert codes("x") == ["x1", "x2"]
    client = caller()
    assert complete(client, of_prompt("review"), "code", "a") == {
        "values": ["a1", "a2"],
        "total": 2,
        "hasMore": False,
    }
    # a known argument without a completer
    assert complete(client, of_prompt("review"), "framework", "a") == NOTHING


def test_a_later_function_takes_the_place_of_an_earlier(caller: Any, server: Server) -> None:
    add_review(server)

    @server.completion("review", "language")
    def first(value: str) -> list[str]:
        return ["first"]

    client = caller()
    assert values(client, of_prompt("review"), "language", "p") == ["first"]

    @server.completion("review", "language")
    def second(value: str) -> list[str]:
        return ["second"]

    assert values(client, of_prompt("review"), "language", "p") == ["second"]


def test_functions_come_and_go(caller: Any, server: Server) -> None:
    add_review(server)
    client = caller()
    server.completion("review", "language")(by_a_function)
    assert values(client, of_prompt("review"), "language", "p") == ["by a function"]
    server.remove_completion("review", "language")
    assert values(client, of_prompt("review"), "language", "p") == []
    with pytest.raises(KeyError):
        server.remove_completion("review", "language")
    with raises(ValueError):
        server.remove_completion("nobody", "language")


def by_a_function(value: str) -> list[str]:
    return ["by a function"]


@pytest.mark.every_revision
def test_variables_of_templates(caller: Any, server: Server) -> None:
    @server.resource("repo://{owner}/{name}")
    def repo(owner: str, name: str) -> str:
        return ""

    server.add_resource("repo://fixed/one", "x")

    @server.completion("repo://{owner}/{name}", "name")
    async def names(value: str, others: Mapping[str, str]) -> list[str]:
        return [f"{others.get('owner')}-{value}"]

    client = caller()
    ref = of_template("repo://{owner}/{name}")
    context = {"arguments": {"owner": "me"}}
    owner = "me" if client.version in since("2025-06-18") else None
    assert values(client, ref, "name", "x", context=context) == [f"{owner}-x"]
    assert values(client, ref, "owner") == []
    # "uri is a URI or URI template"
    assert values(client, of_template("repo://a/b"), "name", "x") == ["None-x"]


def test_what_a_completion_may_be_registered_for(caller: Any, server: Server) -> None:
    review = add_review(server)
    prompt = server.prompts["review"]
    template = server.add_resource("a://{x}/{y}", lambda x, y: "", name="t")

    @server.completion(review, "code")
    def by_function(value: str) -> list[str]:
        return ["by function"]

    @prompt.complete("framework")
    def by_prompt(value: str) -> list[str]:
        return ["by prompt"]

    @template.complete("x")  # type: ignore[union-attr]
    def by_template(value: str) -> list[str]:
        return ["by template"]

    client = caller()
    assert values(client, of_prompt("review"), "code") == ["by function"]
    assert values(client, of_prompt("review"), "framework") == ["by prompt"]
    assert values(client, of_template("a://{x}/{y}"), "x") == ["by template"]


@pytest.mark.every_revision
def test_the_context_of_the_arguments_came_with_2025_06_18(
    caller: Any, server: Server, version: str
) -> None:
    add_review(server)
    seen: list[Any] = []

    @server.completion("review", "framework")
    def frameworks(value: str, others: dict[str, str], ctx: Context) -> list[str]:
        seen.append((value, others, ctx.protocol_version))
        return []

    client = caller()
    ref = of_prompt("review")
    complete(client, ref, "framework", "fl", context={"arguments": {"language": "python"}})
    complete(client, ref, "framework", "fl", context={})
    complete(client, ref, "framework", "fl", context=None)
    complete(client, ref, "framework", "fl")
    known = {} if version in before("2025-06-18") else {"language": "python"}
    assert seen == [("fl", known, version)] + [("fl", {}, version)] * 3


@pytest.mark.every_revision
@pytest.mark.parametrize("context", [5, [1], {"arguments": 5}, {"arguments": {"a": 5}}])
def test_a_context_of_another_shape(
    context: Any, caller: Any, server: Server, version: str
) -> None:
    add_review(server)

    @server.completion("review", "code")
    def codes(value: str) -> list[str]:
        return ["x"]

    params = {"ref": of_prompt("review"), "argument": {"name": "code", "value": ""}}
    client = caller()
    if version in before("2025-06-18"):  # an unknown member
        assert client.result("completion/complete", **params, context=context)
        return
    error = client.error("completion/complete", **params, context=context)
    assert error["code"] == -32602 and "params.context" in error["message"]


def many(n: int) -> list[str]:
    return [str(i) for i in range(n)]


def generate(n: int) -> Iterator[str]:
    yield from many(n)


class Endless:
    """An iterable without an end or a length."""

    def __iter__(self) -> Iterator[str]:
        n = 0
        while True:
            yield str(n)
            n += 1


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], NOTHING),
        (None, NOTHING),
        (["a"], {"values": ["a"], "total": 1, "hasMore": False}),
        (("a", "b"), {"values": ["a", "b"], "total": 2, "hasMore": False}),
        ({"a": 1}, {"values": ["a"], "total": 1, "hasMore": False}),
        (many(100), {"values": many(100), "total": 100, "hasMore": False}),
        (many(101), {"values": many(100), "total": 101, "hasMore": True}),
        (lambda: iter(["a"]), {"values": ["a"], "hasMore": False}),
        (Endless(), {"values": many(100), "hasMore": True}),
        (Completion(["a"]), {"values": ["a"], "total": 1, "hasMore": False}),
        (Completion(["a"], 7), {"values": ["a"], "total": 7, "hasMore": True}),
        (Completion(["a"], 1), {"values": ["a"], "total": 1, "hasMore": False}),
        (Completion(["a"], None, True), {"values": ["a"], "hasMore": True}),
        (Completion(["a"], 7, False), {"values": ["a"], "total": 7, "hasMore": False}),
        (Completion(many(150), 1000), {"values": many(100), "total": 1000, "hasMore": True}),
        (Completion(many(150), None, False), {"values": many(100), "hasMore": True}),
    ],
)
def test_what_a_completer_gives(given: Any, expected: Any, connect: Any, server: Server) -> None:
    add_review(server)

    @server.completion("review", "code")
    async def codes(value: str) -> Any:
        return given() if callable(given) else given

    assert complete(Caller(connect(), MODERN), of_prompt("review"), "code") == expected


def test_completers_may_be_generators(caller: Any, server: Server) -> None:
    add_review(server)

    @server.completion("review", "code")
    def plain(value: str) -> Iterable[str]:
        yield value
        yield "b"

    @server.completion("review", "framework")
    async def asynchronous(value: str) -> AsyncIterator[str]:
        yield value

    client = caller()
    assert values(client, of_prompt("review"), "code", "a") == ["a", "b"]
    assert values(client, of_prompt("review"), "framework", "x") == ["x"]


# -- refusals -------------------------------------------------------------------------------------


def test_what_is_unknown_is_invalid_params(caller: Any, server: Server) -> None:
    add_review(server)
    server.add_resource("a://{x}", lambda x: "", name="a")
    server.add_resource("a://fixed/one", "x")
    client = caller()

    def refused(ref: Any, name: str) -> str:
        argument = {"name": name, "value": ""}
        error = client.error("completion/complete", ref=ref, argument=argument)
        assert error["code"] == -32602
        text: str = error["message"]
        return text

    assert refused(of_prompt("nobody"), "x") == "Unknown prompt: nobody"
    assert refused(of_prompt("review"), "x") == "Unknown argument: x"
    assert refused(of_template("b://{x}"), "x") == "Unknown resource template: b://{x}"
    assert refused(of_template("a://fixed/one"), "x").startswith("Unknown resource template")
    assert refused(of_template("a://{x}"), "y") == "Unknown argument: y"
    assert refused(of_template("review"), "code").startswith("Unknown resource template")
    server.remove_prompt("review")
    assert refused(of_prompt("review"), "code") == "Unknown prompt: review"


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"ref": of_prompt("review")},
        {"argument": {"name": "code", "value": ""}},
        {"ref": of_prompt("review"), "argument": {"name": "code"}},
        {"ref": of_prompt("review"), "argument": {"value": ""}},
        {"ref": of_prompt("review"), "argument": {"name": "code", "value": 5}},
        {"ref": {"type": "ref/tool", "name": "x"}, "argument": {"name": "code", "value": ""}},
        {"ref": {"name": "review"}, "argument": {"name": "code", "value": ""}},
        {"ref": {"type": "ref/prompt"}, "argument": {"name": "code", "value": ""}},
        {"ref": {"type": "ref/resource"}, "argument": {"name": "code", "value": ""}},
        {"ref": "review", "argument": {"name": "code", "value": ""}},
    ],
)
def test_requests_of_another_shape(params: Any, caller: Any, server: Server) -> None:
    add_review(server)
    error = caller().error("completion/complete", **params)
    assert error["code"] == -32602 and error["message"].startswith("Invalid params")


def test_a_reference_may_say_more(caller: Any, server: Server) -> None:
    add_review(server)
    ref = of_prompt("review") | {"title": "Review"}
    assert values(caller(), ref, "language", "c") == ["c"]


def test_nothing_internal_leaks(
    caller: Any, server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    add_review(server)
    given: list[Any] = []

    @server.completion("review", "code")
    def codes(value: str) -> Any:
        if not given:
            raise RuntimeError("the password is 1234")
        return given[0]

    client = caller()
    argument = {"name": "code", "value": ""}

    def failed() -> None:
        error = client.error("completion/complete", ref=of_prompt("review"), argument=argument)
        assert error == {"code": -32603, "message": "Internal error"}

    failed()
    for value in ("text", b"bytes", 5, [5], ["a", None], Completion("text"), ["\ud800"]):
        given[:] = [value]
        failed()
    assert [r.levelno for r in caplog.records] == [logging.ERROR] * 8


def test_a_timeout_ends_a_completion(caller: Any, server: Server) -> None:
    add_review(server)

    @server.completion("review", "code", timeout=0.001)
    async def slow(value: str) -> list[str]:
        await asyncio.Event().wait()
        return []

    argument = {"name": "code", "value": ""}
    error = caller().error("completion/complete", ref=of_prompt("review"), argument=argument)
    assert error["code"] == -32603 and "timed out after 0.001 s" in error["message"]


# -- the capability -------------------------------------------------------------------------------


def test_the_capability_came_with_2025_03_26(caller: Any, server: Server, version: str) -> None:
    add_review(server)
    fresh = caller(version=MODERN).result("server/discover")["capabilities"]
    assert fresh["completions"] == {}
    # a server of 2024-11-05 may complete without saying so
    assert values(caller(), of_prompt("review"), "language", "c") == ["c"]


@pytest.mark.every_revision
@pytest.mark.parametrize("version", LEGACY)
def test_legacy_clients_are_told_at_the_handshake(
    connect: Any, server: Server, version: str
) -> None:
    def offered() -> bool:
        return "completions" in connect().handshake(version)["capabilities"]

    server.add_prompt(lambda a="": "", name="a")
    assert not offered()  # nothing can be completed
    server.completion("a", "a")(complete_nothing)
    assert offered() is (version in since("2025-03-26"))


def complete_nothing(value: str) -> list[str]:
    return []


def test_the_answer_of_discover_follows(connect: Any, server: Server) -> None:
    client = Caller(connect(), MODERN)

    def offered() -> bool:
        return "completions" in client.capabilities()

    template = server.add_resource("a://{x}", lambda x: "", name="a")
    assert not offered()
    template.complete("x")(complete_nothing)  # type: ignore[union-attr]
    assert offered()


def test_without_it_there_is_no_such_method(caller: Any, server: Server) -> None:
    server.add_prompt(lambda a="": "", name="a")
    error = caller().error(
        "completion/complete", ref=of_prompt("a"), argument={"name": "a", "value": ""}
    )
    assert error["code"] == -32601


# -- registration ---------------------------------------------------------------------------------


def test_what_cannot_be_completed(server: Server) -> None:
    add_review(server)
    server.add_resource("a://1", "x")
    with raises(ValueError):
        server.completion("nobody", "x")
    with raises(ValueError):
        server.completion("a://1", "x")
    with raises(ValueError):
        server.completion(complete_nothing, "x")
    with raises(ValueError):
        server.completion("review", "x")


@pytest.mark.parametrize(
    "function",
    [
        lambda: ["a"],
        lambda a, b, c: [],
        lambda *args: [],
    ],
)
def test_what_cannot_complete(function: Any, server: Server) -> None:
    add_review(server)
    with raises(SignatureError):
        server.completion("review", "code")(function)
