"""Rival: supergateway 4.0.0, WebSocket in front of one child on stdio.

supergateway.py FOLDER COMMAND …    # FOLDER: where npm has installed it
"""

import shlex
import sys

from _started import become


def command(port: int) -> list[str]:
    folder, *child = sys.argv[1:]
    return [
        *("node", f"{folder}/node_modules/supergateway/dist/index.js"),
        *("--stdio", shlex.join(child), "--outputTransport", "ws", "--messagePath", "/mcp"),
        *("--port", str(port), "--logLevel", "none"),
    ]


if __name__ == "__main__":
    become(command)
