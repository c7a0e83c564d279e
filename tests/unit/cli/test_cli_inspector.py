"""The page of ``wirespeed dev`` and ``wirespeed inspect --web``: who may use it, forms, results,
questions, and the server over restarts."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
import pytest
from lab.http import Peer, Response, serving
from lab.rows import every

from wirespeed import Client, Context, Server
from wirespeed.cli.features.lists import Features
from wirespeed.cli.inspector import access as page_access
from wirespeed.cli.inspector.access import COOKIE, PageAccess
from wirespeed.cli.inspector.activity import MAX_USES, WITH_BYTES
from wirespeed.cli.inspector.page import POLICY
from wirespeed.cli.inspector.run import free_port, sources
from wirespeed.cli.inspector.schema_form import (
    FormError,
    is_tangled,
    question_content,
    question_fields,
    tool_arguments,
    tool_fields,
)
from wirespeed.cli.inspector.service import InspectorService
from wirespeed.cli.inspector.wire_log import MAX_MESSAGES, WireLog
from wirespeed.errors import ConnectionLost, TransportError
from wirespeed.types import Image, ResourceLink, Text, ToolInfo

HOSTILE = "<script>alert(1)</script>"


def shop() -> Server:
    server = Server("shop", "2.0", instructions=f"Buy. {HOSTILE}")

    @server.tool(title="Add up")
    async def add(a: int, b: int = 2) -> int:
        return a + b

    @server.tool
    async def say(text: str) -> str:
        return text

    @server.tool
    async def picture() -> list[Image]:
        return [
            Image(data=b"\x89PNG\r\n\x1a\n1", mime_type="image/png"),
            Image(data=b"<svg/>", mime_type="image/svg+xml"),
        ]

    @server.tool
    async def slow(ctx: Context) -> str:
        await ctx.progress(1, 4, "one of four")
        await asyncio.sleep(3600)
        return ""

    class Address(msgspec.Struct):
        street: Annotated[str, msgspec.Meta(min_length=3)]
        gift: bool = False

    @server.tool
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit("Where to?", Address)
        return f"to {answer.content.street}, {answer.content.gift}" if answer else "nowhere"

    @server.tool
    async def think(ctx: Context) -> str:
        return (await ctx.sample("What is 1 + 1?", max_tokens=1000)).text

    server.add_resource("note://1", "Buy tea.", mime_type="text/plain")

    @server.resource("note://{id}/{part}")
    async def note(id: str, part: str) -> str:
        return f"{id}, {part}"

    @server.prompt
    def reply(name: str, tone: str = "kind") -> str:
        return f"A {tone} reply to {name}."

    @server.completion(reply, "name")
    async def names(value: str, context: dict[str, str]) -> list[str]:
        return [one + context.get("tone", "") for one in ("Ann", "Bob") if one.startswith(value)]

    return server


class Visitor:
    """A person with a browser."""

    def __init__(self, service: InspectorService, peer: Peer) -> None:
        self.service = service
        self.peer = peer
        self.access = service.access
        self.cookie = ""

    async def enter(self) -> None:
        """Open the URL that the command prints."""
        path = self.access.url.removeprefix(self.access.origin)
        answer = await self.peer.ask("GET", path)
        assert (answer.status, answer.headers["location"]) == (303, self.access.base)
        found = answer.headers["set-cookie"]
        assert found.endswith(f"; Path={self.access.base}; HttpOnly; SameSite=Strict")
        self.cookie = found.partition(";")[0]

    async def get(self, path: str = "", **fields: str | None) -> Response:
        """A page, or what belongs to it."""
        return await self.peer.ask(
            "GET", self.access.base + path, **{"cookie": self.cookie, **fields}
        )

    async def post(self, path: str, data: dict[str, Any], **fields: str | None) -> Response:
        """Send a form."""
        given: dict[str, str | None] = {
            "cookie": self.cookie,
            "origin": self.access.origin,
            "accept": "application/json",
            "content_type": "application/x-www-form-urlencoded",
        }
        body = urlencode(data, doseq=True).encode()
        return await self.peer.ask("POST", self.access.base + path, body, **{**given, **fields})

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until something is so."""
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    async def uses(self, kind: str, name: str, /, **values: Any) -> Any:
        """Use the server, and wait for the end."""
        data = {"kind": kind, "name": name, **{f"a.{key}": one for key, one in values.items()}}
        answer = await self.post("use", data)
        assert (answer.status, answer.json) == (200, {}), answer.body
        use = self.service.activity.uses[0]
        await self.until(lambda: use.state != "running")
        return use


@contextlib.asynccontextmanager
async def visiting(
    server: Server | None = None, make: Callable[[InspectorService], Client] | None = None
) -> AsyncIterator[Visitor]:
    """The page of a server of this process, with a browser that may use it."""
    target = server or shop()
    access = PageAccess(free_port())
    service = InspectorService(
        access,
        "shop.py",
        reloads=make is not None,
        log_level="info",
        make=make
        or (lambda one: Client(target, on_log=one.server.log, **one.questions.handlers())),
    )
    assert await service.server.start()
    try:
        async with serving(service, url=f"{access.origin}/", **access.listen_fields) as place:
            visitor = Visitor(service, await place.connect())
            await visitor.enter()
            yield visitor
    finally:
        await service.release(None)


# -- access ---------------------------------------------------------------------------------------


async def test_nobody_else_uses_the_page() -> None:
    async with visiting() as person:
        access, call = person.access, {"kind": "tool", "name": "add", "a.a": "1"}
        other = f"http://127.0.0.1:{person.peer.port + 1}"
        for cookie in (None, f"{COOKIE}=", f"{COOKIE}=x", f"x{person.cookie}", f"{COOKIE}x=1"):
            assert (await person.get(cookie=cookie)).status == 403
            assert (await person.post("use", call, cookie=cookie)).status == 403
        for origin in (None, "null", other, "https://evil.example", "http://localhost", "*"):
            assert (await person.post("use", call, origin=origin)).status == 403
        for origin in ("null", other, "https://evil.example"):
            assert (await person.get(origin=origin)).status == 403
        for site in ("cross-site", "same-site", "none"):
            answer = await person.post("use", call, sec_fetch_site=site)
            assert answer.status == 403
        for host in ("evil.example", f"evil.example:{person.peer.port}", "127.0.0.1", "[::1]"):
            for name in (host, f"localhost:{person.peer.port}"):
                assert (await person.get(host=name)).status == 403
                assert (await person.post("use", call, host=name)).status == 403
                entry = access.url.removeprefix(access.origin)
                assert (await person.peer.ask("GET", entry, host=name)).status == 403
        assert (await person.get(sec_fetch_site="cross-site")).status == 403
        assert not person.service.activity.uses
        # the same connection was let in before and is after
        assert (await person.get(sec_fetch_site="none")).status == 200
        assert (await person.get(cookie=None)).status == 403
        assert (await person.post("use", call, sec_fetch_site="same-origin")).status == 200
        assert len(person.service.activity.uses) == 1


async def test_the_key_is_needed_once() -> None:
    async with visiting() as person:
        for query in ("", "?key=", "?key=x", "?key=x&key=y", f"?key={person.access.url[-43:-1]}"):
            answer = await person.peer.ask("GET", f"/{query}")
            assert answer.status == 403
            assert "set-cookie" not in answer.headers
        assert (await person.peer.ask("GET", person.access.base)).status == 403
        # a link on a page elsewhere leads there by a page of ours: else the cookie stays behind
        path = person.access.url.removeprefix(person.access.origin)
        answer = await person.peer.ask("GET", path, sec_fetch_site="cross-site")
        assert answer.status == 200
        assert f'content="0;url={person.access.base}"'.encode() in answer.body
        assert answer.headers["content-security-policy"].startswith("default-src 'none'")


async def test_each_start_has_its_own_secrets() -> None:
    one, two = PageAccess(1), PageAccess(1)
    assert one.base != two.base
    assert one.url != two.url
    assert len(one.url.partition("key=")[2]) == 43


async def test_no_preflight_lets_a_page_elsewhere_in() -> None:
    async with visiting() as person:
        asks = {"access_control_request_method": "POST", "origin": "http://127.0.0.1:1"}
        answer = await person.peer.ask("OPTIONS", f"{person.access.base}use", **asks)
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers


async def test_answers_are_for_this_page_alone() -> None:
    async with visiting() as person:
        for answer in (await person.get(), await person.post("use", {"kind": "x"})):
            for name, value in page_access.FIELDS.items():
                assert answer.headers[name.lower()] == value
        policy = (await person.get()).headers["content-security-policy"]
        assert policy == POLICY
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy


async def test_texts_of_the_server_are_escaped() -> None:
    async with visiting() as person:
        await person.uses("tool", "say", text=HOSTILE)
        person.service.server.stderr_line(HOSTILE)
        text = (await person.get()).body.decode()
        assert text.count("&lt;script&gt;alert") >= 3
        assert HOSTILE not in text


# -- forms ----------------------------------------------------------------------------------------


async def test_a_tool_is_called() -> None:
    async with visiting() as person:
        text = (await person.get("?kind=tool&name=add")).body.decode()
        assert re.search(r'<input id="f-1" name="a.a" value="" inputmode="decimal"', text)
        assert re.search(r'<input id="f-2" name="a.b" value="2"', text)
        use = await person.uses("tool", "add", a="40", b="2")
        assert use.state == "done"
        assert use.parts[0].text == "42"
        text = (await person.get()).body.decode()
        assert "<pre>42</pre>" in text


async def test_a_browser_without_script() -> None:
    async with visiting() as person:
        data = {"kind": "tool", "name": "add", "a.a": "1"}
        answer = await person.post("use", data, accept="text/html")
        assert answer.status == 303
        assert answer.headers["location"] == f"{person.access.base}?kind=tool&name=add#use-1"
        del data["a.a"]
        answer = await person.post("use", data, accept="text/html")
        assert answer.status == 422
        assert b"a is required" in answer.body


async def test_what_cannot_be_sent_is_said() -> None:
    async with visiting() as person:
        for data, text in (
            ({"kind": "tool", "name": "add"}, "a is required"),
            ({"kind": "tool", "name": "gone"}, "the server has no tool gone"),
            ({"kind": "prompt", "name": "gone"}, "the server has no prompt gone"),
            ({"kind": "prompt", "name": "reply"}, "name is required"),
            ({"kind": "tool", "name": "add", "json": "{"}, "the text is not valid JSON"),
            ({"kind": "tool", "name": "add", "json": "[1]"}, "arguments are a JSON object"),
            ({"kind": "tool", "name": "add", "json": "@/etc/passwd"}, "not valid JSON"),
        ):
            answer = await person.post("use", data)
            assert answer.status == 422
            assert text in answer.json["error"]
        answer = await person.post("use", {}, content_type="text/plain")
        assert answer.json["error"] == "this is not a form"
        assert not person.service.activity.uses


async def test_resources_and_prompts() -> None:
    async with visiting() as person:
        use = await person.uses("resource", "note://1")
        assert use.parts[0].text == "Buy tea."
        use = await person.uses("template", "note://{id}/{part}", id="7", part="b")
        assert use.parts[0].text == "7, b"
        use = await person.uses("prompt", "reply", name="Ann")
        assert (use.parts[0].title, use.parts[0].text) == ("user", "A kind reply to Ann.")
        for kind, name in (("resource", "note://1"), ("prompt", "reply")):
            text = (await person.get(f"?{urlencode({'kind': kind, 'name': name})}")).body.decode()
            assert f'data-kind="{kind}" data-name="{name}"' in text
        data = {"kind": "prompt", "name": "reply", "argument": "name", "a.name": "A", "a.tone": "!"}
        answer = await person.post("complete", data)
        assert answer.json == {"values": ["Ann!"]}


async def test_images_are_shown_and_other_bytes_are_saved() -> None:
    async with visiting() as person:
        use = await person.uses("tool", "picture")
        text = (await person.get()).body.decode()
        assert text.count("<img ") == 1
        answer = await person.get(f"media?use={use.number}&part=0")
        assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'; sandbox")
        answer = await person.get(f"media?use={use.number}&part=1")  # SVG may have a script
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"] == "attachment"
        for query in ("use=9&part=0", "use=1&part=9", "use=1&part=-1", "use=x", ""):
            assert (await person.get(f"media?{query}")).status == 404
        assert (await person.get(f"media?use={use.number}&part=0", cookie=None)).status == 403


async def test_a_use_shows_progress_and_is_cancelled() -> None:
    async with visiting() as person:
        answer = await person.post("use", {"kind": "tool", "name": "slow"})
        assert answer.status == 200
        use = person.service.activity.uses[0]
        await person.until(lambda: use.progress)
        assert use.progress == (1, 4, "one of four")
        assert '<progress max="4' in (await person.get()).body.decode()
        assert (await person.post("cancel", {"number": use.number})).status == 200
        await person.until(lambda: use.state == "cancelled")
        answer = await person.post("cancel", {"number": use.number})
        assert answer.json["error"] == "this does not run any more"


async def test_a_failure_says_why() -> None:
    async with visiting() as person:
        use = await person.uses("tool", "add", a="x")
        assert use.state == "failed"
        assert "Expected `int`, got `str`" in use.parts[0].text
        use = await person.uses("resource", "note://nothing")
        assert use.state == "error"
        assert use.error


async def test_what_is_kept_is_bounded() -> None:
    async with visiting() as person:
        for _ in range(WITH_BYTES + 1):
            await person.uses("tool", "picture")
        with_bytes = [use for use in person.service.activity.uses if use.parts[0].data is not None]
        assert len(with_bytes) == WITH_BYTES
        for _ in range(MAX_USES):
            await person.uses("tool", "say", text="x" * 100_000)
        assert len(person.service.activity.uses) == MAX_USES
        assert len(person.service.activity.uses[0].parts[0].text) < 60_000
        assert {row.name: row.n for row in person.service.activity.timings()} == {"say": MAX_USES}


async def test_what_is_kept_of_one_result_is_bounded() -> None:
    server = Server("large")

    @server.tool
    async def texts() -> list[Text]:
        return [Text("x" * 100_000)] * 40

    @server.tool
    async def links() -> list[ResourceLink]:
        return [ResourceLink(uri="x:" + "y" * 100_000, name="z" * 100_000)] * 10

    async with visiting(server) as person:
        for name in ("texts", "links"):
            use = await person.uses("tool", name)
            size = sum(len(part.text) + len(part.title) + len(part.uri) for part in use.parts)
            assert size < 500_000, name


async def test_a_form_of_a_tangled_schema_is_not_taken() -> None:
    several = [{"$ref": "#/properties/a"}] * 10
    schema = {"type": "object", "properties": {"a": {"anyOf": several}}}
    tool = ToolInfo("knot", schema)  # type: ignore[arg-type]
    async with visiting() as person:
        person.service.server.features = Features(tools=[tool])
        answer = await person.post("use", {"kind": "tool", "name": "knot", "a.a": "1"})
        assert (answer.status, "JSON" in answer.json["error"]) == (422, True)


async def test_what_starts_ends_with_the_page() -> None:
    """A server that is still starting is closed before the page has ended."""
    first, closed = shop(), []

    class Slow(Client):
        async def open(self) -> Any:
            await asyncio.sleep(3600)

        async def close(self) -> None:
            await asyncio.sleep(0.05)
            closed.append(self)

    def make(service: InspectorService) -> Client:
        return Slow(first) if service.server.starts else Client(first)

    async with visiting(make=make) as person:
        server = person.service.server
        one = asyncio.ensure_future(server.start())
        other = asyncio.ensure_future(server.start())  # it waits for its turn
        await asyncio.sleep(0.01)
        answer = await person.post("restart", {})
        assert "starting" in answer.json["error"]
        assert server.starting
    assert len(closed) == 1
    assert one.done()
    assert other.done()


# -- questions ------------------------------------------------------------------------------------


async def test_a_form_is_answered() -> None:
    async with visiting() as person:
        await person.post("use", {"kind": "tool", "name": "order"})
        await person.until(lambda: person.service.questions.waiting)
        use, question = person.service.activity.uses[0], person.service.questions.waiting[0]
        text = (await person.get()).body.decode()
        assert "Where to?" in text
        assert f'<input type="hidden" name="number" value="{question.number}">' in text
        data = {"number": question.number, "choice": "accept", "a.street": "A", "a.gift": "true"}
        answer = await person.post("answer", data)
        assert "must have at least 3 characters" in answer.json["error"]
        answer = await person.post("answer", data | {"a.street": "Main Street"})
        assert answer.status == 200
        await person.until(lambda: use.state != "running")
        assert use.parts[0].text == "to Main Street, True"
        answer = await person.post("answer", data)
        assert answer.json["error"] == "this question does not wait any more"


@pytest.mark.parametrize("choice", ["decline", "cancel"])
async def test_a_form_is_declined(choice: str) -> None:
    async with visiting() as person:
        await person.post("use", {"kind": "tool", "name": "order"})
        await person.until(lambda: person.service.questions.waiting)
        number = person.service.questions.waiting[0].number
        assert (await person.post("answer", {"number": number, "choice": choice})).status == 200
        use = person.service.activity.uses[0]
        await person.until(lambda: use.state != "running")
        assert use.parts[0].text == "nowhere"


async def test_a_person_writes_the_message_of_a_model() -> None:
    async with visiting() as person:
        await person.post("use", {"kind": "tool", "name": "think"})
        await person.until(lambda: person.service.questions.waiting)
        question = person.service.questions.waiting[0]
        assert (question.kind, question.text.strip()) == ("sample", "What is 1 + 1?")
        data = {"number": question.number, "choice": "accept", "text": "", "model": "me"}
        assert (await person.post("answer", data)).json["error"] == "write the message"
        await person.post("answer", data | {"text": "2"})
        use = person.service.activity.uses[0]
        await person.until(lambda: use.state != "running")
        assert use.parts[0].text == "2"


async def test_a_question_goes_with_its_call() -> None:
    async with visiting() as person:
        await person.post("use", {"kind": "tool", "name": "order"})
        await person.until(lambda: person.service.questions.waiting)
        await person.post("cancel", {"number": person.service.activity.uses[0].number})
        await person.until(lambda: not person.service.questions.waiting)


# -- the page goes on -----------------------------------------------------------------------------


async def test_a_browser_waits_for_a_change() -> None:
    async with visiting() as person:
        text = (await person.get()).body.decode()
        found = re.search(r'data-version="(\d+)"', text)
        assert found is not None
        version = found[1]
        person.peer.send("GET", f"{person.access.base}?after={version}", cookie=person.cookie)
        waiting = asyncio.ensure_future(person.peer.response())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        person.service.server.stderr_line("news")
        assert b"news" in (await waiting).body


async def test_lists_follow_the_server() -> None:
    server = shop()

    async def new() -> str:
        return "new"

    async with visiting(server) as person:
        server.add_tool(new)
        await person.until(
            lambda: any(tool.name == "new" for tool in person.service.server.features.tools or ())
        )


async def test_another_server_takes_the_place_when_it_is_ready() -> None:
    servers = [shop(), Server("second")]
    fault: list[Exception] = []

    def make(service: InspectorService) -> Client:
        if fault:
            raise fault[0]
        return Client(servers.pop(0), **service.questions.handlers())

    async with visiting(make=make) as person:
        server = person.service.server
        await person.post("use", {"kind": "tool", "name": "slow"})
        use = person.service.activity.uses[0]
        await person.until(lambda: use.progress)
        fault.append(TransportError("line 3: no such name"))
        assert not await server.start()
        text = (await person.get()).body.decode()
        assert "line 3: no such name" in text
        assert "The version before it goes on." in text
        assert next(tool.name for tool in server.features.tools or ()) == "add"
        fault.clear()
        assert (await person.post("restart", {})).status == 200
        await person.until(lambda: server.starts == 2)
        assert server.problem == ""
        assert not server.features.tools
        # a call that runs ends where it began
        assert use.state == "running"
        assert person.service.activity.cancel(use.number)
        await person.until(lambda: use.state == "cancelled")
        assert (
            b"The server does not have this any more"
            in (await person.get("?kind=tool&name=add")).body
        )


async def test_a_lost_server_is_started_again() -> None:
    async def loses(request: Any, call_next: Any) -> Any:
        if b"lost" in (request.arguments or b""):
            raise ConnectionLost("the server closed its output")
        return await call_next(request)

    def make(service: InspectorService) -> Client:
        return Client(shop(), middleware=[loses], **service.questions.handlers())

    async with visiting(make=make) as person:
        server = person.service.server
        use = await person.uses("tool", "say", text="lost")
        assert (use.state, server.running) == ("error", False)
        assert "Not running" in (await person.get()).body.decode()
        use = await person.uses("tool", "say", text="again")
        assert (use.state, server.running, server.starts) == ("done", True, 2)


async def test_a_list_that_fails_costs_that_list() -> None:
    server = shop()

    @server.add_middleware
    async def broken(request: Any, call_next: Any) -> Any:
        if request.method == "prompts/list":
            raise ValueError("no prompts today")
        return await call_next(request)

    async with visiting(server) as person:
        text = (await person.get()).body.decode()
        assert "prompts: the server answered with error" in text
        assert ">say</a>" in text


def test_sources_are_bounded_and_leave_packages_out(tmp_path: Path) -> None:
    for name in ("a.py", "sub/b.py", ".git/c.py", "env/x.py", "node_modules/d.py", "e.txt"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("")
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "pyvenv.cfg").write_text("")
    (tmp_path / "own" / "f.py").write_text("")
    found = sources([str(tmp_path), str(tmp_path / "e.txt")])
    assert [Path(one).name for one in found] == ["a.py", "e.txt", "b.py"]
    many = tmp_path / "many"
    many.mkdir()
    for number in range(600):
        (many / f"{number}.py").touch()
    assert len(sources([str(many)])) == 500


def test_the_wire_is_bounded_and_timed() -> None:
    changes: list[None] = []
    wire = WireLog(lambda: changes.append(None))
    line = "trace 10:00:00.123456 7 {} {} {}\n"
    wire.write(line.format("server#1", "->", '{"id":1,"method":"of/the/page"}'))
    assert not wire.messages
    wire.write(line.format("client#1", "->", '{"jsonrpc":"2.0","id":1,"method":"tools/call"}'))
    wire.write(line.format("client#1", "<-", '{"jsonrpc":"2.0","method":"notifications/x"}'))
    wire.write(line.format("client#1", "<-", '{"jsonrpc":"2.0","id":1,"result":{}}'))
    wire.write(line.format("client#1", "<-", '{"jsonrpc":"2.0","id":2,"error":{}}'))
    kinds = [(one.kind, one.title, one.seconds is not None) for one in wire.messages]
    assert kinds == [
        ("request", "tools/call", False),
        ("notification", "notifications/x", False),
        ("result", "tools/call", True),
        ("error", "", False),
    ]
    for number in range(5000):
        wire.write(line.format("client#1", "->", f'{{"id":{number},"method":"m"}}'))
    assert len(wire.messages) == MAX_MESSAGES
    assert len(changes) == 5004


# -- schemas --------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20, "description": "Who."},
        "story": {"type": "string"},
        "count": {"type": "integer", "minimum": 1, "default": 3},
        "ratio": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "mode": {"enum": ["a", "b"], "default": "a"},
        "on": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "some": {"type": "array", "items": {"enum": ["x", "y"]}},
        "hue": {"$ref": "#/$defs/Hue"},
        "any": {},
        "odd": "not a schema",
    },
    "required": ["name", "hue"],
    "$defs": {"Hue": {"type": "object", "properties": {"angle": {"type": "integer"}}}},
}


def test_fields_of_a_schema() -> None:
    fields = {field.name: field for field in tool_fields(SCHEMA)}
    kinds = {name: field.kind for name, field in fields.items()}
    assert kinds == {
        "name": "line", "story": "text", "count": "number", "ratio": "number", "mode": "choice",
        "on": "choice", "tags": "list", "sizes": "list", "some": "several", "hue": "json",
        "any": "json", "odd": "json",
    }  # fmt: skip
    assert fields["name"].required
    assert fields["name"].about == "Who. (at most 20 characters)"
    assert fields["count"].value == "3"
    assert fields["on"].choices == [("true", "true"), ("false", "false")]
    assert tool_fields("no schema") == tool_fields({"properties": []}) == []


@every(
    ("sent", "expected"),
    [
        ({"name": "Ann", "hue": "{}"}, '{"name":"Ann","hue":{}}'),
        ({"name": "", "hue": "1"}, '{"name":"","hue":1}'),
        ({"name": "12", "hue": "{}", "story": ""}, '{"name":"12","hue":{}}'),
        (
            {"name": "n", "hue": '{"angle": 1.50}', "count": "12345678901234567890123"},
            '{"name":"n","count":12345678901234567890123,"hue":{"angle":1.50}}',
        ),
        ({"name": "n", "hue": "{}", "count": "x"}, '{"name":"n","count":"x","hue":{}}'),
        ({"name": "n", "hue": "{}", "on": "false"}, '{"name":"n","on":false,"hue":{}}'),
        (
            {"name": "n", "hue": "{}", "tags": "a\r\n[b\r\n\r\n@c"},
            '{"name":"n","tags":["a","[b","@c"],"hue":{}}',
        ),
        ({"name": "n", "hue": "{}", "sizes": "1\n2"}, '{"name":"n","sizes":[1,2],"hue":{}}'),
        ({"name": "n", "hue": "{}", "some": ["x", "y"]}, '{"name":"n","some":["x","y"],"hue":{}}'),
        ({"name": "@/etc/passwd", "hue": "-1"}, '{"name":"@/etc/passwd","hue":-1}'),
    ],
)
def test_arguments_of_a_form(sent: dict[str, Any], expected: str) -> None:
    given = {f"a.{key}": [one] if isinstance(one, str) else one for key, one in sent.items()}
    assert json.loads(tool_arguments(SCHEMA, given)) == json.loads(expected)
    for digits in re.findall(r"[0-9.]{4,}", expected):
        assert digits.encode() in tool_arguments(SCHEMA, given)


@every("text", ["", "{", "@/etc/passwd", "-", "NaN", '{"a": Infinity}', "[" * 100_000])
def test_json_of_a_form_is_json(text: str) -> None:
    with pytest.raises(FormError):
        tool_arguments(SCHEMA, {"a.name": ["n"], "a.hue": [text]})


def test_a_question_of_every_kind_of_field() -> None:
    schema = {
        "properties": {
            "name": {"type": "string", "minLength": 2},
            "mail": {"type": "string", "format": "email"},
            "age": {"type": "integer", "minimum": 0},
            "ok": {"type": "boolean", "default": True},
            "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}]},
            "many": {"type": "array", "items": {"enum": ["x", "y"]}},
        },
        "required": ["name"],
    }
    fields = {field.name: field for field in question_fields(schema)}
    assert {name: field.kind for name, field in fields.items()} == {
        "name": "text", "mail": "line", "age": "number", "ok": "choice", "size": "choice",
        "many": "several",
    }  # fmt: skip
    assert fields["ok"].value == "true"
    assert fields["size"].choices == [("s", "Small")]
    sent = {
        "a.name": ["Ann"], "a.mail": [""], "a.age": ["30"], "a.ok": ["false"], "a.size": ["s"],
        "a.many": ["x", "y"], "a.other": ["1"],
    }  # fmt: skip
    assert question_content(schema, sent) == {
        "name": "Ann", "age": 30, "ok": False, "size": "s", "many": ["x", "y"]
    }  # fmt: skip
    for name, text in (("age", "many"), ("size", "t"), ("ok", "perhaps")):
        with pytest.raises(FormError, match=name):
            question_content(schema, {f"a.{name}": [text]})


async def test_choices_of_python_types() -> None:
    server = Server("s")

    @server.tool
    async def buy(size: Literal["s", "l"] | None = None, on: bool | None = None) -> None: ...

    async with Client(server) as client:
        (tool,) = await client.list_tools()
    assert [field.kind for field in tool_fields(tool.input_schema)] == ["choice", "choice"]


def test_a_tangled_schema_is_not_described() -> None:
    """Its parts are more than anybody can count: each stands for ten, which stand for ten."""
    several = [{"$ref": "#/properties/a"}] * 10
    schema = {"properties": {"a": {"anyOf": several, "items": {"$ref": "#"}}}}
    assert is_tangled(schema)
    several = [{"$ref": "x/a"}] * 10  # which is described as the definition of that name
    named = {"$defs": {"a": {"anyOf": several}}, "properties": {"a": {"$ref": "#/x/a"}}, "x": {}}
    assert is_tangled({**named, "x": {"a": {"type": "string"}}})
    assert is_tangled({**named, "properties": {"a": {"$ref": "a"}}})
    chain = {str(n): {"items": {"$ref": f"#/$defs/{n + 1}"}} for n in range(30)}
    assert not is_tangled({"$defs": chain, "properties": {"a": {"$ref": "#/$defs/0"}}})
    assert not is_tangled(SCHEMA)
    assert not is_tangled(None)
    assert not is_tangled({"properties": {"a": {"$ref": "#"}}})
