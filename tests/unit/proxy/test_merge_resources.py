"""Resources behind one endpoint: each goes to its owner; completions, log levels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.proxy.merge_lab import MergeLab
from tests.unit.proxy.proxy_lab import call
from wirespeed import Client
from wirespeed.errors import RemoteError
from wirespeed.types import PromptRef


@pytest.fixture(params=["auto", "legacy"])
def era(request: pytest.FixtureRequest) -> Any:
    """Each era."""
    return request.param


async def read(client: Client, uri: str) -> Any:
    return (await client.read_resource(uri)).contents[0].text  # type: ignore[union-attr]


async def test_owners(tmp_path: Path, era: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A URI that two servers list is the first one's."""
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving(), Client(lab.url, era=era) as client:
        assert await read(client, "data://blue") == "own of blue"
        assert await read(client, "data://common") == "common of red"
        assert await read(client, "data://blue/x") == "x of blue"
        assert await read(client, "data://red/x") == "x of red"
        assert sorted(one.uri for one in await client.list_resources()) == [
            "data://blue", "data://common", "data://red",
        ]  # fmt: skip
        templates = [one.uri_template for one in await client.list_resource_templates()]
        assert templates == ["data://red/{key}", "data://blue/{key}"]
    assert "red and blue both have 'data://common' in resources: that of red is used" in caplog.text


async def test_a_resource_that_no_server_has(tmp_path: Path, era: Any) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving(), Client(lab.url, era=era) as client:
        with pytest.raises(RemoteError) as caught:
            await read(client, "data://nothing")
        assert caught.value.code == (-32602 if era == "auto" else -32002)


async def test_completions(tmp_path: Path, era: Any) -> None:
    lab = MergeLab(tmp_path, "red", "blue")
    async with lab.serving(), Client(lab.url, era=era) as client:
        got = await client.complete(PromptRef("blue_greet"), "whom", "A")
        assert got.values == ["A of blue"]


async def test_log_levels(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [lab.backend("red"), lab.backend("blue", isolation="shared")]
    async with lab.serving():
        client = await lab.connect()
        ask = {"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel"}
        assert (await client.ask({**ask, "params": {"level": "warning"}}))["result"] == {}
        for name in ("red", "blue"):
            answer = await client.ask(call(2, f"{name}_say", level="info"))
            assert answer["id"] == 2
            await client.send(call(3, f"{name}_say", level="error"))
            said = [await client.recv() for _ in range(2)]
            (logged,) = [one["params"] for one in said if "method" in one]
            assert (logged["level"], logged["data"]) == ("error", f"{name} says")
        error = (await client.ask({**ask, "params": {"level": "loud"}}))["error"]
        assert error["code"] == -32602


async def test_subscriptions(tmp_path: Path) -> None:
    lab = MergeLab(tmp_path)
    lab.backends = [lab.backend("red"), lab.backend("blue", isolation="shared")]
    async with lab.serving():
        client = await lab.connect()
        for name in ("red", "blue"):
            ask = {"jsonrpc": "2.0", "id": name, "params": {"uri": f"data://{name}"}}
            assert (await client.ask({**ask, "method": "resources/subscribe"}))["result"] == {}
            touch = {"name": f"{name}_touch", "arguments": {}}
            await client.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": touch})
            said = [await client.recv() for _ in range(2)]
            (updated,) = [one["params"] for one in said if "method" in one]
            assert updated["uri"] == f"data://{name}"
            assert (await client.ask({**ask, "method": "resources/unsubscribe"}))["result"] == {}
