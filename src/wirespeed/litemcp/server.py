"""The LiteMCP server: one tool, and the functions that serve it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import msgspec

from wirespeed._core.framing.line import BlankLineFramer
from wirespeed._exports import set_public_home
from wirespeed.limits import Limits
from wirespeed.litemcp.connection import LiteConnection
from wirespeed.litemcp.messages import VERSION, Parameter, Tool, VersionTuple
from wirespeed.litemcp.tool import LiteTool, raw_tool, typed_tool
from wirespeed.server.requests.launchers import Threads
from wirespeed.transport.loop import DEFAULT_SIZE

if TYPE_CHECKING:
    from wirespeed._core.framing.base import Framer
    from wirespeed.litemcp.endpoint import LiteEndpoint
    from wirespeed.transport.http.asgi import AsgiApp
    from wirespeed.transport.http.options import HttpOptions
    from wirespeed.transport.link import Link
    from wirespeed.transport.options import AsgiOptions, RunOptions, ServeOptions
    from wirespeed.transport.taskpool import TaskPool

F = TypeVar("F", bound=Callable[..., Any])


class LiteServer:
    """A LiteMCP server: one tool at one endpoint.

    Several tools need several servers: over HTTP and WebSocket on several paths (`serve`), over
    stdio as several processes.

    Args:
        name: The name of the tool; by default the name of its function.
        version: The announced version of LiteMCP. Calls of another major version are refused.
        description, example: Texts about the tool; by default those of its docstring.
        strict: Refuse arguments that are not strings, and calls whose ``data`` has no version.
            Otherwise such arguments are converted to their JSON text.
        mask_errors: Send only the class of an exception that the tool raises, and a reference that
            the line in the log has, too. The text of a `wirespeed.errors.ToolError` always passes.
        limits: The limits of a connection: ``max_message``, ``max_depth``, ``max_in_flight``,
            ``output_high`` and ``output_low``. Over HTTP a connection has one call at a time.
        threads: The most worker threads, which run the tool if it is a plain function. Further
            calls wait.
        shutdown_grace: Seconds that running calls have when the client leaves or the process is
            told to end.
        refusal_status: The HTTP status for a client without a valid token: 403, the protocol's
            status, or 401.
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
        mask_errors: bool = False,
        limits: Limits | None = None,
        threads: int = DEFAULT_SIZE,
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
        self.mask_errors = mask_errors
        self.limits = Limits() if limits is None else limits
        self.shutdown_grace = shutdown_grace
        self.connections: set[LiteConnection] = set()  # those that are served now
        self.refusal_status: int = refusal_status
        self.info_json = b""
        self._threads = Threads(threads)
        self._name = name
        self._description = description
        self._example = example
        self._tool: LiteTool | None = None
        self._info: Tool | None = None

    def __repr__(self) -> str:
        return f"<LiteServer {self.name!r}>"

    @property
    def name(self) -> str:
        """The name of the tool."""
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
        """Make a function the tool, with ``@server.tool`` or ``@server.tool(timeout=…)``.

        The signature has the names, types and defaults of the parameters. `msgspec.Meta` or the
        docstring has their descriptions and examples. `wirespeed.litemcp.contents` describes the
        conversion of the returned value. An exception is reported to the caller with
        ``"error": true``.

        Args:
            function: A coroutine function, or a plain function, which runs in a worker thread.
            inline: Run a plain function on the event loop's thread. The function blocks the loop,
                so it should be very short.
            timeout: Seconds after which a call is cancelled and answered with an error.

        Raises:
            SignatureError: The signature is not possible for a tool. The text is the reason.
            ValueError: The server has a tool already.
        """

        def decorate(function: F) -> F:
            self._check_free()
            made = typed_tool(
                function,
                self._threads,
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
        """Make a coroutine function the tool. The function receives the strings of a call
        unchanged, at most one for each parameter. Its result is converted like that of any tool."""
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
                f"this server has the tool {self._tool.name!r} already: LiteMCP has one "
                "tool per endpoint, so make another LiteServer"
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
        """The description of the tool for clients. ValueError: the server has no tool yet."""
        self._known_tool()
        assert self._info is not None
        return self._info

    # -- running ---------------------------------------------------------------------------------

    async def hold(self) -> None:
        """Begin (for transports): nothing has to be started."""

    async def release(self, held: None, /) -> None:
        """End (for transports)."""

    def stream_framer(self) -> BlankLineFramer:
        """Return the framing for a byte stream: three newlines end a message."""
        return BlankLineFramer(self.limits.max_message)

    def connect(
        self,
        make_link: Callable[[LiteConnection], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        pool: TaskPool,
        framer: Framer | None = None,
    ) -> LiteConnection:
        """Serve a connection over the link that ``make_link`` makes (for transports). ``framer``:
        the framing of the stream; by default three newlines end a message."""
        if framer is None:
            framer = self.stream_framer()
        connection = LiteConnection(self, self._known_tool(), loop, pool, framer)
        make_link(connection)
        self.connections.add(connection)
        return connection

    def adopt(self, connection: LiteConnection) -> None:
        """Serve a connection of another server, which has taken no messages (for transports)."""
        connection.begin(self, self._known_tool())

    def http_target(
        self, options: HttpOptions, *, loop: asyncio.AbstractEventLoop, pool: TaskPool
    ) -> LiteEndpoint:
        """Return what answers the requests at a path of HTTP (for transports)."""
        from wirespeed.litemcp.endpoint import LiteEndpoint

        return LiteEndpoint(self, self._known_tool(), options, loop=loop, pool=pool)

    def _known_tool(self) -> LiteTool:
        if self._tool is None:
            raise ValueError("this server has no tool: decorate a function with @server.tool")
        return self._tool

    def forget(self, connection: LiteConnection) -> None:
        """Remove a connection that is lost."""
        self.connections.discard(connection)

    async def serve(self, url: str | None = None, **options: Unpack[ServeOptions]) -> None:
        """Serve until the client goes away or the process is told to end, inside a running loop.

        Without ``url``: on stdio. A URL contains the path of the tool. The options are those of
        `wirespeed.litemcp.serve`.
        """
        from wirespeed.transport.options import checked_url

        url = checked_url(url, options, name=self.info.name)
        if url is not None:
            await serve(url, self, **options)  # the function below
            return
        from wirespeed.transport.stdio import serve_stdio

        await serve_stdio(self)

    def asgi(self, path: str = "/", **options: Unpack[AsgiOptions]) -> AsgiApp:
        """Return an ASGI 3 application that serves LiteMCP over HTTP at ``path``, for other HTTP
        servers and for applications that mount it. Options are those of `wirespeed.Server.asgi`."""
        from wirespeed.transport.http.asgi import AsgiApp
        from wirespeed.transport.options import ListenOptions

        _ = self.info  # ValueError: there is no tool
        return AsgiApp(self, path, ListenOptions(**options))

    def run(self, url: str | None = None, **options: Unpack[RunOptions]) -> None:
        """Serve as `serve` does, in a new event loop: uvloop where it is installed. ``workers``:
        the number of processes that share the port of a URL."""
        from wirespeed.transport.options import checked_url

        url = checked_url(url, options, name=self.info.name)
        if url is not None:
            run(url, self, **options)  # the function below
            return
        from wirespeed.transport.loop import run as run_loop

        run_loop(self.serve())


async def serve(
    url: str,
    services: LiteServer | Mapping[str, LiteServer],
    **options: Unpack[ServeOptions],
) -> None:
    """Serve one tool, or several paths with one tool each, inside a running loop, until SIGTERM,
    SIGINT or a cancellation.

    >>> await serve("http://127.0.0.1:8765", {"/add": adder, "/weather": weather})

    Args:
        url: ``http://host:port/path``, ``https://…``, ``ws://…``, ``wss://…``, ``tcp://host:port``
            or ``unix:/path``. Over HTTP, GET returns the tool, and POST calls it. Over WebSocket a
            text message is a message of LiteMCP. Over tcp and unix three newlines end a message, as
            over stdio.
        services: A server, or a mapping of paths to servers (then the URL has no path).
        options: Those of `wirespeed.serve`: a `ListenOptions` or its fields, and ``on_listening``.
            With ``token``, clients send it as ``Authorization: Bearer …`` or ``Authentication:
            Bearer …``. If a client sends both headers, their values must be equal.

    Raises:
        ValueError: The URL or an option is wrong, or a server has no tool.
        TransportError: The server cannot listen at the address.
    """
    from wirespeed.transport.net import serve as listen

    _check_tools(services)
    await listen.serve(url, services, **options)


def run(
    url: str, services: LiteServer | Mapping[str, LiteServer], **options: Unpack[RunOptions]
) -> None:
    """Serve as `serve` does, in a new event loop: uvloop where it is installed. ``workers``: the
    number of processes that share the port."""
    from wirespeed.transport.net import serve as listen

    _check_tools(services)
    listen.run(url, services, **options)


def _check_tools(services: LiteServer | Mapping[str, LiteServer]) -> None:
    for server in services.values() if isinstance(services, Mapping) else (services,):
        if isinstance(server, LiteServer):  # `serve` checks all other types
            _ = server.info


set_public_home(globals())
