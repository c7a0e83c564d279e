"""A LiteMCP calculator written from the pages alone, with the standard library.

The argument says how it writes: "pages" (pretty, no terminator but blank lines, as the example
shows), "compact" (one line each), "crlf", or "silent" (it ends its input without an answer).
"""

from __future__ import annotations

import json
import sys

STYLE = sys.argv[1]
VERSION = [1, 0, 0]
PARAMETERS = [
    {"name": "a", "type": "number", "description": "The first number", "example": "2"},
    {"name": "b", "type": "number", "description": "The second number", "example": "3"},
]


def write(message: dict) -> None:
    if STYLE == "compact":
        text = json.dumps(message) + "\n"
    else:
        text = json.dumps(message, indent=4) + "\n\n\n"
    if STYLE == "crlf":
        text = text.replace("\n", "\r\n")
    sys.stdout.buffer.write(text.encode())
    sys.stdout.buffer.flush()


def handle(request: dict) -> None:
    data = request["data"]
    if request["type"] == "get":
        kind = "info"
        answer = {
            "version": VERSION,
            "name": "Calculator",
            "description": "A simple calculator",
            "example": "Calculate the sum of 2 and 3",
            "parameters": PARAMETERS,
        }
    else:
        kind = "result"
        params = dict(zip(["a", "b"], data["arguments"], strict=False))
        try:
            content = {"type": "number", "data": str(int(params["a"]) + int(params["b"]))}
            error = False
        except (KeyError, ValueError) as exc:
            content, error = {"type": "text", "data": repr(exc)}, True
        answer = {
            "version": VERSION,
            "params": params,
            "response": {"content": [content], "error": error},
        }
    write({"version": VERSION, "id": request["id"], "type": kind, "data": answer})


if STYLE == "silent":
    print("I have nothing to say", file=sys.stderr, flush=True)
    sys.stdin.buffer.readline()
    sys.exit(3)
if STYLE == "chatty":
    print("Calculator 1.0 is starting: {ready}", flush=True)
buffer = ""  # what is no whole request yet
for line in sys.stdin:
    buffer += line.replace("\r\n", "\n")
    while "\n\n\n" in buffer:
        text, buffer = buffer.split("\n\n\n", 1)
        if text.strip():
            handle(json.loads(text))
