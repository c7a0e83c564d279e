"""The page of the core's messages, faults and errors agrees with the code."""

from __future__ import annotations

import builtins
import json
import re
from pathlib import Path

import mcp_types
import pytest
from lab.rows import every

from wirespeed import errors
from wirespeed.core import Limits, Message, Session, parse
from wirespeed.protocol import codes

pytestmark = pytest.mark.smoke

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "core-errors.md").read_text(encoding="utf-8")
CORE = ROOT / "src" / "wirespeed" / "_core"
LIMITS = Limits(max_depth=4, max_values=8, max_message=120)
ANSWERS = {"parse": (-32700, "Parse error: "), "request": (-32600, "Invalid request: ")}


def section(title: str) -> str:
    return PAGE.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def table(text: str) -> list[list[str]]:
    """The cells of the rows of a table, without its head."""
    return [line[2:-2].split(" | ") for line in text.splitlines() if line.startswith("| ")][1:]


_, FAULTS, EXAMPLES = re.split(r"\n(?=\| (?:fault|line) \|)", section("Invalid messages"))


def shown(line: str) -> tuple[Message, bytes]:
    """The message that a server's session shows of a line, and what it answers."""
    session = Session(limits=LIMITS)
    data = line.encode().replace(b"\\xff", b"\xff")
    if data.strip():
        session.receive_data(data + b"\n")
    else:
        session.receive_message(data)
    (message,) = session
    return message, b"".join(bytes(chunk) for chunk in session.data_to_send())


@every("row", table(EXAMPLES), ids=lambda row: f"{row[2]} {len(row[0])}")
def test_an_example(row: list[str]) -> None:
    line, fault, reason = row[0][1:-1], row[1].strip("`"), row[2]
    message, answer = shown(line)
    assert (message.kind, message.fault, message.reason) == ("invalid", fault, reason)
    if fault not in ANSWERS:
        assert answer == b""
        return
    code, before = ANSWERS[fault]
    error = json.loads(answer)
    assert error["error"] == {"code": code, "message": before + reason}
    assert error.get("id") == message.id


def test_every_fault_and_reason_has_an_example() -> None:
    rows = table(EXAMPLES)
    known = {row[1].strip("`") for row in rows}
    assert known == {row[0].strip("`") for row in table(FAULTS)}
    source = (CORE / "envelope.pyx").read_text()
    assert known == set(re.findall(r'"(\w+)"', re.findall(r"FAULT_NAMES = \(([^)]*)", source)[0]))
    source += (CORE / "reader.pyx").read_text()
    texts = re.findall(r"invalid_c\(\s*[^\"']*?f?([\"'])(.+?)\1,?\s*\)", source)
    texts += re.findall(r"(?:NO_USABLE_ID =|return) f?([\"'])((?:more|a result).+?)\1", source)
    texts += re.findall(r"f([\"'])(longer.+?)\1", source)
    assert len(texts) > 15
    for _, text in texts:
        words = re.escape(re.sub(r"\{.*?\}", "NUMBER", text)).replace("NUMBER", r"\d+")
        assert re.search(words, section("Invalid messages")), text


def test_the_kinds() -> None:
    rows = table(section("Kinds"))
    source = (CORE / "envelope.pyx").read_text()
    names = re.findall(r"KIND_NAMES = \(([^)]*)", source)[0]
    assert {row[0].strip("`") for row in rows} == set(re.findall(r'"(\w+)"', names))
    assert parse(b"[]").kind == "batch"


def test_the_codes() -> None:
    rows = table(section("Errors that a session sends"))
    for number, name, _ in rows:
        assert getattr(codes, name.strip("`")) == int(number)
    source = "".join((CORE / name).read_text() for name in ("session.pyx", "responder.pyx"))
    sent = {int(one) for one in re.findall(r"^    [A-Z_]+ = (-3\d+)", source, re.MULTILINE)}
    assert {int(row[0]) for row in rows} == sent


def test_the_exceptions() -> None:
    rows = table(section("Exceptions of SDKs"))
    for row in rows:
        for name in re.findall(r"`([A-Z]\w+)", row[1]):
            assert hasattr(errors, name) or hasattr(codes, name), name
        for name in re.findall(r"`([A-Z]\w+Error)` of", row[0]):
            assert issubclass(getattr(builtins, name), Exception)
        for name, number in re.findall(r"`([A-Z_]+)` \((-\d+)\)", row[2]):
            assert getattr(mcp_types, name) == int(number)
    assert len(rows) == 9
