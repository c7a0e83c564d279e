"""wirespeed's server for bench_threads.py: an async echo, and a function that burns CPU."""

import sys
import time

from wirespeed import Server

server = Server("threads", version="1")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool
def burn(seconds: float) -> int:
    end = time.monotonic() + seconds
    rounds = 0
    while time.monotonic() < end:
        rounds += 1
    return rounds


if __name__ == "__main__":
    sys.setswitchinterval(float(sys.argv[1]))
    server.run()
