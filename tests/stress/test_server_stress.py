"""20,000 mixed requests at once: each is answered exactly once, or cancelled and never answered."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest
from lab.raw import call, cancel, encode, initialize, modern, notification, request, surroundings
from lab.raw import tool_server as command

N = 20_000
DEADLINE = 240.0
SMALL = {"max_in_flight": 64, "output_high": 16384, "output_low": 1}
# of a hundred requests; `hang` and `late` are cancelled
SHARES = {
    "fast": 30, "inline": 20, "thread": 5, "slow": 15, "fail": 5, "unknown": 5, "bad": 5,
    "hang": 8, "late": 4, "report": 3,
}  # fmt: skip


class Driver:
    """A client on asyncio streams that writes and reads at the same time."""

    def __init__(self, process: asyncio.subprocess.Process, seed: int, *, is_modern: bool) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.writer, self.reader = process.stdin, process.stdout
        self.random = random.Random(seed)
        self.modern = is_modern
        self.expected: dict[Any, str] = {}
        self.cancelled: set[Any] = set()
        self.answers: Counter[Any] = Counter()
        self.results: dict[Any, Any] = {}
        self.last_progress: dict[Any, float] = {}
        self.room = asyncio.Semaphore(3000)
        self.done = asyncio.Event()

    def tool(self, id: Any, name: str, arguments: Any, **meta: Any) -> Any:
        if self.modern:
            return modern(id, "tools/call", {"name": name, "arguments": arguments}, **meta)
        return call(id, name, arguments, **meta)

    def make(self, i: int) -> tuple[Any, str, Any]:
        """A request: its id, what must come, the message."""
        id = i if i % 2 else f"é-{i}"
        (kind,) = self.random.choices(tuple(SHARES), tuple(SHARES.values()))
        if kind == "fast":
            return id, f"text:{i}", self.tool(id, "echo", {"text": str(i)})
        if kind == "inline":
            return id, f"text:{i + 1}", self.tool(id, "add", {"a": i, "b": 1})
        if kind == "thread":
            return id, f"text:{i} in it", self.tool(id, "in_thread", {"text": str(i)})
        if kind == "slow":
            seconds = self.random.random() * 0.02
            return id, "text:slept", self.tool(id, "sleep", {"seconds": seconds})
        if kind == "fail":
            return id, f"failed:{i}", self.tool(id, "fail", {"text": str(i)})
        if kind == "unknown":
            return id, "error:-32602", self.tool(id, "no such tool", {})
        if kind == "bad":
            return id, "error:-32600", {"jsonrpc": "1.0", "id": id, "method": "tools/list"}
        if kind == "report":
            message = self.tool(id, "report", {"steps": 5}, progressToken=i)
            return id, "text:reported", message
        return id, "cancelled", self.tool(id, kind, {})

    async def write(self) -> None:
        pending_cancels: list[Any] = []
        chunk = bytearray()
        for i in range(N):
            id, expected, message = self.make(i)
            self.expected[id] = expected
            if expected == "cancelled":
                self.cancelled.add(id)
                pending_cancels.append(id)
            else:
                await self.room.acquire()
            chunk += encode(message)
            if pending_cancels and self.random.random() < 0.3:
                self.random.shuffle(pending_cancels)
                for gone in pending_cancels:
                    chunk += encode(cancel(gone))
                    if self.random.random() < 0.1:
                        chunk += encode(cancel(gone))
                pending_cancels.clear()
            if self.random.random() < 0.02:
                # too late, or of nothing
                chunk += encode(cancel(self.random.randrange(N) + N))
            if len(chunk) > self.random.randrange(1, 40_000):
                at = self.random.randrange(len(chunk))  # anywhere, inside UTF-8 too
                self.writer.write(bytes(chunk[:at]))
                await self.writer.drain()
                self.writer.write(bytes(chunk[at:]))
                await self.writer.drain()
                chunk.clear()
                await asyncio.sleep(0)
        for gone in pending_cancels:
            chunk += encode(cancel(gone))
        self.writer.write(bytes(chunk))
        await self.writer.drain()

    async def read(self) -> None:
        while line := await self.reader.readline():
            message = json.loads(line)
            if "method" in message:
                self.notified(message)
                continue
            self.answers[message["id"]] += 1
            self.results[message["id"]] = message
            self.room.release()
            if message["id"] == "the end":
                self.done.set()

    def notified(self, message: Any) -> None:
        if message["method"] == "notifications/progress":
            token, value = message["params"]["progressToken"], message["params"]["progress"]
            id = token if token % 2 else f"é-{token}"
            assert self.answers[id] == 0, "progress after the response"
            assert value > self.last_progress.get(token, -1)
            self.last_progress[token] = value
        else:
            assert message["method"] == "notifications/message"

    def check(self) -> None:
        for id, expected in self.expected.items():
            if expected == "cancelled":
                assert self.answers[id] == 0, (id, self.results.get(id))
                continue
            assert self.answers[id] == 1, (id, expected, self.answers[id])
            kind, _, text = expected.partition(":")
            message = self.results[id]
            if kind == "error":
                assert message["error"]["code"] == int(text)
                continue
            result = message["result"]
            assert (kind == "failed") == bool(result.get("isError"))
            assert result["content"] == [{"type": "text", "text": text}]
            assert ("resultType" in result) == self.modern
        extra = set(self.answers) - set(self.expected) - {"init", "the end"}
        assert extra == set()


@pytest.mark.parametrize(
    ("limits", "is_modern", "loop"),
    [
        ({}, True, "uvloop"),
        ({}, False, "asyncio"),
        (SMALL, True, "asyncio"),
        (SMALL, False, "uvloop"),
    ],
)
def test_each_of_20k_mixed_requests_is_answered_once_or_cancelled(
    limits: dict[str, int], is_modern: bool, loop: str
) -> None:
    async def main() -> None:
        process = await asyncio.create_subprocess_exec(
            *command(limits=limits),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**surroundings(), "WIRESPEED_LOOP": loop},
            limit=1 << 24,
        )
        try:
            async with asyncio.timeout(DEADLINE):
                driver = Driver(process, seed=len(limits) * 4 + is_modern, is_modern=is_modern)
                if not is_modern:
                    driver.writer.write(encode(initialize("init")))
                    driver.writer.write(encode(notification("notifications/initialized")))
                reading = asyncio.create_task(driver.read())
                await driver.write()
                assert process.stdin is not None
                last = request("the end", "ping")
                process.stdin.write(encode(last))
                await process.stdin.drain()
                await driver.done.wait()
                process.stdin.close()  # what is still in flight is answered
                await reading
                assert await process.wait() == 0
                driver.check()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    with asyncio.Runner() as runner:
        runner.run(main())
