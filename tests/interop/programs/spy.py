"""Stands between a client and a server over stdio, and writes down what each says.

    python spy.py FOLDER [NAME=VALUE…] -- command args…

The variables are for the server: clients pass on few of their own.
Makes FOLDER/<time>-<pid>/ with ``wire`` (a line a message, "> " to the server, "< " from it),
``stderr`` of the server and, when it has ended, ``exit``: its exit status.
"""

import os
import signal
import subprocess
import sys
import threading
import time


def main() -> int:
    end = sys.argv.index("--")
    variables = dict(argument.split("=", 1) for argument in sys.argv[2:end])
    folder = os.path.join(sys.argv[1], f"{time.monotonic_ns():020}-{os.getpid()}")
    os.makedirs(folder)
    lock = threading.Lock()
    with (
        open(os.path.join(folder, "wire"), "ab", buffering=0) as wire,
        open(os.path.join(folder, "stderr"), "wb") as stderr,
    ):
        child = subprocess.Popen(
            sys.argv[end + 1 :],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=os.environ | variables,
        )
        assert child.stdin is not None and child.stdout is not None
        signal.signal(signal.SIGTERM, lambda number, frame: child.send_signal(number))

        def carry(source: int, target: int, mark: bytes) -> None:
            rest = b""
            while chunk := os.read(source, 1 << 16):
                *lines, rest = (rest + chunk).split(b"\n")
                if lines:
                    # written down first: what is read here after a message came after it
                    with lock:
                        wire.write(b"".join(mark + line + b"\n" for line in lines))
                view = memoryview(chunk)
                while view:
                    view = view[os.write(target, view) :]
            if rest:
                with lock:
                    wire.write(mark + rest + b" (unfinished)\n")

        def to_server() -> None:
            assert child.stdin is not None
            try:
                carry(0, child.stdin.fileno(), b"> ")
                child.stdin.close()
            except BrokenPipeError:
                pass

        threading.Thread(target=to_server, daemon=True).start()
        try:
            carry(child.stdout.fileno(), 1, b"< ")
        except BrokenPipeError:
            child.stdout.close()
        status = child.wait()
        with open(os.path.join(folder, "exit"), "w") as out:
            out.write(str(status))
    os._exit(status if status >= 0 else 128 - status)  # a thread may hold stdin


if __name__ == "__main__":
    main()
