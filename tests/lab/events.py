"""A toy of events (the draft SEP-3415), as a third party would build it on `wirespeed.Extension`.
As a program it serves over stdio."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from wirespeed import Client, Context, Extension, Limits, Server

NAME = "com.example/events"
PREFIX = "notifications/events/"
BEAT = 0.05


class Stream(msgspec.Struct):
    name: str
    cursor: int | None = None


class Events:
    """The events of a server, all of them. A cursor is the number of those before."""

    def __init__(self, *names: str) -> None:
        self.kept: dict[str, list[Any]] = {name: [] for name in names}
        self.grown = asyncio.Condition()
        self.n_open = 0
        self.extension = Extension(
            NAME,
            requests={"events/list": self.list, "events/stream": self.stream},
            stays_open=["events/stream"],
            codes=[-31950],
        )

    async def emit(self, name: str, data: Any) -> None:
        async with self.grown:
            self.kept[name].append(data)
            self.grown.notify_all()

    async def list(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"events": [{"name": name, "delivery": ["push"]} for name in self.kept]}

    async def stream(self, params: Stream, ctx: Context) -> dict[str, Any]:
        kept = self.kept[params.name]
        at = len(kept) if params.cursor is None else params.cursor

        def say(kind: str, **members: Any) -> None:
            self.extension.notify(ctx, PREFIX + kind, {**members, "cursor": at})

        say("active")
        self.n_open += 1
        try:
            while True:
                try:
                    async with asyncio.timeout(BEAT), self.grown:
                        while len(kept) == at:
                            await self.grown.wait()
                except TimeoutError:
                    say("heartbeat")
                while at < len(kept):
                    at += 1
                    say("event", data=kept[at - 1])
        except asyncio.CancelledError:
            if ctx.cancelled:
                raise
            return {"cursor": at}  # the server shuts down
        finally:
            self.n_open -= 1


def event_server(events: Events) -> Server:
    """A server that works on one request at a time."""
    server = Server("shop", limits=Limits(max_in_flight=1))
    server.add_extension(events.extension)

    @server.tool
    async def order(what: str) -> int:
        await events.emit("orders", what)
        return events.n_open

    return server


class Heard:
    """One stream of a client, until `close`."""

    def __init__(self, client: Client, name: str, cursor: int | None = None) -> None:
        self.seen: list[tuple[str, dict[str, Any]]] = []
        self._more = asyncio.Event()
        params = {"name": name, "cursor": cursor}
        self.answer = asyncio.create_task(
            client.request("events/stream", params, timeout=None, on_notice=self._notice)
        )

    def _notice(self, method: str, params: dict[str, Any]) -> None:
        self.seen.append((method.removeprefix(PREFIX), params))
        self._more.set()

    async def until(self, kind: str, n: int = 1) -> list[dict[str, Any]]:
        """The params of the first n notifications of a kind."""
        while len(found := [params for one, params in self.seen if one == kind]) < n:
            self._more.clear()
            await self._more.wait()
        return found[:n]

    async def close(self) -> None:
        self.answer.cancel()
        await asyncio.gather(self.answer, return_exceptions=True)


if __name__ == "__main__":
    event_server(Events("orders", "returns")).run()
