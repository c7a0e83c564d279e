"""The server of the suite behind the proxy: what `run.py` runs the suite against once more.

    python tests/conformance/proxy.py ISOLATION [URL | COMMAND [ARGUMENT …]]
    python tests/conformance/proxy.py shared http://127.0.0.1:3001/mcp

Without a URL the server behind the proxy speaks stdio; by default it is `server.py`. Prints the URL
of the proxy.
"""

import asyncio
import sys
from pathlib import Path

from wirespeed import Http, HttpOptions, MemoryEventStore, Stdio, serve
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

SERVER = Path(__file__).with_name("server.py")


async def main(isolation: str, *behind: str) -> None:
    command, *arguments = behind or (sys.executable, str(SERVER), "stdio")
    program = Stdio(command, arguments, inherit_env=True)
    target = Http(command) if command.startswith("http") else program
    backend = BackendConfig(target=target, name="everything", isolation=isolation)
    proxy = Proxy(ProxyConfig(backends=(backend,), listen=()))
    await serve(
        "http://127.0.0.1:0/mcp",
        proxy.services["everything"],
        http=HttpOptions(event_store=MemoryEventStore(), retry=0.5),
        on_listening=lambda urls: print(urls[0], flush=True),
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
