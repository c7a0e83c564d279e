"""The LiteMCP server that people write: one tool, and where it is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

import msgspec

from wirespeed._core.framing.blankline import BlankLineFramer
from wirespeed.limits import Limits
from wirespeed.litemcp.connection import LiteConnection
from wirespeed.litemcp.messages import VERSION, Parameter, Tool, VersionTuple
from wirespeed.litemcp.tool import LiteTool, raw_tool, typed_tool

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.transport.link import Link
    from wirespeed.transport.taskpool import TaskPool

F = TypeVar("F", bound=Callable[..., Any])


class LiteServer:
    """A LiteMCP server: one tool at one endpoint.

    Several tools are several servers: over WebSocket on several paths (`serve`), over stdio as
    several processes.

    Args:
        name: What the tool is called; by default as its function.
        version: Of LiteMCP, as it announces it; calls of another major version are refused.
        description, example: Of the tool; by default what its docstring says.
        strict: Refuse arguments that are not strings, and calls whose ``data`` has no version.
            Otherwise such arguments are taken as their JSON.
        limits: What one connection may take: ``max_message``, ``max_depth``, ``max_in_flight``,
            ``output_high`` and ``output_low``.
        shutdown_grace: Seconds that calls in flight get when the client goes or the process is told
            to end.
        refusal_status: Over WebSocket, what a client with no token or a wrong one gets: 403, as the
            protocol says, or 401.
    """

    subprotocol: str | None = None
    auth_headers: tuple[str, ...] = ("authorization", "authentication")

    def __init__(
        self,
        name: str | None = None,
        *,
        version: Sequence[int] = VERSION,
        description: str | None = None,
        example: str | None = None,
        strict: bool = True,
        limits: Limits | None = None,
        shutdown_grace: float = 5.0,
        refusal_status: Literal[401, 403] = 403,
    ) -> None:
        if name is not None and (not isinstance(name, str) or not name):
            raise ValueError(f"name must be a non-empty string, not {name!r}")
        numbers = tuple(version)
        if len(numbers) != 3 or any(type(n) is not int or n < 0 for n in numbers):
            raise ValueError(f"version must be (major, minor, patch), not {version!r}")
        if refusal_status not in (401, 403):
            raise ValueError("refusal_status must be 401 or 403")
        self.version = VersionTuple(*numbers)
        self.strict = strict
        self.limits = Limits() if limits is None else limits
        self.shutdown_grace = shutdown_grace
        self.refusal_status: int = refusal_status
        self.info_json = b""
        self._name = name
        self._description = description
        self._example = example
        self._tool: LiteTool | None = None
        self._info: Tool | None = None
        self._connections: set[LiteConnection] = set()

    def __repr__(self) -> str:
        return f"<LiteServer {self.name!r}>"

    @property
    def name(self) -> str:
        """What the tool is called."""
        return self._name or (self._tool.name if self._tool is not None else "litemcp")

    # -- the tool --------------------------------------------------------------------------------

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self, function: None = None, /, *, inline: bool = False, timeout: float | None = None
    ) -> Callable[[F], F]: ...

    def tool(
        self, function: F | None = None, /, *, inline: bool = False, timeout: float | None = None
    ) -> F | Callable[[F], F]:
        """Make a function the tool; as ``@server.tool`` or ``@server.tool(timeout=…)``.

        Its signature gives the parameters: names, types, defaults; `msgspec.Meta` or the docstring
        give descriptions and examples. What it returns is described in
        `wirespeed.litemcp.contents`; what it raises is told the caller with ``"error": true``.

        Args:
            function: A coroutine function, or a plain one, which runs in a worker thread.
            inline: Run a plain function on the event loop's thread. Nothing else happens
                meanwhile: for functions of microseconds.
            timeout: Seconds after which a call is cancelled and answered with an error.

        Raises:
            SignatureError: The signature cannot be a tool's; the text says why.
            ValueError: The server has its tool already.
        """

        def decorate(function: F) -> F:
            self._check_free()
            made = typed_tool(
                function,
                name=self._name,
                description=self._description,
                example=self._example,
                inline=inline,
                timeout=timeout,
            )
            self._use(made)
            return function

        return decorate if function is None else decorate(function)

    def tool_raw(
        self,
        parameters: Sequence[Parameter],
        handler: Callable[[list[str]], Any],
        *,
        timeout: float | None = None,
    ) -> None:
        """Take a coroutine function that gets the strings as they came, at most one for each
        parameter; its result is treated like that of any tool."""
        self._check_free()
        made = raw_tool(
            self.name,
            parameters,
            handler,
            description=self._description,
            example=self._example,
            timeout=timeout,
        )
        self._use(made)

    def _check_free(self) -> None:
        if self._tool is not None:
            raise ValueError(
                f"this server has its tool {self._tool.name!r} already: LiteMCP has one an "
                "endpoint, so make another LiteServer"
            )

    def _use(self, tool: LiteTool) -> None:
        info = Tool(tool.name, tool.description, tool.example, tool.parameters, self.version)
        shown = {
            "version": self.version,
            "name": tool.name,
            "description": tool.description,
            "example": tool.example,
            "parameters": tool.parameters,
        }
        try:
            self.info_json = msgspec.json.encode(
                {key: value for key, value in shown.items() if value is not None}
            )
        except UnicodeEncodeError as exc:
            raise ValueError(f"tool {tool.name!r}: its texts hold a lone surrogate") from exc
        self._tool, self._info = tool, info

    @property
    def info(self) -> Tool:
        """What clients are told of the tool. ValueError: it has none yet."""
        if self._info is None:
            raise ValueError("this server has no tool: decorate a function with @server.tool")
        return self._info

    # -- running ---------------------------------------------------------------------------------

    def stream_framer(self) -> BlankLineFramer:
        """How messages lie in a byte stream: three newlines end one."""
        return BlankLineFramer(self.limits.max_message)

    def connect(
        self,
        make_link: Callable[[LiteConnection], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> LiteConnection:
        """Serve one more connection over the link that ``make_link`` gives it (for transports).
        ``framer``: how messages lie in the stream; ended by three newlines by default."""
        if self._tool is None:
            raise ValueError("this server has no tool: decorate a function with @server.tool")
        if framer is None:
            framer = self.stream_framer()
        connection = LiteConnection(self, self._tool, loop, pool, framer)
        make_link(connection)
        self._connections.add(connection)
        return connection

    def forget(self, connection: LiteConnection) -> None:
        """A connection is gone."""
        self._connections.discard(connection)

    async def serve(self, url: str | None = None, **options: Any) -> None:
        """Serve until the client goes away or the process is told to end, inside a running loop.

        ``None``: stdio. Otherwise as `serve`, where the tool is at the URL's own path.
        """
        _ = self.info  # one that has no tool is said now
        if url is not None:
            await serve(url, self, **options)  # the function below
            return
        if options:
            raise TypeError(f"stdio takes no options, but got {', '.join(options)}")
        from wirespeed.transport.stdio import serve_stdio

        await serve_stdio(self)

    def run(self, url: str | None = None, **options: Any) -> None:
        """As `serve`, in an event loop of its own: uvloop where it is installed. ``workers``:
        processes that share the port of a URL."""
        _ = self.info
        if url is not None:
            run(url, self, **options)  # the function below
            return
        from wirespeed.transport.loop import run as run_loop

        run_loop(self.serve(None, **options))


async def serve(url: str, services: LiteServer | Mapping[str, LiteServer], **options: Any) -> None:
    """Serve one tool, or for WebSocket several by path, inside a running loop, until SIGTERM or
    SIGINT comes or this is cancelled.

    >>> await serve("ws://127.0.0.1:8765", {"/add": adder, "/weather": weather})

    Args:
        url: ``ws://host:port/path``, ``wss://…``, ``tcp://host:port`` or ``unix:/path``. Over
            WebSocket a text message is a message of LiteMCP; over the others three newlines end
            one, as over stdio.
        services: A server, or several by path (then the URL has none).
        options: As of `wirespeed.serve`: a `ListenOptions` or its fields, and ``on_listening``.
            With ``token``, clients bring it as ``Authorization: Bearer …`` or ``Authentication:
            Bearer …``; where both are there, they must be equal.

    Raises:
        ValueError: The URL or an option is wrong, or a server has no tool.
        TransportError: The address cannot be listened at.
    """
    from wirespeed.transport.net import serve as listen

    _check_tools(services)
    await listen.serve(url, services, **options)


def run(url: str, services: LiteServer | Mapping[str, LiteServer], **options: Any) -> None:
    """As `serve`, in an event loop of its own: uvloop where it is installed. ``workers``: processes
    that share the port."""
    from wirespeed.transport.net import serve as listen

    _check_tools(services)
    listen.run(url, services, **options)


def _check_tools(services: LiteServer | Mapping[str, LiteServer]) -> None:
    for server in services.values() if isinstance(services, Mapping) else (services,):
        if isinstance(server, LiteServer):  # what else there is, is looked at where it is served
            _ = server.info
