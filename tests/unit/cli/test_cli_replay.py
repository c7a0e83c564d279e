"""``wirespeed bench --replay``: a record is asked again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from lab.cli import CALCULATOR, one_line, wirespeed, wirespeed_each

HEADER = {"format": "wirespeed-record", "version": 1, "started": "2026-11-29T18:00:00Z"}


def written(path: Path, *messages: tuple[str, dict[str, object]], **header: object) -> str:
    lines: list[dict[str, object]] = [{**HEADER, "target": "x", **header}]
    for n, (sender, message) in enumerate(messages):
        text = json.dumps({"jsonrpc": "2.0", **message})
        lines.append({"t": n / 100, "from": sender, "connection": 1, "bytes": text})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def add(id: int, a: int, b: int, result: int) -> tuple[tuple[str, dict[str, object]], ...]:
    params = {"name": "add", "arguments": {"a": a, "b": b}}
    answer = {"content": [{"type": "text", "text": str(result)}]}
    answer["structuredContent"] = {"result": result}  # type: ignore[assignment]
    return (
        ("client", {"id": id, "method": "tools/call", "params": params}),
        ("server", {"id": id, "result": answer}),
    )


def test_a_recorded_exchange_is_replayed_with_all_answers_right(tmp_path: Path) -> None:
    record, target = str(tmp_path / "r"), ["--", *CALCULATOR]
    done = wirespeed(
        *("call", "--", sys.executable, "-m", "wirespeed", "record", "-o", record, *target),
        *("--", "add", '{"a": 1, "b": 2}'),
    )
    assert done.stdout == "3\n", done.stderr
    done = wirespeed("bench", "--replay", record, "--speed", "max", "--json", "-", *target)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["counts"]["ok"] == result["calls"] == result["load"]["calls"] == 2


def test_an_answer_that_differs_is_wrong_and_shown(tmp_path: Path) -> None:
    record = written(tmp_path / "r", *add(1, 1, 2, 3), *add(2, 2, 2, 5))
    line = ("bench", f"--replay={record}", "--speed", "10", "--fail-if", "wrong>0")
    done = wirespeed(*line, "--", *CALCULATOR)
    assert done.returncode == 1
    assert "wrong" in done.stdout
    first, *_, last = done.stderr.splitlines()
    assert first.startswith('wirespeed: tools/call add: result.content[0].text is "4", and was "5"')
    assert last == "wirespeed: --fail-if wrong>0 holds"
    assert wirespeed(*line, "--expect", "any", "--", *CALCULATOR).returncode == 0


def test_a_redacted_record_is_compared_by_kind(tmp_path: Path) -> None:
    record = written(tmp_path / "r", *add(1, 1, 1, 1), redacted=True)
    done = wirespeed("bench", "--replay", record, "--json", "-", "--", *CALCULATOR)
    assert json.loads(done.stdout)["counts"]["ok"] == 1
    said = "the record is redacted: answers are compared by their kind alone"
    assert done.stderr.startswith(f"wirespeed: {said}\n")


def test_wrong_lines(tmp_path: Path) -> None:
    record = written(tmp_path / "r", *add(1, 1, 1, 2))
    empty = written(tmp_path / "empty")
    broken = tmp_path / "broken"
    broken.write_text(Path(record).read_text()[:-20])
    replay = ("bench", "--replay", record)
    lines = {
        (*replay, "--calls", "5", "--", "x"): "--calls is not for --replay: the record says what",
        (*replay, "--rate", "5", "--", "x"): "--rate is not for --replay",
        (*replay, "--expect", "echo=a", "--", "x"): "--expect is any with --replay",
        (*replay, "--speed", "0", "--", "x"): "Invalid value for '--speed': '0' is not a speed",
        (*replay, "--lite", "--", "x"): "--lite is not for --replay",
        (*replay, "--processes", "2", "--", "x"): "--processes is not for --replay",
        (*replay, "x.py", "echo"): "one TARGET is enough",
        ("bench", "--speed", "2", "x.py", "echo"): "--speed is for --replay",
        ("bench", "--replay", empty, "--", "x"): f"{empty} has no request that a client could",
        ("bench", "--replay", str(broken), "--", "x"): f"{broken}, line 3: it is cut off",
    }
    for line, done in wirespeed_each(lines, tmp_path).items():
        assert done.returncode == 2, line
        assert one_line(done).startswith(lines[line])
    done = wirespeed("bench", "--replay", "/no/such", "--", "x")
    assert done.returncode == 3
    assert one_line(done) == "cannot read /no/such: No such file or directory"
