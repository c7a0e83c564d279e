"""As whom children run, and how much they may use."""

from __future__ import annotations

import json
import os
import pwd
import sys
from pathlib import Path
from typing import Any

import pytest
from lab.child import read_line
from lab.wording import raises

from wirespeed import ProcessLimits, Stdio
from wirespeed.errors import LaunchError
from wirespeed.transport.child.process import Child

REPORT = """
import json, os, resource, sys
limits = {name: resource.getrlimit(getattr(resource, "RLIMIT_" + name))
          for name in ("AS", "CPU", "NOFILE", "NPROC")}
print(json.dumps({"ids": [os.getuid(), os.getgid(), os.getegid()], "groups": os.getgroups(),
                  "env": dict(os.environ), "limits": limits, "argv": sys.argv[1:],
                  "cwd": os.getcwd()}), flush=True)
sys.stdin.read()
"""
LIMITS = ProcessLimits(memory=4_000_000_000, cpu=1000, files=100, processes=5000)


async def report(target: Stdio) -> dict[str, Any]:
    child = await Child.launch(target)
    try:
        found: dict[str, Any] = json.loads(await read_line(child))
        return found
    finally:
        await child.shutdown()


def python(**options: Any) -> Stdio:
    # a python that every user may start
    command = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    return Stdio(command, ["-c", REPORT, "a b", "$HOME", "'"], stderr="discard", **options)


async def test_limits(tmp_path: Path) -> None:
    found = await report(python(limits=LIMITS, cwd=tmp_path))
    n = -(-4_000_000_000 // 1024) * 1024
    assert found["limits"] == {
        "AS": [n, n], "CPU": [1000] * 2, "NOFILE": [100] * 2, "NPROC": [5000] * 2
    }  # fmt: skip
    assert found["argv"] == ["a b", "$HOME", "'"]  # no shell reads them
    assert found["cwd"] == str(tmp_path)
    before = await report(python())
    some = await report(python(limits=ProcessLimits(files=99)))
    assert some["limits"] == {**before["limits"], "NOFILE": [99, 99]}


async def test_a_child_above_its_limits_ends() -> None:
    hog = "x = bytearray(1 << 30)"
    target = Stdio(
        sys.executable, ["-c", hog], limits=ProcessLimits(memory=1 << 29), stderr="discard"
    )
    child = await Child.launch(target)
    assert await child.wait() == 1
    await child.shutdown()
    assert "MemoryError" in child.failure("x")
    target = Stdio(sys.executable, ["-c", "while 1: pass"], limits=ProcessLimits(cpu=1))
    child = await Child.launch(target)
    assert await child.wait() in (-9, -24)  # SIGKILL, SIGXCPU
    await child.shutdown()


@pytest.mark.parametrize(
    ("command", "reason"),
    [("no-such-program", "was not found on the server's PATH"), ("./none", "does not exist")],
)
async def test_a_command_that_is_not_there(command: str, reason: str) -> None:
    with pytest.raises(LaunchError, match=reason):
        await Child.launch(Stdio(command, limits=LIMITS))


async def test_a_limit_above_that_of_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda number: (1, 50))
    with raises(LaunchError):
        await Child.launch(python(limits=ProcessLimits(files=51)))


async def test_another_user() -> None:
    nobody = pwd.getpwnam("nobody")
    target = python(user="nobody", limits=ProcessLimits(files=100), cwd="/")
    if os.geteuid() != 0:
        with raises(LaunchError):
            await Child.launch(target)
        return
    found = await report(target)
    assert found["ids"] == [nobody.pw_uid, nobody.pw_gid, nobody.pw_gid]
    assert set(found["groups"]) <= {nobody.pw_gid}  # none of root's
    assert found["limits"]["NOFILE"] == [100, 100]
    env = found["env"]
    assert (env["USER"], env["LOGNAME"], env["HOME"]) == ("nobody", "nobody", nobody.pw_dir)
    found = await report(python(user="nobody", group="daemon", env={"HOME": "/tmp"}, cwd="/"))
    assert found["ids"][0] == nobody.pw_uid
    assert found["ids"][1] != nobody.pw_gid
    assert found["env"]["HOME"] == "/tmp"


@pytest.mark.parametrize("fields", [{"user": "nobody"}, {"group": "daemon"}])
async def test_a_capability_is_not_enough(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, str]
) -> None:
    # As of a process with CAP_SETUID: the system would let it change the user.
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with raises(LaunchError):
        await Child.launch(python(**fields, cwd="/"))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"user": "no-such-user"}, "there is no user 'no-such-user'"),
        ({"group": "no-such-group"}, "there is no group 'no-such-group'"),
    ],
)
async def test_nobody_of_that_name(fields: dict[str, str], reason: str) -> None:
    with pytest.raises(LaunchError, match=f"cannot start the server: {reason}"):
        await Child.launch(Stdio("true", **fields))


def test_what_a_limit_may_be() -> None:
    for value in (0, -1, True, 1.5, 1 << 62):
        with raises(ValueError):
            ProcessLimits(files=value)  # type: ignore[arg-type]
    assert "user='nobody'" in repr(Stdio("x", user="nobody"))
