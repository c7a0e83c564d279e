"""Rival: sparfenyuk's mcp-proxy 0.13.0, Streamable HTTP in front of one child on stdio.

mcp_proxy.py COMMAND …
"""

import os
import sys

from _started import become


def command(port: int) -> list[str]:
    program = os.path.join(os.path.dirname(sys.executable), "mcp-proxy")
    return [program, "--port", str(port), "--log-level", "ERROR", "--", *sys.argv[1:]]


if __name__ == "__main__":
    become(command)
