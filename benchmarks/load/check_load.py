"""Checks the measuring programs themselves: do the load generators see every kind of fault?

    python benchmarks/load/check_load.py [--sanitize]

Runs them against servers that each do one thing wrong, and the echo child against odd lines.
`--sanitize` builds all with ASAN and UBSAN first.  Ends with status 1 if anything is missed.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent

# A server in Python whose answers pass through one fault; each acts on the 30th call.
FAULTY = r"""
import json, sys, time
fault = sys.argv[1]
count = 0
held = None
if sys.argv[2:] == ["websocket"]:
    import base64, hashlib, socket
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    peer, _ = listener.accept()
    stream = peer.makefile("rb")
    def frame(payload, head=0x81, mask=0):
        n = len(payload)
        size = bytes([mask | n]) if n < 126 else bytes([mask | 126]) + n.to_bytes(2, "big")
        if n > 65535: size = bytes([mask | 127]) + n.to_bytes(8, "big")
        peer.sendall(bytes([head]) + size + (b"\0" * 4 if mask else b"") + payload)
    def send(line):
        line = line.encode()
        if fault == "masked" and count == 30: return frame(line, mask=0x80)
        if fault == "binary" and count == 30: return frame(line, 0x82)
        if fault == "reserved" and count == 30: return frame(line, 0xC1)
        if fault == "fragment" and count == 30: frame(line[:9], 1); return frame(line[9:], 0x80)
        if fault == "goodbye" and count == 30: return frame(b"\x03\xe9", 0x88)
        if fault == "none-pings": frame(b"are you there", 0x89)
        frame(line)
    def frames():
        key = b""
        while (line := stream.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"sec-websocket-key:"): key = line.split(b":")[1].strip()
        if fault == "refused": peer.sendall(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        if fault == "accept": key = key.lower()
        magic = key + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
        accept = base64.b64encode(hashlib.sha1(magic).digest())
        extra = b"Sec-WebSocket-Extensions: permessage-deflate\r\n" if fault == "extension" else b""
        peer.sendall(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\n" + extra
                     + b"Sec-WebSocket-Accept: " + accept + b"\r\n\r\n")
        while True:
            head = stream.read(2)
            if len(head) < 2: return
            n = head[1] & 127
            if n > 125: n = int.from_bytes(stream.read(2 if n == 126 else 8), "big")
            mask, payload = stream.read(4), stream.read(n)
            payload = bytes(c ^ mask[i & 3] for i, c in enumerate(payload))
            if head[0] & 15 == 10: assert payload == b"are you there"
            if head[0] & 15 == 8:
                if fault == "late": send(echo(5, "late"))
                return frame(payload, 0x88)
            if head[0] & 15 == 1: yield payload
    lines = frames()
elif sys.argv[2:] == ["http"]:
    import socket
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    peer, _ = listener.accept()
    stream = peer.makefile("rb")
    said = []
    send = said.append
    def chunk(data): return b"%x\r\n%b\r\n" % (len(data), data)
    def respond():
        here = fault if count == 30 else ""
        texts = [line.encode() for line in said if here != "no-answer"]
        said.clear()
        streaming = len(texts) > 1 or fault == "none-events"
        if not texts and here != "no-answer":
            return peer.sendall(b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")
        status = b"HTTP/1.1 %d X\r\n" % (500 if here == "status" else 200)
        kind, end = b"application/json", b"0\r\n\r\n"
        if streaming or here in ("no-answer", "cut-event", "two-data"):
            kind, cut = b"text/event-stream", 2 if here == "cut-event" else 0
            blocks = [b": so\r\nevent: message\ndata: %b\r\n\r\n" % text for text in texts]
            if here == "two-data": blocks = [b"data: {\ndata: }\n\n"]
            pieces = [block[:len(block) - cut] for block in blocks]
        else:
            pieces = [text[at:at + 50] for text in texts for at in range(0, len(text), 50)]
        if here == "type": kind = b"text/plain"
        if here == "closes": status += b"Connection: close\r\n"
        body = b"".join(pieces)
        length = b"Content-Length: %d\r\n" % len(body)
        if here == "two-lengths": length += length
        if here == "no-length": length = b"X: y\r\n"
        chunks = b"".join(map(chunk, pieces))
        if here == "chunk-size": chunks = b"x" + chunks
        if here == "chunk-end": chunks = chunks.replace(b"\r\n", b"\r\n..", 2)
        if here == "trailer": end = b"0\r\nA: b\r\n\r\n"
        chunky = streaming or fault in ("none-chunks", "both", "chunk-size", "chunk-end", "trailer")
        if chunky: length, body = b"Transfer-Encoding: chunked\r\n", chunks + end
        if here == "both": length += b"Content-Length: 9\r\n"
        if here == "head": length = b"nonsense\r\n"
        peer.sendall(status + length + b"Content-Type: " + kind + b"\r\n\r\n" + body)
    def bodies():
        while True:
            size = 0
            while (line := stream.readline()) not in (b"\r\n", b""):
                if line.startswith(b"Content-Length:"): size = int(line.split(b":")[1])
            if line == b"":
                if fault == "late": send("{}"); respond()
                return
            yield stream.read(size)
            respond()
    lines = bodies()
else:
    lines = sys.stdin
    def send(line):
        sys.stdout.write(line + "\n"); sys.stdout.flush()
def result(id, value):
    return json.dumps({"jsonrpc": "2.0", "id": id, "result": value}, separators=(",", ":"))
def echo(id, text):
    return result(id, {"content": [{"type": "text", "text": text}], "isError": False})
for line in lines:
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
    for n in range(1, m["params"]["arguments"].get("count", 0) + 1):
        token = m["params"]["_meta"]["progressToken"]
        if count == 30 and n == 2:
            if fault == "few": continue
            if fault == "order": n = 3
            if fault == "token": token += 1
        say = {"jsonrpc": "2.0", "method": "notifications/progress",
               "params": {"progressToken": token, "progress": n}}
        if count == 30 and fault == "method": say["method"] = "notifications/message"
        send(json.dumps(say))
        if count == 30 and n == 3 and fault == "many":
            say["params"]["progress"] = 4
            send(json.dumps(say))
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
            half = echo(id, text)[:40]
            if lines is not sys.stdin:
                start = b"\x81\x7d" if sys.argv[2] == "websocket" else b"HTTP/1.1 2"
                peer.sendall(start + half.encode())
                sys.exit(0)
            sys.stdout.write(half); sys.stdout.flush(); sys.exit(0)
    send(echo(id, text))
if fault == "late" and lines is sys.stdin: send(echo(5, "late"))
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

# the same on WebSocket, where it differs: what ends the connection, and faults of frames
ON_WEBSOCKET = {
    "crash": (1, "closed the connection"),
    "half-line": (1, "closed the connection"),
    "refused": (1, "the upgrade was refused"),
    "accept": (1, "a wrong Sec-WebSocket-Accept"),
    "extension": (1, "an extension"),
    "masked": (1, "masking"),
    "binary": (1, "not text"),
    "reserved": (1, "reserved bit"),
    "fragment": (1, "a fragment"),
    "goodbye": (1, "said goodbye"),
    "none-pings": (0, ""),
}
# on HTTP, where it differs: what ends the connection, and faults of responses and streams
GONE = (1, "a response without the answer")
ON_HTTP = {
    "crash": (1, "closed the connection"),
    "half-line": (1, "closed the connection"),
    "lost": (1, "a status that is not 200"),
    "late": (1, "bytes behind the last response"),
    **dict.fromkeys(("string-id", "foreign-id"), (1, "not sent")),
    **dict.fromkeys(("zero-id", "trailing"), (1, "malformed")),
    "not-json": (1, "not a JSON object"),
    "no-jsonrpc": (1, "jsonrpc"),
    "none-chunks": (0, ""),
    "none-events": (0, ""),
    "status": (1, "a status that is not 200"),
    "no-answer": GONE,
    "cut-event": (1, "an event without its end"),
    "two-data": (1, "data of two lines"),
    "type": (1, "another type"),
    "closes": (1, "the server closes the connection"),
    "two-lengths": (1, "two lengths"),
    "no-length": (1, "neither a length nor chunks"),
    "both": (1, "a length and chunks"),
    "head": (1, "not a field"),
    "chunk-size": (1, "not the size of a chunk"),
    "chunk-end": (1, "a chunk without its end"),
    "trailer": (1, "something behind the last chunk"),
}
# with three notifications of progress a call
WITH_PROGRESS = {
    "none": (0, ""),
    "few": (1, "out of order"),
    "order": (1, "out of order"),
    "many": (1, "too often"),
    "token": (1, "of another call"),
    "method": (1, "another notification"),
}
ONLY_STDIO = {"lingers"}  # how long a server lives after its connection is no business of ws_load
IN_FLIGHT = {"none-reversed"}  # several calls of a connection

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


def run_faulty(load: Path, script: str, fault: str, timeout: str) -> tuple[int, str, str]:
    """stdio_load against one faulty server: exit status, what it printed, what it complained."""
    arguments = ["--calls", "200", "--warmup", "10", "--window", "8", "--timeout", timeout]
    arguments += ["--grace", "0.5" if fault == "lingers" else "5"]
    run = subprocess.run(
        [load, *arguments, "--", sys.executable, script, fault],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return run.returncode, run.stdout, run.stderr


def run_faulty_tcp(
    load: Path, script: str, fault: str, timeout: str, transport: str, *options: str
) -> tuple[int, str, str]:
    """The same with a load generator over TCP."""
    with subprocess.Popen(
        [sys.executable, script, fault, transport], stdout=subprocess.PIPE, text=True,
        stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        assert server.stdout
        arguments = ["--port", server.stdout.readline().strip(), "--timeout", timeout]
        arguments += ["--calls", "200", "--warmup", "10", *options]
        run = subprocess.run(
            [load, *arguments], capture_output=True, text=True, timeout=60, check=False
        )
        server.kill()
    return run.returncode, run.stdout, run.stderr


def run_faulty_ws(load: Path, script: str, fault: str, timeout: str) -> tuple[int, str, str]:
    return run_faulty_tcp(load, script, fault, timeout, "websocket", "--window", "8")


def run_faulty_http(load: Path, script: str, fault: str, timeout: str) -> tuple[int, str, str]:
    return run_faulty_tcp(load, script, fault, timeout, "http", "--connections", "1")


def run_progress(load: Path, script: str, fault: str, timeout: str) -> tuple[int, str, str]:
    options = ("--connections", "1", "--progress", "3")
    return run_faulty_tcp(load, script, fault, timeout, "http", *options)


def check_faults(
    load: Path, faults: dict[str, tuple[int, str]],
    run_one: Callable[[Path, str, str, str], tuple[int, str, str]],
) -> list[str]:  # fmt: skip
    missed = []
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(FAULTY)
        script.flush()
        for fault, (status, reason) in faults.items():
            timeout = "1.5" if status == 3 else "20"
            got, said, complained = run_one(load, script.name, fault, timeout)
            if got != status or reason not in said:
                missed.append(f"{load.name}, {fault}: status {got}, {said.strip()}")
            elif json.loads(said)["correct"] != (status == 0):
                missed.append(f"{load.name}, {fault}: correct is not {status == 0}")
            if complained:
                missed.append(f"{load.name}, {fault}: stderr {complained}")
    return missed


LOADS = (["--window", "1"], ["--size", "100000"], ["--spin", "yes", "--burst", "3"])


def check_load(load: Path, child: Path) -> list[str]:
    missed = []
    for era in ("legacy", "modern"):
        for options in LOADS:
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


def check_tcp(build: Path) -> list[str]:
    """The programs over TCP with each other: nothing may be found wrong."""
    ws, http = build / "ws_load", build / "http_load"
    many = ["--connections", "150", "--sources", "3"]
    eras = ("legacy", "modern")
    runs: list[tuple[str, list[str], list[str | Path]]] = [
        ("echo_ws", ["--era", era], [ws, "--calls", "3000", "--era", era, *options])
        for era in eras
        for options in (*LOADS, [*many, "--window", "4"])
    ]
    runs += [
        ("echo_http", ["--era", era], [http, "--calls", "3000", "--era", era, *options])
        for era in eras
        for options in ([], ["--size", "100000"], ["--spin", "yes"], many)
    ]
    raw = ["--raw", "yes", "--size", "65536", "--calls", "2000"]
    runs += [("echo_ws", ["--raw", "yes"], [load, *raw]) for load in (ws, http)]
    runs.append(("echo_ws", [], [build / "ws_churn", "--seconds", "2", "--connections", "300"]))
    runs.append(("echo_ws", [], [ws, "--hold", "yes", "--connections", "500"]))
    missed = []
    for server, options, command in runs:
        with subprocess.Popen(
            [build / server, *options], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as echo:
            assert echo.stdin and echo.stdout
            port = echo.stdout.readline().strip()
            run = subprocess.run(
                [*command, "--port", port], stdin=subprocess.DEVNULL,
                capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            echo.stdin.close()
        right = run.returncode == 0 and all(
            json.loads(line)["correct"] for line in run.stdout.splitlines()
        )
        if not right or run.stderr or not run.stdout or echo.returncode != 0:
            missed.append(f"{server} {options}, {command}: {run.stdout} {run.stderr}")
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
    missed = check_faults(build / "stdio_load", FAULTS, run_faulty)
    missed += check_load(build / "stdio_load", build / "echo_child")
    missed += check_child(build / "echo_child")
    faults = dict(FAULTS)
    if sys.platform == "linux":
        on_websocket = {f: FAULTS[f] for f in FAULTS if f not in ONLY_STDIO} | ON_WEBSOCKET
        on_http = {f: FAULTS[f] for f in FAULTS if f not in {*ONLY_STDIO, *IN_FLIGHT}} | ON_HTTP
        missed += check_faults(build / "ws_load", on_websocket, run_faulty_ws)
        missed += check_faults(build / "http_load", on_http, run_faulty_http)
        missed += check_faults(build / "http_load", WITH_PROGRESS, run_progress)
        missed += check_tcp(build)
        faults |= on_websocket | on_http | WITH_PROGRESS
    for one in missed:
        print("MISSED", one)
    print(f"{len(faults)} servers, {len(LINES)} lines: {len(missed)} missed")
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
