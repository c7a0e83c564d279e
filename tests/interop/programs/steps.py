"""What every client does in a session, and what it reports: the steps, written once.

The programs in Python and `ours.py` bring a `Peer`: how one SDK does each thing. All values are as
they are on the wire.

A session without features goes through `CALLS`, and `checks.py` reads its report; one with features
goes through these, and `features.py` says what each is to see; one with a script goes through its
rows: a key of the report, a step of `Script` or of the peer, and its arguments. A report is a
dictionary:

    version, server_info, instructions, capabilities    what the handshake gave
    connect_error                                       instead of all else, when it failed
    the name of a step                                  what it saw; {"code": …} for an error of the
                                                        protocol, {"absent": why} for what the SDK
                                                        does not have, {"failed": why} for the rest
    closing                                             all steps were gone through
    stray                                               errors that belong to no call

A step that hangs is ended after 20 s and has failed.
"""

import asyncio
import contextlib
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

Json = dict[str, Any]
Note = Callable[[float, float | None, str | None], Any]

UNICODE = 'Grüße \u2028\u2029\u0085 \r\n\t"\\/ 日本語 🎉 \0\x1f\x7f'
BIG = "x日🎉\n" * (1 << 17)
STEP_SECONDS = 20.0
ANSWER_SECONDS = 3.0
NOTICED_SECONDS = 2.0
HELLO = "text://hello"
CALLS = [
    *("tools", "add", "person", "blocks", "fail", "unknown", "bad_arguments", "whoami", "unicode"),
    *("big", "many", "progress", "logging", "cancel", "list_changed", "ping"),
]


def text_of(result: Json) -> str:
    return "\n".join(b["text"] for b in result["content"] if b["type"] == "text")


def dump(model: Any) -> Any:
    """A model of pydantic as it is on the wire."""
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


def noting(note: Note | None) -> Any:
    """A function of progress as a coroutine."""

    async def noted(progress: float, total: float | None, message: str | None) -> None:
        assert note is not None
        note(progress, total, message)

    return None if note is None else noted


class Refused(Exception):
    """The tool could not ask what it wanted to."""


class Peer:
    """One connection of an SDK's client.

    A program adds `errors` (what the SDK raises for an error of the protocol), `connected` (a
    context), `about` (what the handshake gave), `call`, `tools` and `ping`; for features also
    `first_page`, `prompts`, `resources`, `templates`, `read`, `get_prompt`, `complete`, `updated`;
    for scripts about tasks `task` (the text of its result) and `endless` (what becomes of a task
    that is cancelled).
    """

    errors: type[Exception]
    connect_errors: type[Exception] | None = None  # None: the same
    calls = CALLS
    modern = False
    big = BIG

    def __init__(self, job: Json) -> None:
        self.job = job
        self.report: Json = {}
        self.logs: list[Any] = []
        self.asked: Json = {}
        self.told: dict[str, asyncio.Event] = {}
        self.is_askable = "features" in job or "tasks" in job

    def event(self, name: str) -> asyncio.Event:
        return self.told.setdefault(name, asyncio.Event())

    def log(self, entry: Any) -> None:
        self.logs.append([entry.level, entry.data, entry.logger])

    def stray(self, error: Exception) -> None:
        self.report.setdefault("stray", []).append(repr(error))

    def elicited(self, params: Json) -> Json:
        """The answer to an elicitation."""
        self.asked["elicitation"] = params
        if params.get("mode") == "url":
            return {"action": "accept"}
        return {"action": "accept", "content": {"name": "Ada", "age": 36}}

    def sampled(self, params: Json) -> Json:
        """The answer to a question for the model."""
        self.asked["sampling"] = params
        answer = {"role": "assistant", "model": "m-1"}
        if params.get("tools"):
            use = {"type": "tool_use", "id": "u-1", "name": "look_up", "input": {"q": 1}}
            return answer | {"stopReason": "toolUse", "content": [use]}
        return answer | {"stopReason": "endTurn", "content": {"type": "text", "text": "Paris"}}

    def absent(self) -> dict[str, str]:
        """The features that the client does not have."""
        return {}

    def refusal(self, error: Any) -> Json:
        return {"code": error.code, "message": error.message}

    async def set_level(self, level: str) -> None:
        """Say what is to be logged, unless the connection was told."""

    async def read_template(self) -> Any:
        return await self.read("item://7")

    async def cancelled(self, arguments: Json) -> bool:
        """Call a tool that waits, and give it up at its first progress; whether it was given up."""
        call = asyncio.ensure_future(
            self.call("wait", arguments, note=lambda *values: call.cancel())
        )
        await asyncio.wait([call])
        return call.cancelled()

    async def changed(self, kind: str, arguments: Json) -> None:
        """Have a list of the server grow, and wait until the server says so."""
        told = self.event(f"notifications/{kind}/list_changed")
        told.clear()
        await self.call("grow", arguments)
        await told.wait()


class Steps:
    """The steps that both kinds of sessions have."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def call(self, name: str, /, **arguments: Any) -> Json:
        result: Json = await self.peer.call(name, arguments)
        return result

    async def said(self, name: str, /, **arguments: Any) -> Any:
        result = await self.call(name, **arguments)
        if result.get("isError"):
            raise Refused(text_of(result))
        return json.loads(text_of(result))

    async def outcome(self, name: str, /, **arguments: Any) -> Any:
        try:
            result = await self.call(name, **arguments)
        except self.peer.errors as exc:
            return self.peer.refusal(exc)
        return {"is_error": result.get("isError", False), "text": text_of(result)}

    async def logging(self) -> Any:
        self.peer.logs.clear()
        await self.peer.set_level("warning")
        await self.call("chatter")
        return self.peer.logs

    async def counted(self, n: int) -> list[Any]:
        seen: list[Any] = []
        await self.peer.call("count", {"n": n}, note=lambda *values: seen.append(list(values)))
        return seen

    async def given_up(self, tag: str, /, **arguments: Any) -> Any:
        if not await self.peer.cancelled(arguments):
            return "answered"
        while tag not in (noticed := await self.said("noticed")):
            await asyncio.sleep(0.01)
        return noticed

    async def ping(self) -> Any:
        if self.peer.modern:
            return None
        await self.peer.ping()
        return "pong"


class Calls(Steps):
    """Tools and their calls; the names are in `CALLS`."""

    async def tools(self) -> Any:
        return await self.peer.tools()

    async def add(self) -> Any:
        result = await self.call("add", a=2, b=3)
        return {"structured": result.get("structuredContent"), "text": text_of(result)}

    async def person(self) -> Any:
        result = await self.call("person", name="Ada", colour="green", tags=["a", "b"])
        text = json.loads(text_of(result))
        return {"structured": result.get("structuredContent"), "text": text}

    async def blocks(self) -> Any:
        return (await self.call("blocks"))["content"]

    async def fail(self) -> Any:
        return await self.outcome("fail")

    async def unknown(self) -> Any:
        return await self.outcome("no such tool")

    async def bad_arguments(self) -> Any:
        return await self.outcome("add", a="two", b=3)

    async def whoami(self) -> Any:
        return await self.said("whoami")

    async def echoed(self, text: str, **more: Any) -> bool:
        return text_of(await self.call("echo", text=text, **more)) == text

    async def unicode(self) -> Any:
        return await self.echoed(UNICODE)

    async def big(self) -> Any:
        return await self.echoed(self.peer.big)

    async def many(self) -> Any:
        return sum(
            await asyncio.gather(*(self.echoed(f"text {i}", ms=i * 7 % 20) for i in range(100)))
        )

    async def progress(self) -> Any:
        three, five = await asyncio.gather(self.counted(3), self.counted(5))
        return {"3": three, "5": five}

    async def cancel(self) -> Any:
        return await self.given_up("mine", tag="mine")

    async def list_changed(self) -> Any:
        await self.peer.changed("tools", {"name": "late"})
        return sorted(tool["name"] for tool in await self.peer.tools())


class Features(Steps):
    """A step a feature; one that only one SDK has, as `tasks`, is its peer's own."""

    async def named(self, kind: str, name: str) -> Json:
        return next(one for one in await getattr(self.peer, kind)() if one["name"] == name)

    async def adder(self) -> Json:
        return await self.named("tools", "add")

    async def instructions(self) -> Any:
        return self.peer.about()["instructions"]

    async def tools(self) -> Any:
        tool = await self.adder()
        return [tool["name"], tool["description"], sorted(tool["inputSchema"]["properties"])]

    async def structured(self) -> Any:
        schema = (await self.adder()).get("outputSchema")
        kind = None if schema is None else schema["properties"]["result"]["type"]
        result = await self.call("add", a=2, b=3)
        return [kind, result.get("structuredContent"), text_of(result)]

    async def tool_error(self) -> Any:
        result = await self.call("fail")
        return [result["isError"], "boom" in text_of(result)]

    async def titles(self) -> Any:
        things = (("tools", "add"), ("prompts", "greet"), ("resources", "hello"))
        return [(await self.named(*thing)).get("title") for thing in things]

    async def annotations(self) -> Any:
        return (await self.adder()).get("annotations")

    async def icons(self) -> Any:
        return (await self.adder()).get("icons")

    async def meta_of_things(self) -> Any:
        return ((await self.adder()).get("_meta") or {}).get("example.com/kind")

    async def meta_of_requests(self) -> Any:
        result = await self.peer.call("meta", {}, meta={"example.com/trace": "t-1"})
        return [text_of(result), (result.get("_meta") or {}).get("example.com/answer")]

    async def resources(self) -> Any:
        found = [one for one in await self.peer.resources() if one["name"] != "late"]
        return sorted([one["uri"], one["name"], one["mimeType"]] for one in found)

    async def read_text(self) -> Any:
        return await self.peer.read(HELLO)

    async def read_blob(self) -> Any:
        return await self.peer.read("blob://bytes")

    async def templates(self) -> Any:
        found = await self.peer.templates()
        return [[one["uriTemplate"], one["name"], one["mimeType"]] for one in found]

    async def read_template(self) -> Any:
        return await self.peer.read_template()

    async def missing_resource(self) -> Any:
        try:
            await self.peer.read("text://missing")
        except self.peer.errors as exc:
            return self.peer.refusal(exc)["code"]
        return "found"

    async def prompts(self) -> Any:
        prompt = await self.named("prompts", "greet")
        arguments = [[one["name"], one.get("required", False)] for one in prompt["arguments"]]
        return [prompt["name"], prompt["description"], arguments]

    async def get_prompt(self) -> Any:
        return await self.peer.get_prompt("greet", {"name": "Ada", "tone": "cold"})

    async def complete_prompt(self) -> Any:
        return await self.peer.complete("greet", "name", "A", None)

    async def complete_template(self) -> Any:
        return await self.peer.complete("item://{id}", "id", "1", None)

    async def complete_context(self) -> Any:
        return await self.peer.complete("greet", "tone", "c", {"name": "Ada"})

    async def progress(self) -> Any:
        return await self.counted(3)

    async def cancellation(self) -> Any:
        return await self.given_up("wait")

    async def pagination(self) -> Any:
        cursor, first = await self.peer.first_page()
        names = [tool["name"] for tool in await self.peer.tools()]
        return [cursor is not None, len(names) > len(first), "add" in names]

    async def grown(self, kind: str) -> Any:
        await self.peer.changed(kind, {"kind": kind})
        return "late" in [one["name"] for one in await getattr(self.peer, kind)()]

    async def tools_changed(self) -> Any:
        return await self.grown("tools")

    async def prompts_changed(self) -> Any:
        return await self.grown("prompts")

    async def resources_changed(self) -> Any:
        return await self.grown("resources")

    async def resource_updated(self) -> Any:
        return await self.peer.updated(HELLO)

    async def elicitation_form(self) -> Any:
        answer = await self.said("ask_form")
        asked = self.peer.asked["elicitation"]
        return [asked["message"], sorted(asked["requestedSchema"]["properties"]), answer]

    async def elicitation_url(self) -> Any:
        answer = await self.said("ask_url")
        asked = self.peer.asked["elicitation"]
        return [asked["message"], asked.get("url"), answer]

    async def sampling(self) -> Any:
        answer = await self.said("ask_sample")
        asked = self.peer.asked["sampling"]
        return [asked["messages"][0]["content"]["text"], asked["maxTokens"], answer]

    async def sampling_tools(self) -> Any:
        answer = await self.said("ask_sample_tools")
        return [[tool["name"] for tool in self.peer.asked["sampling"]["tools"]], answer]

    async def roots(self) -> Any:
        return await self.said("ask_roots")


class Script(Features):
    """Steps that tests put together."""

    async def text(self, name: str, arguments: Json) -> Any:
        return text_of(await self.peer.call(name, arguments))

    async def noted(self, name: str, arguments: Json) -> Any:
        seen: list[Any] = []
        await self.peer.call(name, arguments, note=lambda *values: seen.append(list(values[:2])))
        return seen

    async def names(self, kind: str) -> Any:
        return [one["name"] for one in await getattr(self.peer, kind)()]

    async def support(self) -> Any:
        found = [tool for tool in await self.peer.tools() if "execution" in tool]
        return {tool["name"]: tool["execution"]["taskSupport"] for tool in found}

    async def first_read(self) -> Any:
        return len(await self.peer.read((await self.peer.resources())[0]["uri"]))

    async def prompt(self, name: str) -> Any:
        return await self.peer.get_prompt(name, {})

    async def change(self) -> Any:
        await self.peer.call("change", {})
        await self.peer.event("notifications/tools/list_changed").wait()

    async def logs(self) -> Any:
        return [entry[1] for entry in self.peer.logs]

    async def ended(self, tool: str) -> Any:
        """Call a tool that ends its host, which may have no answer, and wait until another host has
        the session, or until the balancer has noticed."""
        host = await self.text("who", {})
        with contextlib.suppress(Exception):
            async with asyncio.timeout(ANSWER_SECONDS):
                await self.call(tool)
        if self.peer.modern:
            await asyncio.sleep(NOTICED_SECONDS)
        while not self.peer.modern:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(ANSWER_SECONDS):
                    if await self.text("who", {}) != host:
                        return
            await asyncio.sleep(0.1)


async def hold(peer: Peer) -> Json:
    """Go through the steps of a session; its report."""
    report = peer.report
    features, script = peer.job.get("features"), peer.job.get("script")
    rows = [[name, name] for name in (peer.calls if features is None else features)]
    steps = Calls(peer) if features is None else Features(peer)
    if script is not None:
        rows, steps = script, Script(peer)
    errors = peer.connect_errors or peer.errors
    failure: BaseException
    try:
        async with peer.connected():
            about = peer.about()
            report |= about
            peer.modern = about["version"] > "2026"
            absent = {} if features is None else await steps.said("absent") | peer.absent()
            for key, name, *arguments in rows:
                if name in absent:
                    report[key] = {"absent": absent[name]}
                    continue
                owner = steps if hasattr(steps, name) else peer
                step: Callable[..., Awaitable[Any]] = getattr(owner, name)
                try:
                    async with asyncio.timeout(STEP_SECONDS):
                        report[key] = await step(*arguments)
                except Refused as exc:
                    report[key] = {"refused": str(exc)}
                except peer.errors as exc:
                    report[key] = peer.refusal(exc)
                except Exception:
                    report[key] = {"failed": traceback.format_exc()[-1500:]}
            report["closing"] = True
    except (errors, BaseExceptionGroup) as exc:
        failure = exc
        if isinstance(exc, BaseExceptionGroup) and exc.split(errors)[1] is not None:
            raise
        while isinstance(failure, BaseExceptionGroup):
            failure = failure.exceptions[0]
    else:
        return report
    if features is not None or script is not None:
        raise failure
    report["connect_error"] = f"{type(failure).__name__}: {failure}"
    return report


async def _main(kind: Callable[[Json], Peer]) -> None:
    with open(sys.argv[1]) as file:
        job = json.load(file)
    reports = {}
    for wanted in job["sessions"]:
        peer = kind(wanted)
        try:
            await hold(peer)
        except BaseException:
            peer.report["failed"] = traceback.format_exc()[-9000:]
        reports[wanted["name"]] = peer.report
    with open(job["report"], "w") as file:
        json.dump(reports, file)


def run(kind: Callable[[Json], Peer]) -> None:
    """Hold the sessions of a job, a file that the program is called with, and report them."""
    asyncio.run(_main(kind))
