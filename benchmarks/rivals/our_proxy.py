"""wirespeed's proxy for the benchmark: one shared server on stdio for all clients.

our_proxy.py [--metrics] ws|http COMMAND …
"""

import sys
from typing import Any

from _port import tell

from wirespeed import Stdio
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
from wirespeed.transport.loop import run


def operation() -> dict[str, Any]:
    """The parts of the configuration that count and measure what passes."""
    from wirespeed.proxy import AdminConfig

    return {"admin": AdminConfig(listen="http://127.0.0.1:0")}


async def main(scheme: str, command: str, *arguments: str, metrics: bool) -> None:
    server = BackendConfig(target=Stdio(command, arguments), isolation="shared")
    config = ProxyConfig(
        backends=(server,),
        listen=(f"{scheme}://127.0.0.1:0/mcp",),
        **(operation() if metrics else {}),
    )

    def on_listening(urls: tuple[str, ...]) -> None:
        if urls[0].endswith("/mcp"):  # else they are of the admin listener
            tell(int(urls[0].rpartition(":")[2].partition("/")[0]))

    await Proxy(config).serve(on_listening=on_listening)


if __name__ == "__main__":
    metered = sys.argv[1] == "--metrics"
    run(main(*sys.argv[1 + metered :], metrics=metered))
