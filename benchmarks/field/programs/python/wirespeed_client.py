"""A client with wirespeed: calls echo of the server that a command starts.

wirespeed_client.py CALLS WARMUP IN_FLIGHT COMMAND [ARGUMENT…]
"""

import sys

from load import load

from wirespeed import Client, Stdio
from wirespeed.transport.loop import run


async def main() -> None:
    async with Client(Stdio(sys.argv[4], sys.argv[5:]), era="legacy") as client:
        await load(client.call_tool)


run(main())
