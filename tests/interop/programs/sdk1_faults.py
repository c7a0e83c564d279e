"""Checks of the adapter of `mcp` 1.x where something goes wrong: ``sdk1_faults.py flood``.

A check that fails is a traceback and exit status 1.
"""

import asyncio
import sys
import tempfile
from typing import Any

from mcp import ClientSession

from wirespeed.adapters import mcp1 as adapter
from wirespeed.limits import Limits


async def flood() -> None:
    """A server that asks without end and reads nothing does not fill its client's memory."""
    high = 65536
    pings = b"".join(b'{"jsonrpc":"2.0","id":%d,"method":"ping"}\n' % n for n in range(30_000))

    async def ask(reader: Any, writer: Any) -> None:
        writer.write(pings)
        await asyncio.Event().wait()

    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/socket"
        async with await asyncio.start_unix_server(ask, place):
            limits = Limits(output_high=high, output_low=high // 4)
            async with adapter.connect(f"unix:{place}", limits=limits) as (read, write):
                adapter.install()
                async with ClientSession(read, write):
                    outbox, sizes = write.end.stream.outbox, [-1, 0]
                    while sizes[-1] != sizes[-2] or not sizes[-1]:
                        await asyncio.sleep(0.3)
                        sizes.append(outbox.size)
                assert max(sizes) < 5 * high, sizes


if __name__ == "__main__":
    asyncio.run({"flood": flood}[sys.argv[1]]())
    print("ok")
