"""One endpoint of several servers, over HTTP: what a server says to a client of one kind says
nothing of the requests of others."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lab.merge import MergeLab
from lab.raw import surroundings

from wirespeed import Client, Stdio
from wirespeed.proxy import BackendConfig

# A server of 2026-07-28. Clients that can sample see other tools than those that cannot, and of
# the server "red" no resource.
SERVER = """
import json, sys

me = sys.argv[1]
for line in sys.stdin:
    m = json.loads(line)
    samples = "sampling" in m["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"]
    shown = [] if me == "red" and samples else [{"uri": "data://x", "name": "x"}]
    tool = {"name": "samples" if samples else "plain", "inputSchema": {"type": "object"}}
    found = {
        "server/discover": {
            "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}, "resources": {}},
        },
        "tools/list": {"tools": [tool]},
        "resources/list": {"resources": shown},
        "resources/templates/list": {"resourceTemplates": []},
        "resources/read": {"contents": [{"uri": "data://x", "text": me}]},
    }
    ttl = 0 if m["method"] == "resources/read" else 60_000
    rest = {"resultType": "complete", "ttlMs": ttl, "cacheScope": "private"}
    answer = {"jsonrpc": "2.0", "id": m["id"], "result": {**found[m["method"]], **rest}}
    print(json.dumps(answer), flush=True)
"""


def lab_of(folder: Path) -> MergeLab:
    lab = MergeLab(folder)
    lab.script.write_text(SERVER)
    for name in ("red", "blue"):
        target = Stdio(sys.executable, [str(lab.script), name], env=surroundings())
        lab.backends.append(BackendConfig(target=target, name=name, era="modern"))
    return lab


async def sample(_: Any) -> str:
    return "decline"


async def test_lists_of_clients_that_can_do_other_things(tmp_path: Path) -> None:
    """A list that a server lets one client keep is not that of the next one."""
    async with lab_of(tmp_path).serving("http://127.0.0.1:0/mcp") as (url, *_):
        for options, kind in (({"on_sample": sample}, "samples"), ({}, "plain")):
            async with Client(url, era="modern", **options) as client:  # type: ignore[arg-type]
                names = [tool.name for tool in await client.list_tools()]
                assert names == [f"red_{kind}", f"blue_{kind}"]


async def test_reads_of_clients_that_see_other_resources(tmp_path: Path) -> None:
    """The lists of the client itself say which server has a resource."""
    async with (
        lab_of(tmp_path).serving("http://127.0.0.1:0/mcp") as (url, *_),
        Client(url, era="modern") as plain,
        Client(url, era="modern", on_sample=sample) as samples,
    ):
        for client, owner in ((plain, "red"), (samples, "blue")) * 2:
            found = (await client.read_resource("data://x")).contents[0]
            assert found.text == owner  # type: ignore[union-attr]
