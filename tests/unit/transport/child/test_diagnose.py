"""What the errors about children say."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from lab.child import (
    CHILDREN,
    shell,
)

from wirespeed.errors import ChildExited, LaunchError, TransportError
from wirespeed.transport.child.command import Stdio
from wirespeed.transport.child.process import Child, describe_status


async def test_failure_names_everything_but_env_values(tmp_path: Path) -> None:
    target = shell(
        "says_and_exits.sh",
        "3",
        "cannot open the database",
        env={"TOKEN": "s3cret"},
        cwd=tmp_path,
        stderr="discard",
    )
    child = await Child.launch(target)
    await child.wait()
    first, last = child.failure("no answer to initialize").splitlines()
    script = CHILDREN / "says_and_exits.sh"
    assert first == (
        f"no answer to initialize: command sh {script} 3 'cannot open the database', "
        f"directory {tmp_path}; the server exited with status 3; its stderr ends:"
    )
    assert last == "    cannot open the database"
    error = child.error("x")
    assert isinstance(error, ChildExited) and isinstance(error, TransportError)
    assert error.status == 3 and str(error) == child.failure("x")
    await child.shutdown()
    assert child.failure("x").endswith("cannot open the database")  # kept after the end
    assert "s3cret" not in first + repr(child) + repr(target)


async def test_failure_of_a_living_child() -> None:
    child = await Child.launch(Stdio("cat", ["-", "a\nb" * 1000], stderr="discard"))
    os.kill(child.pid, signal.SIGSTOP)
    text = child.failure("it printed a line that is not JSON")
    assert f"the server is still running (pid {child.pid})" in text
    assert "\n" not in text and "…, directory" in text and len(text) < 1500
    os.kill(child.pid, signal.SIGKILL)
    assert await child.wait() == -signal.SIGKILL
    assert "was killed by SIGKILL; it wrote nothing to stderr" in child.failure("x")
    await child.shutdown()


def _script(path: Path, text: str, mode: int = 0o755) -> str:
    path.write_text(text)
    path.chmod(mode)
    return str(path)


async def test_launch_errors(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    plain = _script(tmp_path / "plain", "#!/bin/sh\n", 0o644)
    orphan = _script(tmp_path / "orphan", "#!/no/such/interpreter -x\n")
    garbage = _script(tmp_path / "garbage", "\x7fELF nonsense\n")
    cases: list[tuple[Stdio, str]] = [
        (
            Stdio("no-such-command"),
            "'no-such-command' was not found on the server's PATH; install it, or write its whole",
        ),
        (
            Stdio("sh -c true", ["x"]),
            "give the arguments apart from the command: Stdio('sh', ['-c', 'true', 'x']): ",
        ),
        (Stdio("sh -c s3cret", shown=["sh"]), "; give the arguments apart from the command: com"),
        (Stdio("sh", env={"PATH": "/no/such"}), "'sh' was not found on the server's PATH"),
        (Stdio("./nope", cwd=tmp_path), f"'./nope' (that is {tmp_path}/./nope) does not exist"),
        (Stdio(f"{plain}/x"), "does not exist"),
        (Stdio(plain), f"'{plain}' is not executable"),
        (Stdio("plain", env={"PATH": str(tmp_path)}), f"'plain' (that is {plain}) is not exec"),
        (Stdio(tmp_path / "folder"), "is a directory"),
        (Stdio(orphan), "the interpreter '/no/such/interpreter' that"),
        (Stdio(garbage), "is not a program for this system"),
        (Stdio("cat", cwd=tmp_path / "gone"), "the working directory does not exist"),
        (Stdio("cat", cwd=plain), "the working directory is not a directory"),
        (Stdio("cat", ["\udc00\ud800"]), "surrogates not allowed"),
        (Stdio("cat", stderr=tmp_path / "gone" / "log"), "cannot open"),
    ]
    for target, expected in cases:
        with pytest.raises(LaunchError) as caught:
            await Child.launch(target)
        text = str(caught.value)
        assert expected in text
        assert text.endswith(f": command {target.command_line}, directory {target.directory}")
        assert "\n" not in text


def test_signals_in_words() -> None:
    assert describe_status(0) == "exited with status 0"
    assert describe_status(-9) == "was killed by SIGKILL"
    assert describe_status(-250) == "was killed by signal 250"
    assert describe_status(None) == "ended with an unknown status"
