"""The example in C: the kernels alone say of a message what `wirespeed.core` says of it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from wirespeed.core import parse

pytestmark = pytest.mark.own_environment

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "examples" / "envelopes"
POINTS = ("params", "result", "error")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the example, with the program."""
    folder = tmp_path_factory.mktemp("example") / "envelopes"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("envelopes"))
    csrc = ROOT / "src" / "csrc"
    flags = "-O1 -Wall -Wextra -Wshadow -Werror"
    done = subprocess.run(
        ["make", "-s", f"CSRC={csrc}", f"CFLAGS={flags}"],
        cwd=folder,
        env=os.environ | {"MAKEFLAGS": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return folder


def told(folder: Path, text: bytes, level: str) -> list[str]:
    (folder / "input").write_bytes(text)
    done = subprocess.run(
        [folder / "envelopes", folder / "input"],
        env=os.environ | {"WIRESPEED_SIMD": level},
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().splitlines()


def expected(line: bytes) -> str:
    message = parse(line)
    if message.kind == "invalid" and message.fault == "parse":
        why, _, at = str(message.reason).rpartition(" at byte ")
        return f"{'invalid':12} {why or message.reason} at byte {at if why else len(line)}"
    words = [f"{message.kind:12}", text_at(line, "id"), text_at(line, "method")]
    for point in POINTS:
        lease = message.lease(point)
        if lease is not None:
            begin = bytes(message.raw or b"").index(bytes(lease))
            words.append(f"{point}[{begin}:+{len(lease)}]")
    return " ".join(words)


def text_at(line: bytes, point: str) -> str:
    lease = parse(line).lease(point)
    return "-" if lease is None else bytes(lease).decode()


@pytest.mark.parametrize(
    "level", ["scalar", "neon" if os.uname().machine == "aarch64" else "avx512"]
)
def test_it_says_what_the_core_says(folder: Path, level: str) -> None:
    text = (FOLDER / "messages.jsonl").read_bytes()
    lines = [line for line in told(folder, text, level) if not line.startswith("  ")]
    given = text.splitlines()
    assert len(lines) == len(given) == 10
    for line, said in zip(given, lines, strict=True):
        if not line.startswith(b"["):
            assert said == expected(line)


def test_the_elements_of_a_batch(folder: Path) -> None:
    batch = b'[{"jsonrpc":"2.0","id":5,"method":"ping"}, {"jsonrpc":"2.0","id":6,"result":{}}, 7]'
    first, *elements = told(folder, batch, "")
    assert first.split() == ["batch", "-", "-"]
    assert [one.split()[:3] for one in elements] == [
        ["request", "5", '"ping"'],
        ["result", "6", "-"],
        ["invalid", "-", "-"],
    ]


def test_a_large_file_and_none(folder: Path) -> None:
    line = b'{"jsonrpc":"2.0","method":"n"}'
    assert told(folder, (line + b"\n") * 5000 + line, "") == [f'{"notification":12} - "n"'] * 5001
    done = subprocess.run([folder / "envelopes", "/nonexistent"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (64, "usage: envelopes FILE\n")
