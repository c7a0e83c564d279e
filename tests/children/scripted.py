"""A server that does what a script says: argv[1] is the script (JSON), argv[2] the log.

The log gets a line {"start": pid} for each life and then every line that came in, before anything
is answered. A script is {"lives": [rules, ...]}: the rules of the first start, the second, and so
on; the last stay. Rules map what comes in to a list of actions. Looked up are, first found first:
"METHOD:TOOL#N", "METHOD:TOOL", "METHOD#N" (the Nth of this method), "METHOD", "*". The key "eof" is
the end of input, "start" what is done before anything comes in.

An action is ["result", {...}], ["error", {...}], ["raw", TEXT], ["sleep", SECONDS],
["stderr", TEXT], ["exit", STATUS], ["kill", SIGNAL], ["close", FD], ["ignore", SIGNAL],
["fill", N] (a text result of N bytes), ["flood", N] (N notifications), ["stop"] (reads no more),
["release"] (does what was put off), ["later", [actions]] (puts off). In texts, $ID is the
id, $TOKEN the progress token, $LISTEN the id of the last subscriptions/listen.
"""

import json
import os
import signal
import sys
import time

with open(sys.argv[1], encoding="utf-8") as file:
    lives = json.load(file)["lives"]
log = os.open(sys.argv[2], os.O_RDWR | os.O_CREAT | os.O_APPEND)
started = os.pread(log, 1 << 24, 0).count(b'{"start"')
rules = lives[min(started, len(lives) - 1)]
os.write(log, b'{"start": %d}\n' % os.getpid())
seen, listen, put_off = {}, "null", []


def send(text):
    data = text.encode("utf-8", "surrogateescape")
    while data:
        data = data[os.write(1, data) :]


def answer(id_, member, value):
    send(json.dumps({"jsonrpc": "2.0", "id": id_, member: value}, ensure_ascii=False) + "\n")


def perform(actions, message):
    id_ = message.get("id")
    token = ((message.get("params") or {}).get("_meta") or {}).get("progressToken")
    for name, *args in actions:
        if name in ("result", "error"):
            answer(id_, name, args[0])
        elif name == "raw":
            text = args[0].replace("$ID", json.dumps(id_)).replace("$TOKEN", json.dumps(token))
            send(text.replace("$LISTEN", listen) + "\n")
        elif name == "fill":
            answer(id_, "result", {"content": [{"type": "text", "text": "x" * args[0]}]})
        elif name == "flood":
            line = '{"jsonrpc":"2.0","method":"notifications/message","params":%s}\n'
            for i in range(args[0]):
                send(line % json.dumps({"level": "info", "data": i}))
        elif name == "sleep":
            time.sleep(args[0])
        elif name == "stderr":
            os.write(2, args[0].encode() + b"\n")
        elif name == "exit":
            os._exit(args[0])
        elif name == "kill":
            os.kill(os.getpid(), args[0])
        elif name == "close":
            os.close(args[0])
        elif name == "ignore":
            signal.signal(args[0], signal.SIG_IGN)
        elif name == "stop":
            while True:
                time.sleep(60)
        elif name == "later":
            put_off.append((args[0], message))
        elif name == "release":
            for later in put_off:
                perform(*later)
            put_off.clear()
        else:
            raise SystemExit(f"no action {name!r}")


perform(rules.get("start", []), {})
buffer = b""
while True:
    try:
        chunk = os.read(0, 1 << 16)
    except OSError:
        chunk = b""
        time.sleep(60)
    if not chunk:
        perform(rules.get("eof", []), {})
        break
    buffer += chunk
    *lines, buffer = buffer.split(b"\n")
    for line in lines:
        os.write(log, line + b"\n")
        message = json.loads(line)
        if isinstance(message, list):
            continue  # answers in a batch
        method = message.get("method", "")
        tool = (message.get("params") or {}).get("name", "")
        seen[method] = n = seen.get(method, 0) + 1
        if method == "subscriptions/listen":
            listen = json.dumps(message["id"])
        for key in (f"{method}:{tool}#{n}", f"{method}:{tool}", f"{method}#{n}", method, "*"):
            if key in rules:
                perform(rules[key], message)
                break
