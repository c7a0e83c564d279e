"""A server of MCP whose tool ``echo`` has one fault, in each call whose number is a multiple of N.

    python faulty_server.py FAULT N [SECONDS]

FAULT is drop, twice, corrupt, other-id, text-id, long-id, error, busy, tool-error, garbage, delay
(the answer comes SECONDS later), stall (the server reads nothing for SECONDS), mark (the answer is
right, and stderr gets a line), mark-and-drop, exit, or none.
"""

import json
import os
import sys
import threading
import time

fault, every = sys.argv[1], int(sys.argv[2])
seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0
lock = threading.Lock()


def say(message: object) -> None:
    line = message if isinstance(message, str) else json.dumps(message)
    with lock:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def answer(id: object, member: str, value: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": id, member: value}


def result(text: str, **more: object) -> dict[str, object]:
    return {"content": [{"type": "text", "text": text}], **more}


def call(id: int, n: int, text: str) -> None:
    right = answer(id, "result", result(text))
    if n % every or fault == "none":
        say(right)
    elif fault == "twice":
        say(right)
        say(right)
    elif fault == "corrupt":
        say(answer(id, "result", result(text[::-1] + "!")))
    elif fault == "other-id":
        say(answer(id + 2**45, "result", result(text)))
    elif fault == "text-id":
        say(answer(str(id), "result", result(text)))
    elif fault == "long-id":
        say(json.dumps(answer(0, "result", result(text))).replace('"id": 0', '"id": ' + "9" * 5000))
    elif fault == "error":
        say(answer(id, "error", {"code": -32603, "message": "no"}))
    elif fault == "busy":
        say(answer(id, "error", {"code": -31000, "message": "busy"}))
    elif fault == "tool-error":
        say(answer(id, "result", result(text, isError=True)))
    elif fault == "garbage":
        say("what?")
        say(right)
    elif fault == "delay":
        threading.Timer(seconds, say, (right,)).start()
    elif fault == "stall":
        time.sleep(seconds)
        say(right)
    elif fault in ("mark", "mark-and-drop"):
        if fault == "mark":
            say(right)
        sys.stderr.write(f"{n} calls\n")
        sys.stderr.flush()
    elif fault == "exit":
        os._exit(3)


n = 0
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        version = message["params"]["protocolVersion"]
        info = {"name": "faulty", "version": "1"}
        hello = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        say(answer(message["id"], "result", hello))
    elif method == "tools/list":
        tool = {"name": "echo", "inputSchema": {"type": "object"}}
        say(answer(message["id"], "result", {"tools": [tool]}))
    elif method == "tools/call":
        n += 1
        call(message["id"], n, message["params"]["arguments"]["text"])
    elif "id" in message:
        say(answer(message["id"], "error", {"code": -32601, "message": "Method not found"}))
