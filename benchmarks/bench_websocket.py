"""How many tools/call a second does a WebSocket server answer, and a client make?

wirespeed's typed echo tool against picows + msgspec loops and mcp 1.30.0's WebSocket server, over
TCP on this machine; messages of 64 KiB against a plain socket echo; wirespeed's client against one
made of `websockets` and msgspec.  The load generator checks every answer.
"""

import sys
from collections.abc import Sequence
from functools import partial

from harness import (
    Sample,
    Samples,
    Settings,
    Target,
    client_load,
    interleave,
    run_json,
    tool,
    versus,
)
from listening import Listening, against, script

# A fast server waits for a load generator that sleeps, or that hands over 64 requests in one write.
# Sixteen at a time was the best of 8, 16, 24, 32 and 64 for every server here.
SPIN = ("--spin", "yes")
BUSY = (*SPIN, "--burst", "16")

OURS = "wirespeed"
INLINE = "wirespeed inline"
MCP = "mcp 1.30.0"
RAW = "raw uvloop echo"
# The faster of the two counts.  picows itself writes each answer by a system call of its own; the
# second joins the answers of a tick by hand.
PICOWS = ("picows, a Task a request", "picows, the same, joined writes")
PICOWS_INLINE = ("picows, inline", "picows, inline, joined writes")
CEILING = "echo in C"

# contender -> (environment, script or program, tool, calls of one round)
SERVERS: dict[str, tuple[str, str, str, int]] = {
    OURS: ("", "websocket_server.py", "echo", 600_000),
    INLINE: ("", "websocket_server.py", "echo_inline", 600_000),
    PICOWS[0]: ("websocket", "picows_tasks.py", "echo", 150_000),
    PICOWS[1]: ("websocket", "picows_joined.py", "echo", 150_000),
    PICOWS_INLINE[0]: ("websocket", "picows_inline.py", "echo", 150_000),
    PICOWS_INLINE[1]: ("websocket", "picows_inline_joined.py", "echo", 300_000),
    MCP: ("mcp1", "mcp1_websocket.py", "echo", 3_000),
    RAW: ("websocket", "raw_echo.py", "echo", 150_000),
    CEILING: ("", "echo_ws", "echo", 500_000),
}
SIZE = 64
LARGE = 64 * 1024

CLIENTS: dict[str, tuple[str, str, str, int]] = {
    OURS: ("", "our_client.py", "uvloop", 150_000),
    "websockets + msgspec": ("websocket", "websockets_client.py", "asyncio", 40_000),
    "websockets + msgspec on uvloop": ("websocket", "websockets_client.py", "uvloop", 40_000),
}


def server_command(settings: Settings, name: str) -> list[str]:
    environment, program, _, _ = SERVERS[name]
    return script(settings, environment, program) if program.endswith(".py") else [tool(program)]


def serve_load(
    settings: Settings, name: str, connections: int, window: int, size: int, share: float
) -> Sample:
    """One contender under load; `share` of its usual calls."""
    count = settings.calls(int(SERVERS[name][3] * share))
    # A slow server is as fast when the generator sleeps, and then has the whole machine.
    options = () if name == MCP else BUSY if size == SIZE and connections == 1 else SPIN

    def load(server: Listening) -> Sample:
        return run_json(
            [
                *(tool("ws_load"), "--port", str(server.port), "--pid", str(server.pid)),
                *("--connections", str(connections), "--window", str(window)),
                *("--calls", str(count), "--warmup", str(min(5_000, count // 5))),
                *("--size", str(size), "--tool", SERVERS[name][2], *options),
                *("--raw", "yes" if name == RAW else "no", "--timeout", "120"),
            ],
            150,
        )

    return against(server_command(settings, name), load)


def loads(
    settings: Settings, names: Sequence[str], connections: int, window: int, size: int = SIZE,
    share: float = 1,
) -> Samples:  # fmt: skip
    return interleave(
        settings,
        {
            name: partial(serve_load, settings, name, connections, window, size, share)
            for name in names
        },
    )


def calling(settings: Settings, name: str) -> Sample:
    environment, program, loop, calls = CLIENTS[name]
    return against(
        [tool("echo_ws")],
        lambda server: client_load(settings, environment, program, loop, calls, 64, server.url),
    )


def run(settings: Settings) -> tuple[dict[str, Samples], list[Target]]:
    settings.say("websocket: one connection, 64 in flight")
    flight = loads(settings, [n for n in SERVERS if n != RAW], 1, 64)
    settings.say("websocket: 100 connections, 4 in flight on each")
    many = loads(settings, [OURS, INLINE, *PICOWS, *PICOWS_INLINE, CEILING], 100, 4, share=0.7)
    settings.say("websocket: messages of 64 KiB, 8 in flight")
    large = loads(settings, [OURS, INLINE, PICOWS[1], RAW, CEILING], 1, 8, LARGE, share=0.1)
    settings.say("websocket: client, 64 in flight")
    clients = interleave(settings, {name: partial(calling, settings, name) for name in CLIENTS})

    rest = (INLINE, CEILING)
    targets = [
        versus("websocket.picows", "WebSocket server, async echo, 64 in flight: "
               "a bare picows + msgspec loop with Tasks", 2, flight, OURS, PICOWS, beside=rest),
        versus("websocket.inline", "the same: picows + msgspec, a plain function in the frame "
               "callback", 1.8, flight, OURS, PICOWS_INLINE),
        versus("websocket.mcp1", "the same: mcp 1.30.0's WebSocket server", 150, flight, OURS,
               [MCP]),
        versus("websocket.many", "the same, 100 connections with 4 in flight: picows with Tasks",
               1.5, many, OURS, PICOWS, beside=rest),
        versus("websocket.many_inline", "the same: picows, a plain function", 2.2, many, OURS,
               PICOWS_INLINE),
        versus("websocket.large", "messages of 64 KiB, MB/s: a raw uvloop socket echo of the same "
               "bytes", 0.7, large, OURS, [RAW], "mb_per_s", beside=(INLINE, PICOWS[1], CEILING)),
        versus("websocket.client", "WebSocket client, 64 in flight: websockets + msgspec", 2,
               clients, OURS, [name for name in CLIENTS if name != OURS]),
    ]  # fmt: skip
    taken = {"64 in flight": flight, "100 connections": many, "64 KiB": large, "client": clients}
    return taken, targets


if __name__ == "__main__":
    from run import main

    main(["--only", "websocket", *sys.argv[1:]])
