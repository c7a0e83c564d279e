"""``wirespeed bench``: loads from the command line, reports, conditions, refusals before a load."""

from __future__ import annotations

import contextlib
import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hdrh.histogram import HdrHistogram
from lab.bench import a_result
from lab.cli import CALCULATOR, DEADLINE, on_terminal, one_line, start, wirespeed
from lab.raw import CHILDREN
from lab.rows import every

from wirespeed.bench import compare
from wirespeed.bench.report import as_json
from wirespeed.cli.bench import runs
from wirespeed.cli.bench.runs import Choices

FAULTY = [sys.executable, "-S", str(CHILDREN / "faulty_server.py")]
ROOT = Path(__file__).resolve().parents[3]
LITE = [sys.executable, str(CHILDREN / "lite_server.py"), "calculator"]
TEXT = '{"text": "$text:64"}'
MEMBERS = [
    "target",
    "era",
    "transport",
    "load",
    "seconds",
    "calls",
    "rate",
    "counts",
    "latency_us",
    "service_time_us",
    "bytes",
    "server",
    "tool",
    "machine",
    "versions",
    "series",
    "latency_histogram",
    "startup",
]


def test_a_report_for_people(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    done = wirespeed(
        *("bench", "--calls", "2000", "--expect", "echo=text", "--json", str(path)),
        *("--", *FAULTY, "corrupt", "500", "--", "echo", TEXT),
        COLUMNS="100",
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"rate +[\d,]+ calls/s\n", done.stdout)
    assert re.search(r"load +2,000 calls in [\d.]+ s, 16 in flight on 1 connection\n", done.stdout)
    assert re.search(r"latency +p50 [\d.]+ .s  p90 .*  max ", done.stdout)
    rows = re.findall(r"^ +≤ [\d.]+ [µm]?s +(?:<?[\d.]+%|0)(?:  ■+)?$", done.stdout, re.MULTILINE)
    assert 3 <= len(rows) <= 13 and max(row.count("■") for row in rows) == 40
    assert re.search(r"answers +1,996 right\n +wrong +4 with a wrong answer\n", done.stdout)
    assert "all right" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100
    result = json.loads(path.read_text())
    assert list(result) == MEMBERS
    assert result["counts"]["ok"] == 1996 and result["counts"]["wrong"] == 4
    assert result["load"]["calls"] == 2000 and result["transport"] == "stdio"
    assert result["versions"]["server"] == "faulty 1"
    assert result["server"]["rss_peak"] > 2**20
    # Python starts in more than a millisecond; the last call of the warm-up is one of a warm server
    assert result["startup"]["cold_us"] > max(1000, result["startup"]["warm_us"])
    histogram = HdrHistogram.decode(result["latency_histogram"])
    assert histogram.get_total_count() == 1996
    assert histogram.get_value_at_percentile(99) / 1000 == result["latency_us"]["p99"]


def test_json_on_stdout_and_a_condition_that_holds() -> None:
    done = wirespeed(
        *("bench", "--calls", "300", "--json", "-", "--fail-if", "rate>1", "--fail-if", "wrong>0"),
        *("--", *CALCULATOR, "--", "add", '{"a": "$n", "b": 1}'),
    )
    assert done.returncode == 1
    assert json.loads(done.stdout)["counts"]["ok"] == 300
    assert "wirespeed: --fail-if rate>1 holds\n" in done.stderr and "wrong>0" not in done.stderr


def test_a_table_on_stdout() -> None:
    add = ("--", *CALCULATOR, "--", "add", '{"a": "$n", "b": 1}')
    done = wirespeed("bench", "--calls", "50", "--rounds", "2", "--csv", "-", *add)
    assert done.returncode == 0, done.stderr
    rows = list(csv.DictReader(done.stdout.splitlines()))
    assert [(row["round"], row["ok"]) for row in rows] == [("0", "50"), ("1", "50")]


def test_errors_have_no_secrets_of_the_command() -> None:
    command = ("no-such-program", "--api-key", "s3cret", "TOKEN=s3cret")
    for words in (
        ("bench", "--", *command, "--", "echo"),
        ("record", "-o", "/dev/null", "--", *command),
    ):
        done = wirespeed(*words)
        assert done.returncode == 3
        assert "no-such-program" in one_line(done) and "s3cret" not in done.stderr
    done = wirespeed(
        "bench", "--", sys.executable, "-S", "-c", "", "--api-key", "s3cret", "--", "t"
    )
    assert done.returncode == 3
    assert "exited with status 0" in done.stderr and "s3cret" not in done.stderr


def test_ctrl_c_shows_what_was_measured() -> None:
    process = start(
        *("bench", "--duration", "60", "--json", "-"),
        *("--", *FAULTY, "mark", "1000", "--", "echo", TEXT),
    )
    assert process.stderr is not None
    try:
        assert b"1000 calls" in process.stderr.readline()  # the load has begun
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 0, err
    result = json.loads(out)
    assert result["calls"] == result["counts"]["ok"] >= 900


@pytest.mark.parametrize("more", [(), ("--connections", "2", "--processes", "2")])
def test_a_second_ctrl_c_ends_the_program(more: Sequence[str]) -> None:
    process = start(
        *("bench", "--duration", "60", "--timeout", "60", *more),
        *("--", *FAULTY, "mark-and-drop", "1000", "--", "echo", TEXT),
    )
    assert process.stderr is not None
    try:
        assert b"1000 calls" in process.stderr.readline()
        os.kill(process.pid, signal.SIGINT)  # the call without an answer is waited for a second
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.4)
        os.kill(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in err


def test_without_an_answer_no_bound_on_times_is_kept() -> None:
    done = wirespeed(
        *("bench", "--calls", "5", "--warmup", "0", "--timeout", "0.5", "--fail-if", "p99>5s"),
        *("--", *FAULTY, "drop", "1", "--", "echo", TEXT),
    )
    assert done.returncode == 1
    assert "missing" in done.stdout and "--fail-if p99>5s holds" in done.stderr


def test_a_server_that_is_lost_for_good(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    text = (CHILDREN / "faulty_server.py").read_text()
    # its second process is that of the load; there is no third
    gone = "import os\nif os.path.exists(__file__ + '.1'): os.unlink(__file__)\n"
    program.write_text(f"{gone}open(__file__ + '.1', 'w').close()\n{text}")
    command = [sys.executable, "-S", str(program), "exit", "50"]
    done = wirespeed("bench", "--calls", "500", "--warmup", "0", "--", *command, "--", "echo", TEXT)
    assert done.returncode == 3
    assert "connection_losses 1 " in done.stdout
    assert "the server was lost during the run" in done.stderr


def test_several_runs_are_a_table_and_a_list(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    done = wirespeed(
        *("bench", "--calls", "0.2k", "--bytes", "64,1k", "--rounds", "2", "--json", str(path)),
        *("--versus", shlex.join([*FAULTY, "corrupt", "100"]), "--expect", "echo=text"),
        *("--csv", str(tmp_path / "r.csv")),
        *("--fail-if", "wrong>0", "--", *FAULTY, "none", "1", "--", "echo", '{"text": "$text"}'),
        COLUMNS="100",
    )
    assert done.returncode == 1, done.stderr
    assert re.search(r"^A  .*none 1  stdio, legacy\nB  .*corrupt 100  stdio", done.stdout)
    rows = [line.split() for line in done.stdout.splitlines()[5:9]]
    # two of 200 calls in each round
    assert [(row[0], row[1], row[-1]) for row in rows] == [
        *(("A", "64", "µs"), ("B", "64", "4"), ("A", "1,024", "µs"), ("B", "1,024", "4")),
    ]
    assert (
        len(re.findall("^ +A +B +B/A", done.stdout, re.MULTILINE)) == 2
    )  # the two are compared, for each size
    assert (tmp_path / "r.csv").read_text().count("\n") == 9
    runs = json.loads(path.read_text())["runs"]
    found = [(run.get("round", 0), run["load"]["bytes"], run.get("versus", False)) for run in runs]
    assert found == [
        *((0, 64, False), (0, 64, True), (0, 1024, True), (0, 1024, False)),
        *((1, 64, False), (1, 64, True), (1, 1024, True), (1, 1024, False)),
    ]
    assert "wirespeed: --fail-if wrong>0 holds in run 2, 3, 6, 7\n" in done.stderr


def test_a_ramp_says_up_to_which_rate_the_server_keeps_up() -> None:
    done = wirespeed(
        *("bench", "--rate", "100..400", "--steps", "2", "--duration", "0.3", "--in-flight", "1"),
        *("--", *FAULTY, "stall", "1", "0.006", "--", "echo", TEXT),
    )
    assert done.returncode == 0, done.stderr
    # at 6 ms a call, one at a time, 400 a second are not possible
    rows = r"\n +100 .*\n +400 .*\n  keeps up (to 100 calls/s|at no step)\n$"
    assert re.search(rows, done.stdout)


def test_a_terminal_shows_a_run_that_goes_on() -> None:
    shown, status = on_terminal(
        [
            *("bench", "--duration", "1.2", "--bytes", "5,6", "--expect", "echo=text"),
            *("--", *FAULTY, "corrupt", "100", "--", "echo", '{"text": "$text"}'),
        ]
    )
    assert status == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert "run 2 of 2: 16 in flight on 1 connection, 6 bytes" in text
    assert re.search(r"rate +[\d,]+/s  [▁▂▃▄▅▆▇█]+", text)
    assert re.search(r"p50 +[\d.]+ .s  max .* right [\d,]+  not right \d+", text)


def test_processes_share_a_load(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    done = wirespeed(
        *("bench", "--calls", "1k", "--connections", "3", "--processes", "2", "--expect"),
        *("echo=text", "--json", str(path), "--warmup", "0"),
        *("--", *FAULTY, "corrupt", "100", "--", "echo", TEXT),
    )
    assert done.returncode == 0, done.stderr
    assert "on 3 connections, 2 processes" in done.stdout
    result = json.loads(path.read_text())
    # each server corrupts each hundredth of its own calls
    assert result["calls"] == 1000 and 8 <= result["counts"]["wrong"] <= 10
    assert result["counts"]["ok"] + result["counts"]["wrong"] == 1000
    assert result["load"]["connections"] == 3 and result["load"]["processes"] == 2
    histogram = HdrHistogram.decode(result["latency_histogram"])
    assert histogram.get_total_count() == result["counts"]["ok"]
    assert sum(window["ok"] for window in result["series"]) == result["counts"]["ok"]


@pytest.mark.parametrize("ended", [signal.SIGINT, signal.SIGKILL])
def test_processes_that_are_interrupted_or_end(ended: signal.Signals) -> None:
    process = start(
        *("bench", "--duration", "60", "--connections", "2", "--processes", "2", "--json", "-"),
        *("--", *FAULTY, "mark", "1000", "--", "echo", TEXT),
    )
    assert process.stderr is not None
    try:
        assert b"1000 calls" in process.stderr.readline()
        workers = [pid for pid in children(process.pid) if b"bench.processes" in command_of(pid)]
        assert len(workers) == 2
        os.kill(process.pid if ended == signal.SIGINT else workers[0], ended)
        out, err = process.communicate(timeout=DEADLINE)
    finally:
        process.kill()
    if ended == signal.SIGINT:
        assert process.returncode == 0, err
        result = json.loads(out)
        assert result["calls"] == result["counts"]["ok"] >= 900
    else:
        assert process.returncode == 70
        assert b"a process of the load ended by SIGKILL, without a result" in err
    for pid in workers:
        assert not command_of(pid)


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def command_of(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def test_comparisons(tmp_path: Path) -> None:
    a, b = tmp_path / "a.json", tmp_path / "b.json"
    a.write_bytes(as_json([a_result(), a_result(versus=True)], True))
    b.write_bytes(as_json([a_result(rate=100.0, era="legacy", p99=5000.0)], False))
    done = wirespeed("bench", "compare", str(a))
    assert done.returncode == 0, done.stderr
    assert re.search(r"calls/s +1,000 +1,000 +1.00 +0.\d\d to 1.\d\d  no diff", done.stdout)
    assert done.stdout.endswith("\nno difference: these runs differ by less than their noise\n")
    a.write_bytes(as_json([a_result()], False))
    done = wirespeed("bench", "compare", str(a), str(b))
    assert done.returncode == 0 and "a difference: " in done.stdout
    assert done.stderr == "wirespeed: the era differs: modern and legacy\n"
    done = wirespeed("bench", "compare", "--json", str(a), str(b))
    found = json.loads(done.stdout)
    assert found["differs"] and found["warnings"] == ["the era differs: modern and legacy"]
    assert found["comparisons"][0]["figures"]["rate"]["verdict"] == "lower"
    crowd = {"processors": [1], "others": "many"}
    a.write_bytes(as_json([a_result(machine=crowd, calls=0)], False))  # as nobody wrote it
    done = wirespeed("bench", "compare", str(a), str(b))
    assert done.returncode == 0 and "processors is [1] and 2" in done.stderr
    a.write_text("no report")
    for args, says in {
        (str(a), str(b)): "a.json is not a report of wirespeed bench --json: it is not JSON",
        (str(b),): "it has runs of one target: give a second report",
        (str(tmp_path / "c.json"), str(b)): "c.json: No such file",
        (): "compare takes two reports",
    }.items():
        done = wirespeed("bench", "compare", *args)
        assert done.returncode == 2 and says in one_line(done)


def test_a_run_that_cannot_be_made_leaves_those_before_it(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    # the fourth process is that of the third run
    gone = (
        "import os, sys\nopen(__file__ + '.n', 'a').write('x')\n"
        "if os.path.getsize(__file__ + '.n') > 3: sys.exit(1)\n"
    )
    program.write_text(gone + (CHILDREN / "faulty_server.py").read_text())
    done = wirespeed(
        *("bench", "--calls", "200", "--rounds", "5", "--json", "-"),
        *("--", sys.executable, "-S", str(program), "none", "1", "--", "echo", TEXT),
    )
    assert done.returncode == 3, done.stderr
    assert [run.get("round", 0) for run in json.loads(done.stdout)["runs"]] == [0, 1]
    assert "wirespeed: the server closed its output" in done.stderr


def test_what_fails_after_the_load_loses_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    html, table = tmp_path / "r.html", tmp_path / "r.csv"
    choices = Choices(**dict.fromkeys(Choices.__dataclass_fields__))  # type: ignore[arg-type]
    choices = replace(choices, json_file="/dev/full", csv_file=str(table), html_file=str(html))
    both = [a_result(), a_result(versus=True)]
    assert not runs._write(both, True, choices)
    out, err = capfd.readouterr()
    assert "calls/s" in out and out.endswith("by less than their noise\n")
    assert err == "wirespeed: cannot write /dev/full: No space left on device\n"
    assert table.stat().st_size and html.stat().st_size
    table.unlink(), html.unlink()
    monkeypatch.setattr(compare, "compare_all", lambda *args: [][0])
    with pytest.raises(IndexError):
        runs._write(both, True, choices)
    assert "calls/s" in capfd.readouterr().out
    assert table.stat().st_size and html.stat().st_size
    done = wirespeed(
        "bench", "--calls", "5", "--csv", "/dev/full", *("--", *CALCULATOR), "--", "add"
    )
    assert done.returncode == 74 and "latency" in done.stdout


def test_a_look_at_a_file_to_be_written_changes_nothing(tmp_path: Path) -> None:
    there, new = tmp_path / "there", tmp_path / "new"
    there.write_text("before")
    for path in (there, new):
        runs._check_output(str(path))
    assert there.read_text() == "before" and not new.exists()


@every(
    ("args", "code", "says"),
    [
        (["--calls", "0", "s.py", "t"], 2, "calls must be at least 1"),
        (["--calls", "5", "--duration", "1", "s.py", "t"], 2, "either calls or duration"),
        (["--rate", "-1", "s.py", "t"], 2, "rate must be above 0"),
        (["--rate", "1e400", "s.py", "t"], 2, "rate must be at most 10,000,000 a second"),
        (["--duration", "inf", "s.py", "t"], 2, "above 0 and below 1,000,000,000 seconds"),
        (["--calls", "1e400", "s.py", "t"], 2, "calls must be at most 1,000,000,000,000"),
        (["--warmup", "1e300", "s.py", "t"], 2, "warmup must be at most 1,000,000,000,000"),
        (["--rounds", "1e300", "s.py", "t"], 2, "there can be 10,000"),
        (["--bytes", "1e400", "s.py", "t", '{"x": "$text"}'], 2, "67108864 at most"),
        (["--pid", "0", "s.py", "t"], 2, "--pid 0: there is no such process"),
        (["--pid", "9" * 15, "s.py", "t"], 2, "there is no such process"),
        (["--csv", "/no/such", "s.py", "t"], 74, "cannot write /no/such: No such file"),
        (["--csv", "-", "--json", "-", "s.py", "t"], 2, "--json - and --csv - both print"),
        (["--html", "/", "s.py", "t"], 74, "cannot write /: Is a directory"),
        (["--json", "", "s.py", "t"], 74, "cannot write '': No such file"),
        (["s.py", "t", r'{"x": "\ud800"}'], 2, "half a surrogate pair"),
        (["--expect", "text", "s.py", "t"], 2, "--expect: it is any, echo=NAME, path=$.PATH:VALUE"),
        (["--expect", "echo=y", "s.py", "t", '{"x": "1"}'], 2, "no argument 'y'"),
        (["s.py", "t", '{"x": "$textt:5"}'], 2, "is not a placeholder"),
        (["s.py", "t", '{"x": "$file:/no/such"}'], 2, "cannot read /no/such"),
        (["--fail-if", "p99>5", "s.py", "t"], 2, "p99 has us, ms or s"),
        (["--fail-if", "wrong>0ms", "s.py", "t"], 2, "wrong has no unit"),
        (["--fail-if", "speed>1", "s.py", "t"], 2, "is not a condition"),
        (["--lite", "--era", "modern", "s.py", "t"], 2, "--era is for MCP"),
        (["--lite", *("--", *LITE), "--", "nothing"], 2, "no tool nothing; there are Calculator"),
        (["--lite", *("--", *LITE), "--", "Calculator", "[1, 2, 3]"], 2, "takes 2 arguments"),
        (["--lite", *("--", *LITE), "--", "Calculator", '{"c": 1}'], 2, "no parameter 'c'"),
        (["--expect", "path=sum", "s.py", "t"], 2, "path=sum is not a path and a value"),
        (["--expect", "schema=/no/such", "s.py", "t"], 2, "cannot read /no/such"),
        (["--users", "/no/such.toml", "s.py"], 2, "/no/such.toml: cannot read the file"),
        (["--users", "u.toml", "s.py", "t"], 2, "one TARGET is enough"),
        (["--log-level", "info", "s.py", "t"], 2, "--log-level is not for bench"),
        (["--seed", "-1", "s.py", "t"], 2, "seed must be at least 0"),
        (["--rate", "2e7", "s.py", "t"], 2, "rate must be at most"),
        (["http://192.0.2.1/mcp", "t"], 2, "needs --i-own-this-target"),
        (["there-is-no-such-file.py", "t"], 3, "there is no file"),
        (["--", "there-is-no-such-program", "--", "t"], 3, "there-is-no-such-program"),
        (["--rate", "5..", "s.py", "t"], 2, "is not a rate: write 5000, 5k or 1k..20k"),
        (["--rate", "5k..1k", "s.py", "t"], 2, "a ramp goes up"),
        (["--rate", "1k", "--steps", "5", "s.py", "t"], 2, "--steps is for a ramp"),
        (["--rate", "1k..2k", "--steps", "1", "s.py", "t"], 2, "a ramp has 2 to 1,000 steps"),
        (["--calls", "1.5", "s.py", "t"], 2, "is not a number: write 20000, 20k or 1M"),
        (["--connections", "1,x", "s.py", "t"], 2, "is not a list of numbers"),
        (["--connections", "0", "s.py", "t"], 2, "connections must be at least 1"),
        (["--bytes", "64,0", "s.py", "t", '{"x": "$text"}'], 2, "$text:N takes a number"),
        (["--bytes", "64", "s.py", "t", '{"x": "$text:5"}'], 2, '"$text", which is not in JSON'),
        (["s.py", "t", '{"x": "$text"}'], 2, "$text:N takes a number"),
        (["--processes", "0", "s.py", "t"], 2, "processes must be at least 1"),
        (["--processes", "2", "s.py", "t"], 2, "connections must be as many as processes at"),
        (
            ["--processes", "2", "--connections", "2", "--calls", "1", "s.py", "t"],
            2,
            "of 2 processes one has no share: calls must be at least 1",
        ),
        (["--rounds", "0", "s.py", "t"], 2, "--rounds must be at least 1"),
        (["--rounds", "1M", "s.py", "t"], 2, "these are 1,000,000 runs; there can be 10,000"),
        (["--versus", "'", "s.py", "t"], 2, "is not a command line"),
        (["--versus", "no.py", "--", *CALCULATOR, "--", "add"], 3, "there is no file"),
        (["--", *CALCULATOR, "--", "nothing"], 2, "there is no tool nothing; there are add"),
    ],
)
def test_what_is_refused_before_any_load(args: list[str], code: int, says: str) -> None:
    done = wirespeed("bench", *args)
    assert done.returncode == code, done.stderr
    assert says in one_line(done)


NAMED = """
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    tools = [{"name": "echo", "inputSchema": {"type": "object"}}]
    result = {"tools": tools, "content": [], "protocolVersion": "2025-06-18"}
    result["capabilities"] = {"tools": {}}
    result["serverInfo"] = {"name": "a\\x1b[31m", "version": "\\u202e"}
    if "id" in asked:
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
"""


def test_reports_have_no_secrets_and_no_control_characters(tmp_path: Path) -> None:
    files = [tmp_path / f"r.{kind}" for kind in ("json", "csv", "html")]
    done = wirespeed(
        *("bench", "--calls", "5", "--warmup", "0", "--era", "legacy"),
        *(word for file in files for word in (f"--{file.suffix[1:]}", str(file))),
        *("--", sys.executable, "-S", "-c", NAMED, "--api-key", "s3cret", "--", "echo"),
    )
    assert done.returncode == 0, done.stderr
    for text in (done.stdout, *(file.read_text() for file in files)):
        assert "--api-key …" in text
        assert "s3cret" not in text and "\x1b" not in text and "\u202e" not in text
    assert "a\\x1b[31m \\u202e" in files[1].read_text()


@pytest.mark.smoke
def test_a_run_on_a_server_of_ours() -> None:
    done = wirespeed("bench", "--calls", "500", "--", *CALCULATOR, "--", "add", '{"a": 1, "b": 2}')
    assert done.returncode == 0, done.stderr
    assert "all right" in done.stdout


def test_the_tool_of_a_server_of_litemcp() -> None:
    done = wirespeed(
        *("bench", "--lite", "--calls", "50", "--expect", "path=$.response.content[0].data:3"),
        *("--json", "-", "--", *LITE, "--", "Calculator", '{"b": 2, "a": "$choice:1|1.0"}'),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["era"] == "lite" and result["counts"]["ok"] == 50


def test_users_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text(
        """
[call.sum]
tool = "add"
arguments = { a = 1, b = 2 }
expect = "path=$.structuredContent.result:3"

[[user]]
name = "agent"
steps = [{ list = "tools" }, { call = "sum", times = 4 }]
"""
    )
    done = wirespeed(
        *("bench", "--users", str(path), "--calls", "100", "--json", "-"), *("--", *CALCULATOR)
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["counts"]["ok"] == 100
    (agent,) = result["users"]
    assert agent["name"] == "agent" and agent["calls"] == 100

    done = wirespeed("bench", "--users", str(path), "--calls", "10", "--", *CALCULATOR)
    assert re.search(r"\n  users     agent: 10 calls, p50 .*s, p99 .*s\n", done.stdout)

    path.write_text(path.read_text().replace('"add"', '"adds"'))
    done = wirespeed("bench", "--users", str(path), "--", *CALCULATOR)
    assert done.returncode == 2 and "there is no tool adds; there are add" in one_line(done)

    path.write_text('[[user]]\nname = "u"\nsteps = [{ method = "ping" }]\n')
    done = wirespeed("bench", "--era", "modern", "--users", str(path), "--", *CALCULATOR)
    assert done.returncode == 2 and "2026-07-28, which has no ping" in one_line(done)


def test_processes_share_users(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text(
        """
[call.echo]
arguments = { text = "$text:24" }
expect = "echo=text"

[[user]]
name = "a"
steps = [{ call = "echo", times = 2 }]

[[user]]
name = "b"
own_connection = true
weight = 0.1
steps = [{ list = "tools" }]
"""
    )
    done = wirespeed(
        *("bench", "--calls", "200", "--connections", "2", "--processes", "2", "--warmup", "0"),
        *("--seed", "4", "--users", str(path), "--json", "-", "--", *FAULTY, "corrupt", "10"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    one, other = result["users"]
    assert one["name"] == "a" and other["name"] == "b"
    assert one["calls"] + other["calls"] == result["calls"] == 200
    assert one["counts"]["wrong"] == result["counts"]["wrong"] > 10
    assert other["calls"] == other["counts"]["ok"] > 1
    histogram = HdrHistogram.decode(one["latency_histogram"])
    assert histogram.get_total_count() == one["counts"]["ok"]


def test_the_users_of_the_guide(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/measure-a-server.md").read_text()
    found = re.search(r'^```toml title="users.toml"\n(.*?)^```$', page, re.DOTALL | re.MULTILINE)
    assert found is not None
    path = tmp_path / "users.toml"
    path.write_text(found[1])
    target = [sys.executable, "-m", "wirespeed", "bench-target", "--delay", "30ms"]
    done = wirespeed(
        *("bench", "--users", str(path), "--calls", "150", "--seed", "2", "--json", "-"),
        *("--", *target, "--progress", "3"),
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    counts = {name: count for name, count in result["counts"].items() if count}
    assert counts.keys() == {"ok", "cancelled"}
    users = {user["name"]: user for user in result["users"]}
    assert list(users) == ["agent", "explorer", "impatient", "visitor"]
    assert all(user["calls"] for user in users.values())
    assert users["impatient"]["counts"]["cancelled"] == counts["cancelled"]
    assert users["agent"]["progress"] > 0
