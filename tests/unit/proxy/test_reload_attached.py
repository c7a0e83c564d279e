"""A reload keeps what is attached to servers: for changed, added and unchanged ones."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from lab.principals import client, principal
from lab.proxy import MODERN
from lab.reload import ReloadLab, server

from wirespeed.errors import RemoteError
from wirespeed.protocol.codes import INVALID_PARAMS, OVERLOADED, SERVER_LOST
from wirespeed.proxy import (
    AdminConfig,
    BackendConfig,
    BreakerConfig,
    FlowConfig,
    ProxyConfig,
    RateConfig,
    RetryConfig,
    ToolRules,
)

pytestmark = [pytest.mark.off_schema]


class Tracer:
    """Notes the calls of which it makes spans."""

    def __init__(self) -> None:
        self.ended: list[str] = []

    def begin(self, asker: Any, answerer: Any, message: Any) -> tuple[Any, None]:
        tracer = self

        class Span:
            def end(self, code: int) -> None:
                if message.method == "tools/call":
                    tracer.ended.append(answerer.name)

        return Span(), None


class Attached:
    """A proxy with everything attached."""

    def __init__(self, folder: Path, *names: str, isolation: str, versions: str) -> None:
        self.folder = folder
        self.audit = folder / "audit"
        self.isolation, self.versions = isolation, versions
        self.lab = ReloadLab(folder, *map(self.server, names))
        self.lab.config = ProxyConfig(
            backends=tuple(map(self.server, names)),
            listen=("http://127.0.0.1:0/mcp",),
            audit=str(self.audit),
            admin=AdminConfig(listen="http://127.0.0.1:0", token="of-the-operator"),
            principals=(
                principal("root", rate=RateConfig(requests=1e6, burst=100_000)),
                principal("anne", tools=ToolRules(deny=("*fail",))),
                principal("bob", rate=RateConfig(requests=0.001, burst=2)),
            ),
        )
        self.tracer = Tracer()
        self.n_calls: dict[str, int] = {}
        self.n_starts: dict[str, int] = {}

    def server(self, name: str, mark: str = "") -> BackendConfig:
        return server(
            self.folder,
            name,
            mark=mark,
            versions=self.versions,
            isolation=self.isolation,
            flow=FlowConfig(tools={"hold": 1}, max_queued=0),
            breaker=BreakerConfig(failures=2, pause=1000.0),
            retry=RetryConfig(tools=("once",)),
        )

    def url(self, name: str) -> str:
        urls = [url for group in self.lab.urls for url in group]
        return next(url for url in urls if url.endswith("/mcp")).replace("/mcp", f"/servers/{name}")

    def counted_of(self, name: str) -> int:
        """The calls of a server that have ended, as they are measured."""
        observer = self.lab.proxy.services[name].meter.observer
        assert observer is not None
        found = [one for one in observer.series.values() if one.method == "tools/call"]
        return sum(one.buckets[-1] for one in found)

    def started(self, name: str, *, is_new: bool) -> None:
        """The counter of the starts of a server goes on. ``is_new``: A reload has changed it."""
        n = self.lab.proxy.services[name].meter.starts["starts"]
        assert n >= self.n_starts.get(name, 0) + is_new
        self.n_starts[name] = n

    async def works(self, name: str, era: str, n: int) -> None:
        """Everything is at work for a server."""
        counted = self.counted_of(name) if self.n_calls.get(name) else 0
        assert counted >= self.n_calls.get(name, 0)  # counters do not begin anew
        audited = len(self.lines())
        traced = len(self.tracer.ended)
        async with client(self.url(name), "anne", era) as anne:
            await anne.call_tool("echo", {})
            with pytest.raises(RemoteError) as refused:
                await anne.call_tool("fail", {})  # a rule of her principal
            assert refused.value.code == INVALID_PARAMS
            async with client(self.url(name), "root", era) as root:
                begun = asyncio.Event()
                held = asyncio.ensure_future(
                    root.call_tool(
                        "hold", {"as": str(n)}, on_progress=lambda *_progress: begun.set()
                    )
                )
                await begun.wait()
                if self.isolation == "shared":
                    with pytest.raises(RemoteError) as refused:
                        await anne.call_tool("hold", {"as": "none"})  # a limit of the server
                    assert refused.value.code == OVERLOADED
                await root.call_tool("free", {"as": str(n)})
                await held
                if self.isolation == "shared":
                    await root.call_tool("once", {"as": f"{name}{n}"})  # sent again
                    assert (self.folder / f"seen-{name}.{name}{n}").exists()
        lines = self.lines()
        while len(lines) < audited + 3:
            await asyncio.sleep(0.01)
            lines = self.lines()
        noted = {
            (one.get("server"), one.get("tool"), one.get("principal")) for one in lines[audited:]
        }
        assert {(name, "echo", "anne"), (name, "hold", "root"), (name, "fail", "anne")} <= noted
        assert self.tracer.ended[traced:].count(name) >= 2
        self.n_calls[name] = self.counted_of(name)
        assert self.n_calls[name] >= counted + 2

    def lines(self) -> list[dict[str, Any]]:
        if not self.audit.exists():
            return []
        return [json.loads(line) for line in self.audit.read_text().splitlines()]


@pytest.fixture(autouse=True)
def once_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal with Retry-After is an error at once: clients do not send the call again."""
    monkeypatch.setattr("wirespeed.client.http.link.MAX_TRIES", 0)


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one", "several"])
@pytest.mark.parametrize(
    ("isolation", "versions", "era"),
    [("shared", MODERN, "modern"), ("shared", "", "legacy"), ("session", "", "legacy")],
)
async def test_everything_is_at_work_after_reloads(
    tmp_path: Path, isolation: str, versions: str, era: str, names: tuple[str, ...]
) -> None:
    all_of_it = Attached(tmp_path, *names, isolation=isolation, versions=versions)
    lab = all_of_it.lab
    async with lab.serving() as proxy:
        proxy.trace(all_of_it.tracer)
        while len(lab.urls) < 2:
            await asyncio.sleep(0.01)
        for name in names:
            await all_of_it.works(name, era, 0)
            all_of_it.started(name, is_new=True)
        bob = client(all_of_it.url("a"), "bob", era)
        with pytest.raises(RemoteError) as refused:
            async with bob as one:
                for _ in range(5):
                    await one.call_tool("echo", {})
        assert refused.value.code == OVERLOADED
        for n in range(1, 4):
            changed = {"a": str(n)}
            wanted = [*names, "c"] if n > 1 else [*names]
            changes = await lab.reload(
                *(all_of_it.server(name, changed.get(name, "")) for name in wanted)
            )
            assert changes.changed == ("a",)
            for name in wanted:
                await all_of_it.works(name, era, n)
                all_of_it.started(name, is_new=name == "a")
            # his bucket is not filled by a reload
            with pytest.raises((RemoteError, OSError)) as still:
                async with client(all_of_it.url("a"), "bob", era) as one:
                    for _ in range(2):
                        await one.call_tool("echo", {})
            assert "too many requests" in str(still.value)
        if isolation == "shared":
            async with client(all_of_it.url("a"), "root", era) as root:
                for _ in range(3):  # the breaker opens at the second
                    with pytest.raises(RemoteError) as lost:
                        await root.call_tool("crash", {})
                    assert lost.value.code == SERVER_LOST
            assert "it gets no requests" in str(lost.value)  # of the breaker
