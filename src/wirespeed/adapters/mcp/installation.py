"""`install` and `uninstall`: unchanged programs of the SDK run on this engine."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Mapping
from typing import Any, TextIO

from wirespeed.adapters import programs
from wirespeed.adapters.seams import Installation, Seam, is_known

NAME = "wirespeed.adapters.mcp"

# The digest of the method that checks results, which is replaced.
RESULT_CHECK = "e55bc9688afb8991"


def install() -> bool:
    """Replace the transports of the SDK by those of this engine, for the whole process.

    Servers on stdio, clients of child processes and ``run("streamable-http")`` run on it. Streams
    of a program's own, other transports and trio stay as they are. A second call does nothing.

    Returns False if the installed version of mcp is not known: then nothing is replaced, and one
    warning says why.
    """
    return _installation.install()


def uninstall() -> None:
    """Put back everything that `install` replaced. Connections that are open go on."""
    _installation.uninstall()


def installed() -> bool:
    """Whether the SDK's transports are replaced."""
    return _installation.installed


def environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """Two variables of child processes in which `install` is called as soon as they import mcp.

    >>> subprocess.run(["mcp-server-time"], env=os.environ | environment())
    """
    return programs.environment("mcp", base=base)


def _seams() -> list[Seam]:
    """Return the seams, and the names that the adapter needs and the SDK lacks."""
    from wirespeed.adapters.mcp.used_names import missing

    if gone := missing():
        return [Seam(place, lambda stock: stock) for place in gone]
    import wirespeed.adapters.mcp.sdk  # it gives the dispatcher what it needs
    import wirespeed.adapters.mcp.stdio  # noqa: F401  (it notes what is stock now)
    from wirespeed.adapters.mcp import tool_calls

    check = "mcp_types.methods:validate_server_result"
    return [
        Seam("mcp.server.stdio:stdio_server", _server_transport, takes=("stdin", "stdout")),
        Seam("mcp.client.stdio:stdio_client", _client_transport, takes=("server", "errlog")),
        Seam(
            "mcp.server.runner:serve_dual_era_loop",
            _server_loop,
            takes=(
                *("server", "read_stream", "write_stream", "lifespan_state", "session_id"),
                *("init_options", "raise_exceptions"),
            ),
        ),
        Seam(
            "mcp.shared.jsonrpc_dispatcher:JSONRPCDispatcher",
            _dispatcher_class,
            takes=(
                *("read_stream", "write_stream", "transport_builder", "peer_cancel_mode"),
                *("raise_handler_exceptions", "inline_methods", "on_stream_exception"),
            ),
        ),
        Seam(
            "mcp.server._otel:OpenTelemetryMiddleware.__call__",
            _idle_telemetry,
            takes=("self", "ctx", "call_next"),
        ),
        Seam(
            "mcp.server.mcpserver.server:MCPServer.run_streamable_http_async",
            _http_runner,
            takes=("self", *_HTTP_OPTIONS),
        ),
        # that of another version stays, and is slower
        *([Seam(check, tool_calls.result_check)] if is_known({check: RESULT_CHECK}) else []),
    ]


_HTTP_OPTIONS = (
    *("host", "port", "streamable_http_path", "json_response", "stateless_http", "event_store"),
    *("retry_interval", "max_request_body_size", "session_idle_timeout", "max_sessions"),
    "transport_security",
)

_installation = Installation(NAME, "mcp", ("2.3", "3"), _seams, extra="mcp")


def _on_asyncio(what: str) -> bool:
    from wirespeed.adapters.descriptors import on_asyncio

    if on_asyncio():
        return True
    _installation.tell(f"{NAME} runs on asyncio alone: {what} on another loop stays as it is")
    return False


# -- stdio ---------------------------------------------------------------------------------------


def _server_transport(stock: Any) -> Any:
    @contextlib.asynccontextmanager
    async def stdio_server(stdin: Any = None, stdout: Any = None) -> AsyncIterator[Any]:
        from wirespeed.adapters.descriptors import own_descriptors
        from wirespeed.adapters.mcp import stdio

        usual = stdin is None and stdout is None
        ours = usual and not stdio.is_claimed() and own_descriptors()
        if ours and _on_asyncio("stdio_server()"):
            made = stdio.serve_stdio_streams()
        else:
            made = stock(stdin, stdout)
        async with made as streams:
            yield streams

    return stdio_server


def _client_transport(stock: Any) -> Any:
    @contextlib.asynccontextmanager
    async def stdio_client(server: Any, errlog: TextIO = sys.stderr) -> AsyncIterator[Any]:
        from wirespeed.adapters.mcp import stdio

        if stdio.is_usual(server) and _on_asyncio("stdio_client()"):
            made = stdio.child_streams(server, errlog)
        else:
            made = stock(server, errlog)
        async with made as streams:
            yield streams

    return stdio_client


def _server_loop(stock: Any) -> Any:
    async def serve_dual_era_loop(
        server: Any,
        read_stream: Any,
        write_stream: Any,
        *,
        lifespan_state: Any,
        session_id: str | None = None,
        init_options: Any = None,
        raise_exceptions: bool = False,
    ) -> None:
        from wirespeed.adapters.mcp.dispatcher import SdkDispatcher
        from wirespeed.adapters.mcp.eras import ServedConnection
        from wirespeed.adapters.mcp.streams import streams_of

        streams = streams_of(read_stream, write_stream)
        if streams is None:
            return await stock(  # type: ignore[no-any-return]
                server,
                read_stream,
                write_stream,
                lifespan_state=lifespan_state,
                session_id=session_id,
                init_options=init_options,
                raise_exceptions=raise_exceptions,
            )
        loop = asyncio.get_running_loop()
        dispatcher = SdkDispatcher(None, loop, make_link=streams.take())
        served = ServedConnection(
            server,
            dispatcher,
            lifespan_state,
            session_id=session_id,
            init_options=init_options,
            raise_exceptions=raise_exceptions,
        )
        try:
            await dispatcher.serve_until_closed()
        finally:
            await served.aclose()

    return serve_dual_era_loop


# -- dispatchers ---------------------------------------------------------------------------------


def _dispatcher_class(stock: Any) -> Any:
    """A class in the place of the SDK's dispatcher, which makes ours of the streams of stdio."""
    from wirespeed.adapters.mcp.dispatcher import SdkDispatcher

    class Meta(type(stock)):  # type: ignore[misc]
        def __call__(cls, *args: Any, **options: Any) -> Any:
            if cls is not JSONRPCDispatcher:
                return super().__call__(*args, **options)
            return _made(*args, **options) or stock(*args, **options)

        def __instancecheck__(cls, instance: Any) -> bool:
            if cls is JSONRPCDispatcher:
                return isinstance(instance, stock) or type(instance) is SdkDispatcher
            return bool(super().__instancecheck__(instance))

    class JSONRPCDispatcher(stock, metaclass=Meta):  # type: ignore[misc]
        __doc__ = stock.__doc__

        def __class_getitem__(cls, item: Any) -> Any:
            return stock[item]

    JSONRPCDispatcher.__module__ = stock.__module__
    JSONRPCDispatcher.__qualname__ = stock.__qualname__
    return JSONRPCDispatcher


def _made(
    read_stream: Any = None,
    write_stream: Any = None,
    *,
    transport_builder: Any = None,
    peer_cancel_mode: str = "interrupt",
    raise_handler_exceptions: bool = False,
    inline_methods: frozenset[str] = frozenset(),
    on_stream_exception: Any = None,
) -> Any:
    """Our dispatcher on the streams of stdio; None: on these streams the SDK's own is needed."""
    from wirespeed.adapters.mcp.dispatcher import SdkDispatcher
    from wirespeed.adapters.mcp.eras import DUPLEX
    from wirespeed.adapters.mcp.streams import streams_of

    streams = streams_of(read_stream, write_stream)
    if streams is None or not inline_methods <= {"initialize"}:
        return None
    made = SdkDispatcher(
        None, asyncio.get_running_loop(), role=streams.role, make_link=streams.take()
    )
    build = transport_builder or (lambda metadata: DUPLEX)
    made.make_transport = lambda context: build(context.message_metadata)
    made.interrupts = peer_cancel_mode == "interrupt"
    made.raises = raise_handler_exceptions
    made.parks = bool(inline_methods)
    made.on_stream_exception = on_stream_exception
    return made


# -- telemetry -----------------------------------------------------------------------------------


def _idle_telemetry(stock: Any) -> Any:
    from wirespeed.adapters.mcp.runner import is_idle

    def unless_idle(self: Any, ctx: Any, call_next: Any) -> Any:
        return call_next(ctx) if is_idle(ctx) else stock(self, ctx, call_next)

    return unless_idle


# -- HTTP ----------------------------------------------------------------------------------------


def _http_runner(stock: Any) -> Any:
    async def run_streamable_http_async(self: Any, **options: Any) -> None:
        from wirespeed.adapters.mcp import http_runner

        why = http_runner.reason_for_stock(self, options)
        if why is not None:
            _installation.tell(f"{NAME}: {why}: Streamable HTTP of this server stays as it is")
            await stock(self, **options)
        elif _on_asyncio("run_streamable_http_async()"):
            await http_runner.serve_http(self, **options)
        else:
            await stock(self, **options)

    return run_streamable_http_async
