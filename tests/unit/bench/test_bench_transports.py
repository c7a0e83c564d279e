"""Runs over each transport on servers with one fault each: every call is counted as what became of
it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from lab.faulty import Faulty

from wirespeed.bench.arguments import Arguments
from wirespeed.bench.load import Load, Result
from wirespeed.bench.run import Run
from wirespeed.bench.work import Work
from wirespeed.client.connection.handshake import Era
from wirespeed.client.targets import as_target

pytestmark = pytest.mark.off_schema

CALLS, EVERY = 40, 10  # four calls have the fault
TIMEOUT = 2.0  # seconds; a busy machine may hold all up for a second

# Over a stream, where each message is for itself.
STREAM: dict[str, dict[str, int]] = {
    "none": {},
    "drop": {"missing": 4},
    "twice": {"duplicate": 4},
    "corrupt": {"wrong": 4},
    "other-id": {"missing": 4, "unexpected": 4},
    "text-id": {"wrong": 4},
    "float-id": {"wrong": 4},
    "error": {"protocol_errors": 4},
    "busy": {"refused": 4},
    "tool-error": {"tool_errors": 4},
    "garbage": {"unexpected": 4},
    "delay": {"missing": 4, "late": 4},
}
# Over HTTP an answer belongs to its request: nothing comes later than the time limit, as the
# request is over then.
EVENTS = STREAM | {
    "delay": {"missing": 4},
    "cut": {"missing": 4, "connection_losses": 4},
    "503": {"refused": 4},
    "500": {"protocol_errors": 4},
}
# One body has one message.
JSON = {name: counts for name, counts in EVENTS.items() if name != "twice"} | {
    "garbage": {"wrong": 4},
    "200": {"missing": 4},  # and no body
}
OF_LITE = ("none", "drop", "twice", "corrupt", "other-id", "tool-error", "garbage", "delay")
LITE = {name: STREAM[name] for name in OF_LITE}
# There is no id.
LITE_HTTP = {name: JSON[name] for name in (*OF_LITE, "cut", "503", "500") if name in JSON}
del LITE_HTTP["other-id"]

ROWS: dict[str, dict[str, dict[str, int]]] = {
    "tcp": STREAM,
    "ws": STREAM,
    "json": JSON,
    "events": EVENTS,
    "sse": EVENTS | {"delay": STREAM["delay"]},
    "lite-tcp": LITE,
    "lite-ws": LITE,
    "lite-http": LITE_HTTP,
}


async def measured(transport: str, fault: str) -> Result:
    lite = transport.startswith("lite-")
    text = "$text:24"
    arguments = Arguments([text], 0, None, True) if lite else Arguments({"text": text}, "text")
    load = Load(calls=CALLS, in_flight=4, warmup=0, timeout=TIMEOUT)
    async with Faulty(fault, EVERY, 1.5 * TIMEOUT).serving(transport) as url:
        work = Work("echo", arguments)
        era: Era = "auto" if fault == "none" and not lite else "legacy"
        return await Run(as_target(url), work, load, era=era, lite=lite).measure()


@pytest.mark.parametrize(
    "transports", [("tcp", "ws"), ("json", "events", "sse"), ("lite-tcp", "lite-ws", "lite-http")]
)
def test_each_fault_is_counted_as_what_it_is(
    run: Any, transports: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL, "wirespeed")
    rows = [(transport, fault) for transport in transports for fault in ROWS[transport]]

    async def main() -> list[Result]:
        # those that wait for their time limits do so together; the others one after another, so
        # that no call waits for the processor
        waiting = {row: measured(*row) for row in rows if "missing" in ROWS[row[0]][row[1]]}
        waited = dict(zip(waiting, await asyncio.gather(*waiting.values()), strict=True))
        return [waited[row] if row in waited else await measured(*row) for row in rows]

    found: dict[str, dict[str, dict[str, int]]] = {}
    for (transport, fault), result in zip(rows, run(main()), strict=True):
        counts = {name: count for name, count in result.counts.items() if count}
        assert counts.pop("ok") + sum(_of_calls(counts)) == CALLS, (transport, fault)
        found.setdefault(transport, {})[fault] = counts
        lite = transport.startswith("lite-")
        assert result.era == ("lite" if lite else "legacy")
        assert result.bytes.sent > CALLS * 24 < result.bytes.received
    assert found == {transport: ROWS[transport] for transport in transports}


def _of_calls(counts: dict[str, int]) -> list[int]:
    others = ("duplicate", "late", "unexpected", "connection_losses")
    return [count for name, count in counts.items() if name not in others]
