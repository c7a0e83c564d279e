"""The official SDK's own server for the suite, unchanged, in the environment of the SDK.

    python sdk_server.py PLACE SOURCES WAY
        (PLACE: a folder that has `wirespeed`; SOURCES: the source distribution of the SDK)

WAY is ``stock-http``, ``stock-stdio``, ``adapter-http`` or ``adapter-stdio``. Over HTTP it prints
its URL.
"""

import socket
import sys

PLACE, SOURCES, WAY = sys.argv[1:]
sys.path[1:1] = [f"{SOURCES}/examples/servers/everything-server", PLACE]

from mcp_everything_server.server import event_store, mcp  # noqa: E402

RETRY = 100  # milliseconds, as its own `main` says


def serve_stock() -> None:
    """As ``mcp.run("streamable-http")`` does, at a free port."""
    import uvicorn

    app = mcp.streamable_http_app(event_store=event_store, retry_interval=RETRY)
    listener = socket.create_server(("127.0.0.1", 0))
    print(f"http://127.0.0.1:{listener.getsockname()[1]}/mcp", flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])


def serve_adapted() -> None:
    """On our listener, with our event store."""
    from wirespeed import HttpOptions, MemoryEventStore
    from wirespeed.adapters import mcp as adapter

    adapter.run(
        mcp,
        "http://127.0.0.1:0/mcp",
        http=HttpOptions(event_store=MemoryEventStore(), retry=RETRY / 1000),
        on_listening=lambda urls: print(urls[0], flush=True),
    )


if __name__ == "__main__":
    if WAY == "adapter-stdio":
        from wirespeed.adapters.mcp import install

        if not install():
            raise SystemExit("the adapter does not know this version of the SDK")
    if WAY.endswith("-stdio"):
        mcp.run()
    elif WAY == "stock-http":
        serve_stock()
    else:
        serve_adapted()
