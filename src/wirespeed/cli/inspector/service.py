"""The HTTP of the inspector: the page, and the forms that a person sends from it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

import msgspec

from wirespeed.cli.failures import Failure, printable
from wirespeed.cli.features.calls import reference
from wirespeed.cli.features.lists import Features
from wirespeed.cli.inspector.access import FIELDS, EntryRoute, PageAccess, PageRoute, query_of
from wirespeed.cli.inspector.activity import MAX_RUNNING, Activity
from wirespeed.cli.inspector.inspected import InspectedServer
from wirespeed.cli.inspector.page import POLICY, PageView, link, page, refusal, selected
from wirespeed.cli.inspector.questions import Questions
from wirespeed.cli.inspector.schema_form import (
    PREFIX,
    FormError,
    Sent,
    is_tangled,
    json_arguments,
    prompt_fields,
    strings,
    template_fields,
    tool_arguments,
)
from wirespeed.cli.inspector.wire_log import WireLog
from wirespeed.errors import WirespeedError
from wirespeed.limits import Limits
from wirespeed.transport.http.routes import HttpResponse

if TYPE_CHECKING:
    from wirespeed import Client
    from wirespeed.client.requests.send import OnProgress
    from wirespeed.transport.http.exchange import HttpTarget
    from wirespeed.transport.http.options import HttpOptions, RouteHandler
    from wirespeed.transport.options import HttpRequest
    from wirespeed.transport.taskpool import TaskPool

MAX_FORM = 4 << 20  # bytes
MAX_VALUES = 1000  # of a form
PATIENCE = 20.0  # seconds that a browser waits for a change
MOMENT = 0.1  # seconds in which several changes are one
_HTML = "text/html; charset=utf-8"
_MEDIA_POLICY = "default-src 'none'; sandbox; frame-ancestors 'none'"


class PageVersion:
    """The number of changes of the page. Browsers wait for the next one."""

    def __init__(self) -> None:
        self.number = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def touch(self) -> None:
        """Count a change."""
        self.number += 1
        for one in self._waiting:
            if not one.done():
                one.set_result(None)

    async def after(self, number: int) -> None:
        """Wait for a version other than this one, at most `PATIENCE`."""
        if number != self.number:
            return
        change = asyncio.get_running_loop().create_future()
        self._waiting.add(change)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PATIENCE):
                    await change
                    await asyncio.sleep(MOMENT)
        finally:
            self._waiting.discard(change)


class InspectorService:
    """A `wirespeed.transport.service.Service` without clients of a protocol: it answers HTTP.

    Args:
        access: Decides which requests are let in.
        name: The target, as it was given to the command.
        reloads: Whether the server is started again when its file is saved.
        log_level: The level of log messages that a server with logging is asked for.
        make: Makes a client that is not open yet, with the handlers of `questions` and the
            callbacks of `server`.
    """

    name = "inspector"
    subprotocol = None
    auth_headers = ()
    refusal_status = 403
    limits = Limits(max_message=MAX_FORM)
    shutdown_grace = 1.0

    def __init__(
        self,
        access: PageAccess,
        name: str,
        *,
        reloads: bool,
        log_level: str,
        make: Callable[[InspectorService], Client],
    ) -> None:
        self.access = access
        self._name = name
        self._reloads = reloads
        self.version = PageVersion()
        self.questions = Questions(self.version.touch)
        self.wire = WireLog(self.version.touch)
        self.activity = Activity(self.version.touch)
        self.server = InspectedServer(lambda: make(self), self.version.touch, log_level)
        self._restarting: asyncio.Future[bool] | None = None

    async def hold(self) -> None:
        """Do nothing: `run` has started the server."""

    async def release(self, held: None) -> None:
        """Cancel the uses that run, and end the server."""
        if self._restarting is not None:
            self._restarting.cancel()
            await asyncio.wait((self._restarting,))
        await self.activity.close()
        await self.server.close()

    # -- paths -----------------------------------------------------------------------------------

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> HttpTarget:
        """Return the target of the URL with the key."""
        return EntryRoute({"GET": self.access.enter}, loop)

    def well_known(self, path: str) -> Mapping[str, HttpTarget]:
        """Return the page, and the paths that its forms are sent to."""
        base = self.access.base
        return {
            base: self._route("GET", self._page),
            f"{base}media": self._route("GET", self._media),
            f"{base}use": self._route("POST", self._form(self._use)),
            f"{base}answer": self._route("POST", self._form(self._answer)),
            f"{base}cancel": self._route("POST", self._form(self._cancel)),
            f"{base}restart": self._route("POST", self._form(self._restart)),
            f"{base}complete": self._route("POST", self._complete),
        }

    def _route(self, method: str, handler: RouteHandler) -> PageRoute:
        route = PageRoute({method: handler}, asyncio.get_running_loop())
        route.access = self.access
        return route

    # -- the page --------------------------------------------------------------------------------

    async def _page(self, request: HttpRequest) -> HttpResponse:
        query = query_of(request)
        after = _one(query, "after")
        if after.isdecimal():
            await self.version.after(int(after[:18]))
        kind, name = _one(query, "kind"), _one(query, "name")
        item = selected(self.server.features, kind, name, self._completes)
        view = PageView(
            self._name, self._reloads, self.version.number, self.server, self.activity,
            self.questions, self.wire, item, kind,
        )  # fmt: skip
        return HttpResponse(200, page(view), {**FIELDS, "Content-Security-Policy": POLICY}, _HTML)

    @property
    def _completes(self) -> bool:
        """Whether the server suggests values of arguments."""
        client = self.server.client
        return client is not None and "completions" in client.server_capabilities

    async def _media(self, request: HttpRequest) -> HttpResponse:
        """Return an image, a sound or other bytes of a result. A type that a browser might run is
        sent as a download."""
        query = query_of(request)
        use = self.activity.find(_number(query, "use"))
        number = _number(query, "part")
        part = use.parts[number] if use is not None and 0 <= number < len(use.parts) else None
        fields = {**FIELDS, "Content-Security-Policy": _MEDIA_POLICY}
        if part is None or part.data is None:
            return HttpResponse(404, "it is not kept any more\n", fields)
        if part.kind not in ("image", "audio"):
            fields["Content-Disposition"] = "attachment"
            return HttpResponse(200, part.data, fields, "application/octet-stream")
        return HttpResponse(200, part.data, fields, part.media_type)

    # -- forms -----------------------------------------------------------------------------------

    def _form(self, act: Callable[[Sent], str]) -> RouteHandler:
        """Return the handler of a form. ``act``: Carries out the form, and returns the query and
        fragment of the page that is shown next."""

        async def answered(request: HttpRequest) -> HttpResponse:
            scripted = "application/json" in request.headers.get("accept", "")
            try:
                place = act(_sent(request))
            except (FormError, Failure) as exc:
                text = printable(str(exc))
                if scripted:
                    body = msgspec.json.encode({"error": text})
                    return HttpResponse(422, body, FIELDS, "application/json")
                fields = {**FIELDS, "Content-Security-Policy": "default-src 'none'"}
                return HttpResponse(422, refusal(text), fields, _HTML)
            if scripted:
                return HttpResponse(200, b"{}", FIELDS, "application/json")
            return HttpResponse(303, b"", {**FIELDS, "Location": f"{self.access.base}{place}"})

        return answered

    def _use(self, sent: Sent) -> str:
        """Call a tool, read a resource, or get a prompt."""
        kind, name = _one(sent, "kind"), _one(sent, "name")
        if self.activity.n_running >= MAX_RUNNING:
            raise FormError(f"{MAX_RUNNING} uses run already: wait, or cancel one")
        arguments, send = _request(self.server.features, kind, name, sent)
        use = self.activity.begin(
            kind,
            name,
            arguments,
            lambda on_progress: self.server.use(lambda client: send(client, on_progress)),
        )
        return f"{link(kind, name)}#use-{use.number}"

    def _answer(self, sent: Sent) -> str:
        """Answer a question of the server."""
        self.questions.answer(_number(sent, "number"), _one(sent, "choice"), sent)
        return ""

    def _cancel(self, sent: Sent) -> str:
        """Cancel a use that runs."""
        if not self.activity.cancel(_number(sent, "number")):
            raise FormError("this does not run any more")
        return ""

    def _restart(self, sent: Sent) -> str:
        """Start the server again. The page shows the progress."""
        if self.server.starting or (self._restarting and not self._restarting.done()):
            raise FormError("the server is starting")
        self._restarting = asyncio.ensure_future(self.server.start())
        return ""

    async def _complete(self, request: HttpRequest) -> HttpResponse:
        """Return the suggestions of the server for an argument."""
        values: list[str] = []
        with contextlib.suppress(FormError, WirespeedError):
            sent = _sent(request)
            argument, name = _one(sent, "argument"), _one(sent, "name")
            typed = {
                key.removeprefix(PREFIX): _one(sent, key) for key in sent if key.startswith(PREFIX)
            }
            value = typed.pop(argument, "")
            context = {key: text for key, text in typed.items() if text}
            ref = reference(name) if _one(sent, "kind") == "template" else _prompt(name)
            found = await self.server.use(
                lambda client: client.complete(ref, argument, value, context=context or None)
            )
            values = found.values[:100]
        return HttpResponse(
            200, msgspec.json.encode({"values": values}), FIELDS, "application/json"
        )


def _prompt(name: str) -> Any:
    from wirespeed.types import PromptRef

    return PromptRef(name)


def _request(
    features: Features, kind: str, name: str, sent: Sent
) -> tuple[bytes, Callable[[Client, OnProgress], Any]]:
    """Return the arguments of a form as JSON, and a function that sends the request. Requests have
    no time limit: a request may wait for an answer of the person. FormError: the form cannot be
    sent."""
    if kind == "tool":
        tool = next((one for one in features.tools or () if one.name == name), None)
        if tool is None:
            raise FormError(f"the server has no tool {name}")
        if "json" in sent:
            arguments = json_arguments(_one(sent, "json"))
        elif is_tangled(tool.input_schema):
            raise FormError("the schema is too large for a form: write the arguments as JSON")
        else:
            arguments = tool_arguments(tool.input_schema, sent)
        return arguments, lambda client, on_progress: client.call_tool(
            name, arguments, on_progress=on_progress, timeout=None
        )
    if kind == "resource":
        return b"", lambda client, on_progress: client.read_resource(
            name, on_progress=on_progress, timeout=None
        )
    if kind == "template":
        values = strings(template_fields(name, False), sent)
        return msgspec.json.encode(values), lambda client, on_progress: client.read_template(
            name, values, on_progress=on_progress, timeout=None
        )
    prompt = next((one for one in features.prompts or () if one.name == name), None)
    if kind != "prompt" or prompt is None:
        raise FormError(f"the server has no {kind or 'prompt'} {name}")
    texts = strings(prompt_fields(prompt, False), sent)
    return msgspec.json.encode(texts), lambda client, on_progress: client.get_prompt(
        name, texts, on_progress=on_progress, timeout=None
    )


def _sent(request: HttpRequest) -> Sent:
    """Read a form. FormError: the body is not a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise FormError("this is not a form")
    try:
        return parse_qs(
            request.body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(request.body),
            errors="strict",
            max_num_fields=MAX_VALUES,
        )
    except ValueError:
        raise FormError("the form cannot be read") from None


def _one(sent: Sent, name: str) -> str:
    return next(iter(sent.get(name, ())), "")


def _number(sent: Sent, name: str) -> int:
    text = _one(sent, name)
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else -1
