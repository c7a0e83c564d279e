"""Checks the measuring programs themselves: does the load generator see every kind of fault?

    python benchmarks/load/check_load.py [--sanitize]

Runs it against servers that each do one thing wrong, and the echo child against odd lines.
`--sanitize` builds both with ASAN and UBSAN first.  Ends with status 1 if anything is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent

# A server in Python whose answers pass through one fault; each acts on the 30th call.
FAULTY = r"""
import json, sys, time
fault = sys.argv[1]
count = 0
held = None
def send(line):
    sys.stdout.write(line + "\n"); sys.stdout.flush()
def result(id, value):
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": value}, separators=(",", ":"))
def echo(id, text):
    return result(id, {"content": [{"type": "text", "text": text}], "isError": False})
for line in sys.stdin:
    m = json.loads(line)
    id, method = m.get("id"), m["method"]
    if id is None: continue
    if method == "initialize":
        version = "2024-11-05" if fault == "version" else "2025-06-18"
        send(result(id, {"protocolVersion": version, "capabilities": {},
                         "serverInfo": {"name": "f", "version": "1"}}))
        continue
    if method == "tools/list":
        name = "other" if fault == "unlisted" else "echo"
        send(result(id, {"tools": [{"name": name, "inputSchema": {"type": "object"}}]}))
        continue
    text = m["params"]["arguments"]["text"]
    count += 1
    if fault == "none-key-order":
        body = {"result": {"isError": False, "content": [{"text": text, "type": "text"}]}}
        send(json.dumps(body | {"id": id, "jsonrpc": "2.0"})); continue
    if fault == "none-notifications":
        send('{"jsonrpc":"2.0","method":"notifications/message","params":{"data":1}}')
    if fault == "none-reversed":
        if held is None: held = echo(id, text)
        else: send(echo(id, text)); send(held); held = None
        continue
    if count == 30:
        if fault == "error":
            send(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -1, "message": "no"}}))
            continue
        if fault == "is-error":
            content = [{"type": "text", "text": text}]
            send(result(id, {"content": content, "isError": True})); continue
        if fault == "twice": send(echo(id, text))
        if fault == "lost": continue
        if fault == "swapped-text": text = text.replace(":", ";", 1)
        if fault == "short-text": text = text[:-1]
        if fault == "long-text": text += "A"
        if fault == "padding": text = text[:-1] + "z"
        if fault == "string-id": id = str(id)
        if fault == "foreign-id": id += 100000
        if fault == "zero-id": send(echo(id, text).replace('"id":', '"id":0')); continue
        if fault == "not-json": send("hello"); continue
        if fault == "trailing": send(echo(id, text) + "x"); continue
        if fault == "no-jsonrpc": send(echo(id, text).replace('"2.0"', '"1.0"')); continue
        if fault == "no-result": send(json.dumps({"jsonrpc": "2.0", "id": id})); continue
        if fault == "request": send('{"jsonrpc":"2.0","id":1,"method":"ping"}')
        if fault == "crash": sys.exit(7)
        if fault == "half-line":
            sys.stdout.write(echo(id, text)[:40]); sys.stdout.flush(); sys.exit(0)
    send(echo(id, text))
if fault == "late": send(echo(5, "late"))
if fault == "lingers": time.sleep(60)
"""

# fault -> (exit status, a part of the reason)
FAULTS = {
    "none": (0, ""),
    "none-key-order": (0, ""),
    "none-notifications": (0, ""),
    "none-reversed": (0, ""),
    "version": (1, "another protocol revision"),
    "unlisted": (1, "not listed"),
    "error": (1, "an error answer"),
    "is-error": (1, "isError"),
    "twice": (1, "a second answer"),
    "lost": (3, "timed out"),
    "swapped-text": (1, "did not come back"),
    "short-text": (1, "did not come back"),
    "long-text": (1, "did not come back"),
    "padding": (1, "did not come back"),
    "string-id": (3, "not sent"),
    "foreign-id": (3, "not sent"),
    "zero-id": (3, "malformed"),
    "not-json": (3, "not a JSON object"),
    "trailing": (3, "malformed"),
    "no-jsonrpc": (3, "jsonrpc"),
    "no-result": (1, "neither"),
    "request": (1, "a request from"),
    "crash": (1, "closed its output"),
    "half-line": (1, "closed its output"),
    "late": (1, "a second answer"),
    "lingers": (1, "did not close its output"),
}

# what the echo child reads -> what it must answer
LINES = [
    (b'{"jsonrpc":"2.0","id":7,"method":"ping"}', b'"id":7,"result":{}'),
    (b'{"jsonrpc":"2.0","id":"a\\"b","method":"ping"}', b'"id":"a\\"b","result":{}'),
    (
        b'{"jsonrpc":"2.0","id":12345678901234567890123,"method":"ping"}',
        b'"id":12345678901234567890123,"result":{}',
    ),
    (b' { "method" : "ping" , "id" : -3 , "jsonrpc" : "2.0" } \r', b'"id":-3,"result":{}'),
    (
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":'
        b'{"text":"\\u00e9 \\\\\\" }]"}}}',
        b'"text":"\\u00e9 \\\\\\" }]"}],"isError":false',
    ),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nope"}}', b"-32602"),
    (b'{"jsonrpc":"2.0","id":1,"method":"server/discover","params":{}}', b"-32601"),
    (
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2026-07-28"}}',
        b'"protocolVersion":"2025-11-25"',
    ),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', b"-32600"),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', b"-32600"),
    (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', b"-32600"),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', b"-32600"),
    (b"[]", b"-32600"),
    (b"{", b"-32700"),
    (b'{"a":[1,}', b"-32700"),
    (b'{"a":"\\"}', b"-32700"),
    (b"[" * 200, b"-32700"),
    (b'{"jsonrpc":"2.0","method":"notifications/initialized"}', None),
    (b'{"jsonrpc":"2.0","id":1,"result":{}}', None),
    (b"", None),
]


def check_faults(load: Path, child: Path) -> list[str]:
    missed = []
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(FAULTY)
        script.flush()
        for fault, (status, reason) in FAULTS.items():
            timeout = "1.5" if status == 3 else "20"
            arguments = ["--calls", "200", "--warmup", "10", "--window", "8"]
            arguments += ["--timeout", timeout, "--grace", "0.5" if fault == "lingers" else "5"]
            run = subprocess.run(
                [load, *arguments, "--", sys.executable, script.name, fault],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            sample = json.loads(run.stdout)
            if run.returncode != status or reason not in run.stdout:
                missed.append(f"{fault}: status {run.returncode}, {run.stdout.strip()}")
            elif sample["correct"] != (status == 0):
                missed.append(f"{fault}: correct is {sample['correct']}")
            if run.stderr:
                missed.append(f"{fault}: stderr {run.stderr}")
    for era in ("legacy", "modern"):
        for options in (["--window", "1"], ["--size", "100000"], ["--spin", "yes", "--burst", "3"]):
            command = [load, "--calls", "3000", "--era", era, *options]
            run = subprocess.run(
                [*command, "--", child, "--era", era],
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            if run.returncode != 0 or run.stderr:
                missed.append(f"echo child, {era} {options}: {run.stdout} {run.stderr}")
    missing = subprocess.run(
        [load, "--", "/nonexistent/server"], capture_output=True, text=True, check=False
    )
    if missing.returncode != 2 or "cannot start" not in missing.stdout:
        missed.append(f"a command that is not there: {missing.stdout}")
    return missed


def check_child(child: Path) -> list[str]:
    missed = []
    for line, want in LINES:
        for tail in (b"\n", b""):
            run = subprocess.run([child], input=line + tail, capture_output=True, check=False)
            right = run.stdout == b"" if want is None else want in run.stdout
            if run.returncode != 0 or run.stderr or not right or run.stdout.count(b"\n") > 1:
                missed.append(f"{line[:80]!r}: {run.returncode} {run.stdout!r} {run.stderr!r}")
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sanitize", action="store_true")
    sanitize = parser.parse_args().sanitize
    build = HERE.parent / ".build" / ("sanitized" if sanitize else "")
    make = ["make", "-s", "-C", str(HERE), f"BUILD={build}"]
    if sanitize:
        make.append("CFLAGS_EXTRA=-fsanitize=address,undefined -fno-sanitize-recover=all")
    subprocess.run(make, check=True)
    load, child = build / "stdio_load", build / "echo_child"
    missed = check_faults(load, child) + check_child(child)
    for one in missed:
        print("MISSED", one)
    print(f"{len(FAULTS)} servers, {len(LINES)} lines: {len(missed)} missed")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
