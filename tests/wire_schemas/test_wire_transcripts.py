"""Transcripts: what is one message, and how runs are compared with the digest."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wire_transcripts
from wire_transcripts import Transcript

HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


def lines_of(folder: Path, *sent: bytes) -> list[bytes]:
    """The texts of a transcript of one connection."""
    transcript = Transcript()
    wire: Any = SimpleNamespace(framer=None)
    transcript.hear(wire, "made", b"")
    for data in sent:
        transcript.hear(wire, "sent", data)
    transcript.hear(wire, "received", b"nobody has sent this\n")
    transcript.write(folder / "main.txt")
    return sorted(line[9:] for line in (folder / "main.txt").read_bytes().splitlines())


def test_what_differs_from_run_to_run_is_left_out(tmp_path: Path) -> None:
    first = b'{"id":1,"result":{"text":"at 127.0.0.1:8080, in /tmp/a/b, 0.25 seconds"}}\n'
    second = b'{"id":20,"result":{"text":"at 127.0.0.1:9, in /tmp/c, 3 seconds"}}\n'
    assert lines_of(tmp_path, first, second[:9], second[9:]) == [
        b'{"id":#,"result":{"text":"at #:#, in /tmp/#, # seconds"}}'
    ]


def test_codes_revisions_and_statuses_stay(tmp_path: Path) -> None:
    error = b'{"id":7,"error":{"code":-32602,"message":"not in 2025-11-25"}}\n'
    assert lines_of(tmp_path, error) == [
        b'{"id":#,"error":{"code":-32602,"message":"not in 2025-11-25"}}'
    ]


def test_a_body_and_the_head_behind_it_are_two_messages(tmp_path: Path) -> None:
    body = b'{"id":1,"result":{}}'
    assert lines_of(tmp_path, (HEAD % 20 + body) * 2) == [
        b"Content-Length: #", b"HTTP/1.1 200 OK", b'{"id":#,"result":{}}',
    ]  # fmt: skip


def test_sizes_of_chunks_are_no_messages(tmp_path: Path) -> None:
    assert lines_of(tmp_path, b"1a\r\ndata: {}\r\n\r\n0\r\n\r\n") == [b"data: {}"]


def test_a_comparison_names_what_is_missing_and_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(wire_transcripts, "DIGEST", tmp_path / "digest.txt")
    runs = {
        "one": (b"both\n", b"first\n"),
        "two": (b"both\n", b"second\n"),
        "less": (b"other\n",),
    }
    for name, sent in runs.items():
        lines_of(tmp_path / name, *sent)

    def run(*arguments: str) -> int:
        folders = [str(tmp_path / one) if one in runs else one for one in arguments]
        monkeypatch.setattr(sys, "argv", ["wire_transcripts.py", *folders])
        return wire_transcripts.main()

    assert run("--freeze", "one", "two") == 0
    assert capsys.readouterr().out == "1 messages; 2 were not in each run\n"
    assert run("one", "two") == 0
    assert run("less") == 1
    missing, new, total = capsys.readouterr().out.splitlines()[-3:]
    assert missing == f"missing {wire_transcripts.name_of(b'both')}"
    assert new == f"new {wire_transcripts.name_of(b'other')} other"
    assert total == "1 messages are frozen, 1 are missing, 1 are new"
    with pytest.raises(SystemExit, match="no transcripts"):
        run("one", str(tmp_path / "nothing"))
