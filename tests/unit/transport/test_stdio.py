"""The stdio transport of real server processes: descriptors, ends, signals, left-overs."""

from __future__ import annotations

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from lab.raw import (
    CHILDREN,
    FOREVER,
    Raw,
    call,
    cancel,
    encode,
    initialize,
    modern,
    notification,
    request,
    strict,
    surroundings,
    tool_server,
)
from lab.rows import every

pytestmark = pytest.mark.usefixtures("loop_of_children")
HANDSHAKE = [initialize("init"), notification("notifications/initialized")]


def spawn(**options: Any) -> Raw:
    return Raw(tool_server(**options))


def parsed(data: bytes) -> list[Any]:
    return [strict(line) for line in data.splitlines()]


def last_words(peer: Raw) -> list[Any]:
    """What comes after the end of the input."""
    peer.end_input()
    got = parsed(peer.rest())
    assert peer.wait() == 0
    return got


def text_of(answer: Any) -> str:
    (block,) = answer["result"]["content"]
    text: str = block["text"]
    return text


def lines(*messages: Any) -> bytes:
    return b"".join(map(encode, messages))


# -- nobody else's wire ---------------------------------------------------------------------------


def test_what_tools_print_is_not_on_the_wire() -> None:
    with spawn(banner=True) as peer:
        peer.handshake()
        peer.send(*(call(i, "noise", {"text": f"noise-{i}"}) for i in range(5)))
        got = [peer.recv() for _ in range(5)]
        assert {m["id"] for m in got} == set(range(5))
        assert {text_of(m) for m in got} == {"quiet"}
        peer.wait_stderr("noise-4\n")  # it is seen while the server runs
        assert peer.end() == 0
        assert "a banner before the server runs" in peer.stderr()
        for i in range(5):
            for where in ("", " without a newline", " by os.write", " by a child"):
                assert f"noise-{i}{where}" in peer.stderr()


def test_tools_and_their_children_find_no_input() -> None:
    with spawn() as peer:
        peer.handshake()
        peer.send(call(1, "read_stdin"), call(2, "child_fds"))
        got = {m["id"]: text_of(m) for m in (peer.recv(), peer.recv())}
        assert got == {1: "''b''", 2: "[]"}
        assert peer.end() == 0


def test_the_descriptors_are_put_back() -> None:
    with spawn(farewell=True) as peer:
        peer.handshake()
        peer.end_input()
        assert peer.rest() == b"farewell\n"
        assert peer.wait() == 0


def test_a_server_can_run_twice_in_a_process() -> None:
    script = (
        "import sys; sys.argv = ['x']; sys.path.insert(0, sys.argv[0]);"
        f"sys.path.insert(0, {str(CHILDREN)!r}); import tool_server as t;"
        "t.server.run(); print('between', flush=True); t.server.run()"
    )
    with Raw([sys.executable, "-c", script]) as peer:
        assert peer.ask(request(1, "ping"))["id"] == 1
        peer.end_input()
        assert peer.rest() == b"between\n"  # the second one finds the end of input at once
        assert peer.wait() == 0


def test_closed_standard_descriptors_are_an_error_not_a_hang() -> None:
    command = " ".join(f"'{part}'" for part in tool_server())
    for closed in ("<&-", ">&-"):
        done = subprocess.run(
            ["sh", "-c", f"exec {command} {closed}"], capture_output=True, timeout=FOREVER
        )
        assert done.returncode != 0
        assert b"stdin and stdout must be open" in done.stderr


def test_a_closed_stderr_does_no_harm() -> None:
    command = " ".join(f"'{part}'" for part in tool_server())
    with Raw(["sh", "-c", f"exec {command} 2>&-"]) as peer:
        peer.handshake()
        assert text_of(peer.ask(call(1, "noise", {"text": "x"}))) == "quiet"
        assert peer.ask(call(2, "fail"))["result"]["isError"] is True
        assert peer.end() == 0


def test_stderr_on_the_same_socket_as_stdout_stays_blocking() -> None:
    """A service started with one socket for all three: what is logged is on the wire by the
    caller's own choice, but must be whole lines."""
    script = f"exec 2>&1; exec {' '.join(repr(part) for part in tool_server())}"
    with Raw.socket(["sh", "-c", script]) as peer:
        peer.handshake()
        assert text_of(peer.ask(call(1, "echo", {"text": "x"}))) == "x"
        assert peer.end() == 0


# -- kinds of descriptors -------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 3000])
def test_files_in_and_out_answer_everything(size: int, tmp_path: Path) -> None:
    questions, answers = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    names = ("echo", "in_thread", "sleep", "fail", "nope")
    arguments: list[Any] = [{"text": "é" * 50}, {"text": "t"}, {"seconds": 0.001}, {}, {}]
    body = [call(i, names[i % 5], arguments[i % 5]) for i in range(size)]
    questions.write_bytes(lines(*HANDSHAKE, *body))
    with questions.open("rb") as given, answers.open("wb") as taken:
        done = subprocess.run(
            tool_server(), stdin=given, stdout=taken, stderr=subprocess.DEVNULL,
            env=surroundings(), timeout=FOREVER,
        )  # fmt: skip
    assert done.returncode == 0
    got = parsed(answers.read_bytes())
    assert {m["id"] for m in got} == {"init", *range(size)}
    assert len(got) == size + 1
    assert all(("error" in m) == (m["id"] != "init" and m["id"] % 5 == 4) for m in got)


def test_a_file_in_and_a_pipe_out(tmp_path: Path) -> None:
    questions = tmp_path / "requests.jsonl"
    questions.write_bytes(lines(*HANDSHAKE, *(call(i, "huge", {"mib": 1}) for i in range(5))))
    ours, theirs = os.pipe()
    with Raw(
        tool_server(),
        give=(os.open(questions, os.O_RDONLY), theirs),
        take=(None, ours),
    ) as peer:
        got = parsed(peer.rest())
        assert {m["id"] for m in got} == {"init", *range(5)}
        assert all(len(text_of(m)) == 512 * 1024 for m in got if m["id"] != "init")
        assert peer.wait() == 0


def test_a_pipe_in_and_a_file_out(tmp_path: Path) -> None:
    answers = tmp_path / "answers.jsonl"
    theirs, ours = os.pipe()
    with Raw(
        tool_server(),
        give=(theirs, os.open(answers, os.O_WRONLY | os.O_CREAT)),
        take=(ours, None),
    ) as peer:
        peer.send(*HANDSHAKE, *(call(i, "sleep", {"seconds": 0.01}) for i in range(50)))
        peer.end_input()
        assert peer.wait() == 0
    got = parsed(answers.read_bytes())
    assert {m["id"] for m in got} == {"init", *range(50)}


def test_one_socket_for_both_directions() -> None:
    with Raw.socket(tool_server()) as peer:
        peer.handshake()
        peer.send(*(call(i, "huge", {"mib": 1}) for i in range(3)))
        assert {peer.recv()["id"] for _ in range(3)} == {0, 1, 2}
        peer.send(call(4, "sleep", {"seconds": 0.01}))
        (answer,) = last_words(peer)  # half closed: the answer still arrives
        assert answer["id"] == 4


def test_dev_null_as_input_ends_at_once() -> None:
    done = subprocess.run(
        tool_server(), stdin=subprocess.DEVNULL, capture_output=True,
        env=surroundings(), timeout=FOREVER,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_terminal_is_served_and_left_as_it_was() -> None:
    ours, theirs = pty.openpty()
    raw_mode = termios.tcgetattr(theirs)
    raw_mode[3] &= ~(termios.ECHO | termios.ICANON)
    raw_mode[1] &= ~termios.OPOST
    termios.tcsetattr(theirs, termios.TCSANOW, raw_mode)
    raw_mode = termios.tcgetattr(theirs)
    kept = os.dup(theirs)  # the shell's: shares the open file description
    try:
        flags = fcntl.fcntl(kept, fcntl.F_GETFL)
        with Raw(tool_server(), give=(theirs, theirs), take=(ours, ours)) as peer:
            peer.handshake()
            assert fcntl.fcntl(kept, fcntl.F_GETFL) == flags  # while it runs, too
            assert text_of(peer.ask(call(1, "echo", {"text": "é"}))) == "é"
            peer.send(call(2, "huge", {"mib": 1}))
            assert len(text_of(peer.recv())) == 512 * 1024
            peer.signal(signal.SIGTERM)
            assert peer.wait() == 0
            assert fcntl.fcntl(kept, fcntl.F_GETFL) == flags
            assert not flags & os.O_NONBLOCK
            assert termios.tcgetattr(kept) == raw_mode
    finally:
        os.close(kept)


def test_end_of_input_at_a_terminal() -> None:
    ours, theirs = pty.openpty()
    mode = termios.tcgetattr(theirs)
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(theirs, termios.TCSANOW, mode)
    with Raw(tool_server(), give=(theirs, theirs), take=(ours, ours)) as peer:
        assert peer.ask(request(1, "ping"))["id"] == 1
        peer.send(b"\x04")  # ^D
        assert peer.wait() == 0


@pytest.mark.parametrize("blocking", [True, False])
def test_a_pipe_stays_blocking_or_not(blocking: bool) -> None:
    in_theirs, in_ours = os.pipe()
    out_ours, out_theirs = os.pipe()
    os.set_blocking(in_theirs, blocking)
    kept = os.dup(in_theirs), os.dup(out_theirs)
    try:
        with Raw(tool_server(), give=(in_theirs, out_theirs), take=(in_ours, out_ours)) as peer:
            peer.handshake()
            peer.end_input()
            assert peer.wait() == 0
        assert [os.get_blocking(fd) for fd in kept] == [blocking, True]
    finally:
        for fd in kept:
            os.close(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux changes the size of pipes")
def test_pipes_get_room_for_long_messages() -> None:
    """A pipe that the client has made larger stays as it is."""
    in_theirs, in_ours = os.pipe()
    out_ours, out_theirs = os.pipe()
    fcntl.fcntl(out_ours, fcntl.F_SETPIPE_SZ, 1 << 20)
    with Raw(tool_server(), give=(in_theirs, out_theirs), take=(in_ours, out_ours)) as peer:
        peer.handshake()
        sizes = [fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) for fd in (in_ours, out_ours)]
        peer.end_input()
        assert peer.wait() == 0
    assert sizes == [256 * 1024, 1 << 20]


# -- the end of input -----------------------------------------------------------------------------


def test_the_end_of_input_ends_an_idle_server() -> None:
    with spawn() as peer:
        assert peer.end() == 0
    with spawn() as peer:
        peer.handshake()
        assert peer.end() == 0


@pytest.mark.parametrize(("cut", "code"), [(-1, None), (-5, -32700)])
def test_the_last_line_needs_no_newline_but_must_be_whole(cut: int, code: int | None) -> None:
    with spawn() as peer:
        peer.send(encode(request(1, "ping"))[:cut])
        (answer,) = last_words(peer)
        assert answer.get("result") == ({} if code is None else None)
        assert answer.get("error", {}).get("code") == code


@every("tool", ["sleep", "in_thread", "count"])
def test_what_is_in_flight_at_the_end_is_answered(tool: str) -> None:
    arguments = {"sleep": {"seconds": 0.05}, "in_thread": {"text": "x"}, "count": {"to": 3}}[tool]
    with spawn() as peer:
        peer.send(*HANDSHAKE, *(call(i, tool, arguments) for i in range(20)))
        got = last_words(peer)
        assert {m["id"] for m in got} == {"init", *range(20)}
        assert all("result" in m for m in got)


def test_what_waits_for_room_at_the_end_is_answered_too() -> None:
    with spawn(limits={"max_in_flight": 2, "max_waiting": 5}) as peer:
        peer.send(*HANDSHAKE, *(call(i, "sleep", {"seconds": 0.001}) for i in range(100)))
        got = last_words(peer)
        assert {m["id"] for m in got} == {"init", *range(100)}


@every("tool", ["hang", "block", "block_to_thread"])
def test_what_does_not_end_in_the_grace_time_is_refused_and_the_process_ends(tool: str) -> None:
    with spawn(shutdown_grace=0.05) as peer:
        peer.handshake()
        peer.send(call(1, tool), call(2, "echo", {"text": "x"}))
        assert peer.recv()["id"] == 2
        (answer,) = last_words(peer)
        assert answer["id"] == 1
        why = "The server is shutting down: the request was cut off, and may have taken effect"
        assert answer["error"] == {"code": -31006, "message": why}
        assert f"tool {tool} did not end in time" in peer.stderr()


@pytest.mark.parametrize("cancelled", [True, False])
def test_a_tool_that_ignores_its_cancellation_does_not_hold_the_exit(cancelled: bool) -> None:
    with spawn(shutdown_grace=0.05) as peer:
        peer.handshake()
        peer.send(call(1, "stubborn"), request(2, "ping"))
        assert peer.recv()["id"] == 2
        if cancelled:
            peer.send(cancel(1))
            peer.wait_stderr("stubborn ignores it")
        got = [(one["id"], one["error"]["code"]) for one in last_words(peer)]
        assert got == ([] if cancelled else [(1, -31006)])
        assert "1 handlers ignore their cancellation" in peer.stderr()
        assert "Traceback" not in peer.stderr()
        assert "Task was destroyed" not in peer.stderr()


def test_a_blocked_thread_of_a_cancelled_call_does_not_hold_the_exit() -> None:
    with spawn() as peer:
        peer.handshake()
        peer.send(call(1, "block"), cancel(1), call(2, "in_thread", {"text": "x"}))
        assert text_of(peer.recv()) == "x in it"
        assert peer.end() == 0


def test_a_cancelled_call_ends_without_an_answer_during_the_shutdown() -> None:
    with spawn() as peer:
        peer.handshake()
        peer.send(call(1, "late"), call(2, "late"), request(3, "ping"))
        assert peer.recv()["id"] == 3
        peer.send(cancel(1), cancel(2))
        assert peer.end() == 0


def test_listens_end_with_the_input() -> None:
    with spawn() as peer:
        peer.ask(modern(1, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
        got = last_words(peer)
        assert [m.get("method") for m in got] == ["notifications/cancelled", None]
        assert got[1]["id"] == 1


def test_a_client_that_stops_to_read_ends_the_server() -> None:
    """EPIPE: at the first answer that nobody can get."""
    with spawn() as peer:
        peer.handshake()
        peer.send(call(1, "hang"))
        peer.ask(request(2, "ping"))
        os.close(peer.stdout)  # type: ignore[arg-type]
        peer.stdout = None
        peer.eof = True
        peer.send(request(3, "ping"))
        assert peer.wait() == 0
        assert "Traceback" not in peer.stderr()


def test_a_client_that_goes_without_a_word_ends_the_server() -> None:
    with spawn(shutdown_grace=0.05) as peer:
        peer.handshake()
        peer.send(*(call(i, "huge", {"mib": 1}) for i in range(10)), call(11, "hang"))
        peer.recv()
        os.close(peer.stdout)  # type: ignore[arg-type]
        peer.stdout = None
        os.close(peer.stdin)  # type: ignore[arg-type]
        peer.stdin = None
        assert peer.wait() == 0
        assert "Traceback" not in peer.stderr()


def test_a_client_that_closes_its_input_and_never_reads_does_not_hold_the_exit() -> None:
    with spawn(shutdown_grace=0.05) as peer:
        peer.handshake()
        peer.send(*(call(i, "huge", {"mib": 1}) for i in range(4)))
        peer.end_input()
        assert peer.wait() == 0  # what fits in the pipe is there
        assert peer.rest().startswith(b'{"jsonrpc":"2.0","id":0,')


# -- signals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains(number: signal.Signals) -> None:
    with spawn() as peer:
        peer.handshake()
        peer.send(call(1, "wait", {"tag": "a"}), call(2, "sleep", {"seconds": 0.05}))
        peer.ask(request("p", "ping"))
        peer.send(call(3, "release"))
        got = [peer.recv()]
        peer.signal(number)
        got += parsed(peer.rest())
        assert {m["id"] for m in got} == {1, 2, 3}
        assert all("result" in m for m in got)
        assert peer.wait() == 0
        assert "Traceback" not in peer.stderr()


@pytest.mark.parametrize(("tool", "number"), [("hang", signal.SIGTERM), ("block", signal.SIGINT)])
def test_a_signal_gives_what_hangs_its_grace_time(number: signal.Signals, tool: str) -> None:
    with spawn(shutdown_grace=0.05) as peer:
        peer.handshake()
        peer.send(call(1, tool), request(2, "ping"))
        assert peer.recv()["id"] == 2
        peer.signal(number)
        assert strict(peer.rest())["error"]["code"] == -31006
        assert peer.wait() == 0


@every(
    ("tool", "first"),
    [("hang", signal.SIGTERM), ("block", signal.SIGINT), ("stubborn", signal.SIGTERM)],
)
def test_a_second_signal_ends_at_once(tool: str, first: signal.Signals) -> None:
    with spawn(shutdown_grace=3600) as peer:
        peer.ask(modern(9, "subscriptions/listen", {"notifications": {}}))
        peer.send(modern(1, "tools/call", {"name": tool}))
        peer.ask(modern(2, "server/discover"))
        peer.signal(first)
        peer.until(9)  # the end of the listen: the first signal has been seen
        peer.signal(signal.SIGTERM)
        assert peer.wait() == 0
        assert peer.rest() == b""


def test_a_signal_to_an_idle_server_on_files_ends_it(tmp_path: Path) -> None:
    """Its reader is blocked in a read that nothing interrupts."""
    ours, theirs = pty.openpty()
    with Raw(
        tool_server(),
        give=(theirs, os.open(tmp_path / "answers", os.O_WRONLY | os.O_CREAT)),
        take=(ours, None),
    ) as peer:
        peer.send(encode(request(1, "ping")))
        deadline = FOREVER
        while not (tmp_path / "answers").read_bytes():
            deadline -= 0.01
            assert deadline > 0
            subprocess.run(["sleep", "0.01"], check=True)
        peer.signal(signal.SIGTERM)
        assert peer.wait() == 0


# -- tools that end the process -------------------------------------------------------------------


@every("tool", ["leave", "leave_later", "leave_inline", "leave_from_thread"])
def test_sys_exit_in_a_tool_ends_the_server_after_its_answer(tool: str) -> None:
    with spawn() as peer:
        peer.handshake()
        stays = "stubborn" if tool == "leave" else "hang"  # one that the exit waits for a second
        peer.send(call(0, "hang"), call(1, stays), request(2, "ping"))
        assert peer.recv()["id"] == 2
        peer.send(call(3, tool, {"status": 7}))
        got = {m["id"]: m for m in parsed(peer.rest())}
        assert got[3]["result"]["isError"] is True
        assert text_of(got[3]) == f"Tool {tool} ended the server"
        assert peer.wait() == 7
        log = peer.stderr()
        assert f"tool {tool} ended the server: SystemExit(7); to fail the call alone, raise" in log
        assert log.count("Traceback") == log.count("SystemExit: 7") == 1


def test_keyboard_interrupt_in_a_tool_ends_the_server_as_in_any_program() -> None:
    with spawn() as peer:
        peer.handshake()
        peer.send(call(1, "interrupt"))
        assert strict(peer.rest())["result"]["isError"] is True
        assert peer.wait() in (-signal.SIGINT, 130, 1)
        assert "KeyboardInterrupt" in peer.stderr()


@pytest.mark.parametrize("tool", ["leave", "interrupt"])
def test_what_is_queued_leaves_whole_before_a_tool_ends_the_process(tool: str) -> None:
    with spawn() as peer:
        peer.handshake()
        arguments = {"status": 7} if tool == "leave" else {}
        peer.send(lines(call(1, "huge", {"mib": 1}), call(2, tool, arguments)))
        got = {m["id"]: m for m in parsed(peer.rest())}
        assert len(text_of(got[1]).encode()) == 1024 * 1024
        assert text_of(got[2]) == f"Tool {tool} ended the server"
        peer.wait()


def test_a_full_device_is_an_error_that_is_seen() -> None:
    theirs, ours = os.pipe()
    with Raw(
        tool_server(),
        give=(theirs, os.open("/dev/full", os.O_WRONLY)),
        take=(ours, None),
    ) as peer:
        peer.send(encode(request(1, "ping")))
        assert peer.wait() == 1
        # without a configuration, logging prints warnings and errors, nothing below
        first = peer.stderr().splitlines()[0]
        assert first == "connection lost: [Errno 28] No space left on device"


# -- failures are logged --------------------------------------------------------------------------


def test_a_traceback_is_on_stderr_only() -> None:
    with spawn() as peer:
        peer.handshake()
        answer = peer.ask(call(1, "fail", {"text": "broken"}))
        assert answer["result"] == {
            "content": [{"type": "text", "text": "broken"}],
            "isError": True,
        }
        assert peer.end() == 0
        assert "ValueError: broken" in peer.stderr()
        assert "raise ValueError(text)" in peer.stderr()


def test_an_unknown_loop_is_refused() -> None:
    with Raw(tool_server(), env={"WIRESPEED_LOOP": "trio"}) as peer:
        assert peer.rest() == b""
        assert peer.wait() == 1
        assert "neither uvloop nor asyncio" in peer.stderr()
