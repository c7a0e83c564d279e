"""``wirespeed record`` before a command: what passes, what is written, how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from lab.cli import CALCULATOR, DEADLINE, environment, one_line, start, wirespeed, wirespeed_each
from lab.rows import every

from wirespeed import Client, Stdio
from wirespeed.bench.tap_file import read_record


def record(*args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", "wirespeed", "record", *args],
        input=stdin,
        capture_output=True,
        env=environment(),
        timeout=DEADLINE,
        check=False,
    )


def python(code: str) -> list[str]:
    return ["--", sys.executable, "-S", "-c", code]


# Bytes that are no messages pass, too: a tap is no judge.
ODD = b'{"a": "\xc3\xa4"}\n\n  {"b":1} \r\nnot JSON \xff\n' + b'{"long":"%b"}\n' % (b"x" * 300_000)
COPY = "import sys, shutil; shutil.copyfileobj(sys.stdin.buffer, sys.stdout.buffer)"


def test_bytes_pass_as_they_are_and_messages_are_written(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text("something longer than a header, of an earlier run\n" * 100)
    path.chmod(0o644)
    done = record("-o", str(path), *python(COPY), stdin=ODD + b"the end")
    assert (done.returncode, done.stdout, done.stderr) == (0, ODD + b"the end", b"")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    header, messages = read_record(str(path))
    assert not header.redacted and header.target.startswith(sys.executable)
    lines = ['{"a": "ä"}'.encode(), b'{"b":1}', b"not JSON \xff", ODD.splitlines()[-1], b"the end"]
    for sender in ("client", "server"):
        assert [m.data for m in messages if m.sender == sender] == lines
    assert {m.connection for m in messages} == {1}


@every(
    ("code", "status"),
    [
        ("import sys; print('on stderr', file=sys.stderr); sys.exit(7)", 7),
        ("import os, signal; os.write(2, b'on stderr\\n'); os.kill(os.getpid(), 9)", 128 + 9),
        ("import os; os.write(2, b'on stderr\\n'); os.close(1); input()", 1),
    ],
)
def test_status_and_stderr_are_those_of_the_command(code: str, status: int, tmp_path: Path) -> None:
    done = record("-o", str(tmp_path / "r"), *python(code))
    assert (done.returncode, done.stdout) == (status, b"")
    assert done.stderr.startswith(b"on stderr\n")


@every("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_go_on(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import signal, sys, time\n"
        "for n in (2, 10, 15): signal.signal(n, lambda n, _: sys.exit(40 + n))\n"
        "print('ready', flush=True); time.sleep(60)"
    )
    process = start("record", "-o", str(tmp_path / "r"), *python(code))
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 40 + number


def test_the_command_learns_that_nobody_reads(tmp_path: Path) -> None:
    """Also when it writes first: it does not outlive its client."""
    code = "import sys\nwhile True: sys.stdout.write('x' * 1000 + '\\n')"
    with start("record", "-o", str(tmp_path / "r"), *python(code)) as process:
        assert process.stdout is not None and process.stderr is not None
        try:
            process.stdout.read(10)
            process.stdout.close()
            assert process.wait(DEADLINE) == 1
            assert b"BrokenPipeError" in process.stderr.read()
        finally:
            process.kill()


def test_a_client_that_does_not_read_stops_the_command(tmp_path: Path) -> None:
    path = tmp_path / "r"
    code = "import sys\nwhile True: sys.stdout.write('x' * 1000 + '\\n')"
    with start("record", "-o", str(path), *python(code)) as process:
        assert process.stdout is not None
        try:
            process.stdout.read(1)
            sizes = [0]
            while path.stat().st_size != sizes[-1]:
                sizes.append(path.stat().st_size)
                time.sleep(0.5)
            assert sizes[-1] < 8 * 2**20
            process.send_signal(signal.SIGTERM)
            process.stdout.read()
            assert process.wait(DEADLINE) == 128 + signal.SIGTERM
        finally:
            process.kill()


async def test_a_client_notices_no_difference(tmp_path: Path) -> None:
    path = str(tmp_path / "r")
    args = ["-m", "wirespeed", "record", "-o", path, "--", *CALCULATOR]
    async with Client(Stdio(sys.executable, args, inherit_env=True)) as client:
        seen: list[Any] = []
        result = await client.call_tool(
            "slow_sum",
            {"numbers": [1, 2], "pause": 0},
            on_progress=lambda done, total, message: seen.append((done, total, message)),
        )
        assert result.structured_content == {"result": 3}
        assert seen == [(1, 2, "so far 1"), (2, 2, "so far 3")]
    _, messages = read_record(path)
    methods = [json.loads(m.data).get("method") for m in messages]
    assert methods.count("tools/call") == 1 and methods.count("notifications/progress") == 2


async def test_redaction_leaves_no_values(tmp_path: Path) -> None:
    path = tmp_path / "r"
    args = ["-m", "wirespeed", "record", "--redact", "-o", str(path), "--"]
    args += [sys.executable, "-m", "wirespeed", "bench-target"]
    async with Client(Stdio(sys.executable, args, inherit_env=True), era="legacy") as client:
        text = 'my "secret" ☂ 4711'
        assert (await client.call_tool("echo", {"text": text})).text == text
        await client.list_tools()
    written = path.read_text()
    assert "secret" not in written and "4711" not in written
    header, messages = read_record(str(path))
    assert header.redacted
    call = next(m for m in messages if b"tools/call" in m.data)
    n = len(json.dumps(text, ensure_ascii=False).encode()) - 2
    assert b'"arguments":{"text":"%b"}' % (b"x" * n) in call.data
    assert '\\"description\\":\\"Return the text.\\"' in written


def test_secrets_of_the_command_line_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "r"
    record("-o", str(path), *python("pass"), "--api-key", "k1", "--token=k2", "-v", "ok")
    header, _ = read_record(str(path))
    assert "k1" not in header.target and "k2" not in header.target
    assert header.target.endswith("-v ok")


CALLS = b"".join(b'{"jsonrpc":"2.0","id":%d}\n' % n for n in range(400))


def test_faults_are_repeated_by_their_seed_and_counted() -> None:
    options = ("--fault", "drop=0.1,duplicate=0.1", "--seed", "5")
    done = record(*options, *python(COPY), stdin=CALLS)
    assert done.returncode == 0
    assert done.stdout == record(*options, *python(COPY), stdin=CALLS).stdout != CALLS
    lines = [json.loads(line)["id"] for line in done.stdout.splitlines()]
    assert lines == sorted(lines) and set(lines) < set(range(400))
    counts = re.fullmatch(
        r"wirespeed: messages: (\d+) passed, (\d+) dropped, (\d+) passed twice\n",
        done.stderr.decode(),
    )
    assert counts is not None
    _, dropped, twice = map(int, counts.groups())
    assert len(lines) == 400 - dropped + twice


def test_delays_keep_the_order_and_run_side_by_side() -> None:
    done = record("--fault", "delay=exp:30ms", *python(COPY), stdin=CALLS)
    assert done.stdout == CALLS  # one after the other they would take 24 seconds
    assert done.stderr == b"wirespeed: messages: 800 passed, 800 delayed\n"


def test_a_cut_ends_both_sides_in_the_midst_of_a_message() -> None:
    done = record("--fault", "cut=0.02", "--seed", "1", *python(COPY), stdin=CALLS)
    assert done.stdout == b"" or CALLS.startswith(done.stdout)
    assert len(done.stdout) < len(CALLS)
    assert b" 1 cut" in done.stderr


def test_wrong_lines(tmp_path: Path) -> None:
    command = ("--", "true")
    lines = {
        ("record", *command): "give -o FILE, --fault FAULTS or both",
        ("record", "-o", "r"): "give -- COMMAND",
        ("record", "-o", "r", "--"): "there is no command after --",
        ("record", "--redact", "--fault", "drop=1", *command): "--redact is for -o FILE",
        ("record", "-o", "r", "--seed", "1", *command): "--seed is for --fault",
        ("record", "--fault", "drip=1", *command): "--fault: 'drip=1' is not a fault: there are",
        ("record", "--fault", "drop=2", *command): "--fault: drop=2: drop is a probability",
        ("record", "--fault", "delay=2", *command): "--fault: '2' is not a time",
        ("record", "--fault", "drop=0.6,cut=0.6", *command): "--fault: drop, duplicate and cut are",
        ("record", "--fault", "cut=0,cut=1", *command): "--fault: cut is there twice",
    }
    for line, done in wirespeed_each(lines, tmp_path).items():
        assert done.returncode == 2, line
        assert one_line(done).startswith(lines[line])


def test_what_cannot_be_written_or_started(tmp_path: Path) -> None:
    done = wirespeed("record", "-o", "/no/such/file", "--", "true")
    assert done.returncode == 74
    assert one_line(done) == "cannot write /no/such/file: No such file or directory"
    done = wirespeed("record", "-o", str(tmp_path / "r"), "--", "/no/such/program")
    assert done.returncode == 3
    assert one_line(done).startswith("cannot start the server: ")


def test_a_full_disk_does_not_stop_the_exchange() -> None:
    if not os.path.exists("/dev/full"):
        return
    done = record("-o", "/dev/full", *python(COPY), stdin=CALLS)
    assert (done.returncode, done.stdout) == (0, CALLS)
    assert done.stderr == b"wirespeed: /dev/full is not complete: No space left on device\n"


def test_output_behind_the_end_of_the_command_passes_to_a_slow_client(tmp_path: Path) -> None:
    code = "import os, sys; os.fork() or sys.stdin.read(); print('x' * 300_000, flush=True)"
    process = start("record", "-o", str(tmp_path / "r"), *python(code))
    assert process.stdout is not None and process.stdin is not None
    with process:
        try:
            process.stdin.close()
            time.sleep(3)  # the command has ended, and its output is in the pipe
            assert len(process.stdout.read()) == 2 * 300_001
            assert process.wait(DEADLINE) == 0
        finally:
            process.kill()


def test_a_tap_whose_command_is_gone_ends_when_it_is_told_to(tmp_path: Path) -> None:
    code = "import os, time; os.fork() or (print('ready', flush=True), time.sleep(60))"
    with start("record", "-o", str(tmp_path / "r"), *python(code)) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(3)  # another process of the server may still answer
            process.terminate()
            assert process.wait(DEADLINE) == 0
        finally:
            process.kill()
