"""Draining stderr: floods, lines, files, callbacks that fail."""

from __future__ import annotations

import asyncio
import io
import os
import threading
import time
from pathlib import Path
from typing import Any

from lab.child import (
    FOREVER,
    open_fds,
    python,
    read_line,
    shell,
    until_gone,
)

from wirespeed.transport.child.command import Stdio
from wirespeed.transport.child.process import Child
from wirespeed.transport.child.stderr import MAX_LINE, TAIL_BYTES, TAIL_LINES, Drain, open_sink


async def test_flood_of_stderr_while_nobody_reads_stdout() -> None:
    size, got, ticks = 80_000 * 101, 0, 0  # whole lines

    def line(text: str) -> None:
        nonlocal got
        assert "\n" not in text
        got += len(text) + 1

    async def ticker() -> None:
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(ticker())
    child = await Child.launch(python("floods_stderr.py", str(size), stderr=line))
    assert await read_line(child) == "done"  # written after all of the flood
    await child.shutdown()
    task.cancel()
    assert got == size
    # The loop went round once a read of 16 KiB at least.
    assert ticks >= size // 16384
    assert len(child.stderr_lines()) == TAIL_LINES


async def test_the_rest_of_stderr_is_read_before_the_exit_is_reported() -> None:
    lines: list[str] = []
    # The loop sleeps until the child has filled the pipe, which takes several reads.
    asyncio.get_running_loop().call_soon(time.sleep, 0.1)
    child = await Child.launch(Stdio("sh", ["-c", "seq 1 12000 >&2; exit 4"], stderr=lines.append))
    assert await child.wait() == 4
    assert lines == [str(i) for i in range(1, 12_001)]
    assert child.stderr_lines() == lines[-TAIL_LINES:]
    await child.shutdown()


async def test_lines_are_decoded_and_split_by_bytes() -> None:
    text = "grüße\r\n\n日本\\377é\nlast without end"
    script = f"printf '{text}' >&2"
    lines: list[str] = []
    child = await Child.launch(Stdio("sh", ["-c", script], stderr=lines.append))
    await child.shutdown(grace=FOREVER)
    assert lines == ["grüße", "", "日本\ufffdé", "last without end"]


async def test_callback_that_raises_is_logged_once(caplog: Any) -> None:
    seen: list[str] = []

    def line(text: str) -> None:
        seen.append(text)
        raise RuntimeError("callback is broken")

    child = await Child.launch(Stdio("sh", ["-c", "seq 1 50 >&2"], stderr=line))
    await child.wait()
    await child.shutdown()
    assert len(seen) == 50
    assert child.stderr_lines()[-1] == "50"
    records = [r for r in caplog.records if r.name == "wirespeed.stdio"]
    assert len(records) == 1 and "callback is broken" in caplog.text


async def test_stderr_to_files(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_text("before\n")
    raw, text = io.BytesIO(), io.StringIO()
    with (tmp_path / "open.log").open("wb") as file:
        for target in (str(log), log, raw, text, file):
            command = ["-c", "printf 'a\\377\\nb' >&2"]
            child = await Child.launch(Stdio("sh", command, stderr=target))
            await child.wait()
            assert child.stderr_lines() == ["a\ufffd", "b"]
            await child.shutdown()
        assert not file.closed
        assert (tmp_path / "open.log").read_bytes() == b"a\xff\nb"
    assert log.read_bytes() == b"before\n" + b"a\xff\nb" * 2
    assert raw.getvalue() == b"a\xff\nb"
    assert text.getvalue() == "a\ufffd\nb"


async def test_stderr_file_that_fails_is_logged_once(caplog: Any) -> None:
    class Full(io.RawIOBase):
        def writable(self) -> bool:
            return True

        def write(self, _data: Any) -> int:
            raise OSError(28, "No space left on device")

    child = await Child.launch(python("floods_stderr.py", "300000", stderr=Full()))
    assert await read_line(child) == "done"
    await child.shutdown()
    assert len(caplog.records) == 1 and "No space left on device" in caplog.text


async def test_inherit_keeps_nothing_and_says_so(capfd: Any) -> None:
    child = await Child.launch(shell("says_and_exits.sh", "3", "to the terminal"))
    await child.wait()
    assert child.stderr_lines() == []
    text = child.failure("no answer")
    assert "exited with status 3" in text and "stderr was inherited" in text
    await child.shutdown()
    assert capfd.readouterr().err == "to the terminal\n"


async def test_loop_without_add_reader() -> None:
    await asyncio.to_thread(int)  # the thread of the executor stays
    threads = set(threading.enumerate())
    loop = asyncio.get_running_loop()

    class Refusing:
        def __getattr__(self, name: str) -> Any:
            if name == "add_reader":
                raise NotImplementedError
            return getattr(loop, name)

    def open_drain(sink: Any) -> tuple[Drain, int]:
        reader, writer = os.pipe()
        return Drain(Refusing(), reader, open_sink(sink)), writer  # type: ignore[arg-type]

    fds = open_fds()
    for _ in range(2):
        lines: list[str] = []
        drain, writer = open_drain(lines.append)
        for i in range(3):
            os.write(writer, b"line %d\n" % i)
            while len(lines) <= i:
                await asyncio.sleep(0.001)
        os.close(writer)
        while not drain.closed:
            await asyncio.sleep(0.001)
        assert drain.lines() == lines == ["line 0", "line 1", "line 2"]
        drain.close()
    drain, writer = open_drain("discard")
    await asyncio.to_thread(os.write, writer, b"x" * 200_000)  # more than a pipe holds
    drain.close()  # with the thread in poll()
    os.close(writer)
    await until_gone(threads)
    assert open_fds() <= fds


async def drained(*chunks: bytes, sink: Any = None) -> Drain:
    reader, writer = os.pipe()
    drain = Drain(asyncio.get_running_loop(), reader, open_sink(sink or "discard"))
    for chunk in chunks:
        os.write(writer, chunk)
        drain.finish()
    os.close(writer)
    drain.finish()
    assert drain.closed
    return drain


async def test_tail_is_bounded_and_readable() -> None:
    assert (await drained()).lines() == []
    assert (await drained(b"a\n\nb")).lines() == ["a", "", "b"]
    many = b"".join(b"%d\n" % i for i in range(10_000))
    assert (await drained(many)).lines() == [str(i) for i in range(9980, 10_000)]
    long = (await drained(b"x" * 30_000, b"y" * 10)).lines()
    assert len(long) == 1 and long[0].startswith("…x") and long[0].endswith("xyyyyyyyyyy")
    assert len(long[0]) == TAIL_BYTES + 1
    lines = (await drained(b"x" * 9000 + b"\n" + b"y" * 20 + b"\n")).lines()
    assert lines == ["y" * 20]
    # Colours go, other controls are made visible, the rest stays.
    assert (await drained(b"\x1b[1;31mred\x1b[0m\tx\x07 \xff\r\n")).lines() == [
        "red\tx\ufffd \ufffd"
    ]


async def test_overlong_lines_come_in_pieces() -> None:
    pieces: list[str] = []
    text = "é" * MAX_LINE  # two bytes each; a cut in the middle of one would show
    data = b"-" + text.encode() + b"\nshort\n"
    parts = [data[i : i + 40_000] for i in range(0, len(data), 40_000)]
    await drained(*parts, sink=pieces.append)
    assert pieces[-1] == "short"
    assert "".join(pieces[:-1]) == "-" + text
    assert all(len(piece.encode()) <= MAX_LINE for piece in pieces)
    assert len(pieces) == 4
    pieces.clear()
    await drained(b"\x80" * 60_000, b"\x80" * 60_000, sink=pieces.append)
    assert sum(map(len, pieces)) == 120_000
