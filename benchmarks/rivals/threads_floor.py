"""The least that a loop can do beside a busy thread: one read and one write a turn, no protocol.

A line with ``"burn"`` starts a thread that is busy for as long as the line's last number says; all
others go back as results.
"""

import asyncio
import os
import re
import sys
import threading
import time

import uvloop


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def main() -> None:
    os.set_blocking(0, False)
    of_asyncio = os.environ.get("WIRESPEED_LOOP") == "asyncio"
    loop = asyncio.new_event_loop() if of_asyncio else uvloop.new_event_loop()

    def readable() -> None:
        data = os.read(0, 1 << 16)
        if not data:
            loop.stop()
        for line in data.splitlines():
            if b'"burn"' in line:
                seconds = float(re.findall(rb"[\d.]+", line)[-1])
                threading.Thread(target=burn, args=(seconds,), daemon=True).start()
        answers = data.replace(b'"params"', b'"result"')
        if answers:
            os.write(1, answers)

    loop.add_reader(0, readable)
    loop.run_forever()


if __name__ == "__main__":
    sys.setswitchinterval(float(sys.argv[1]))
    main()
