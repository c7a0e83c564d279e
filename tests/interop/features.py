"""Every feature, with every peer, both ways and in both eras: what is expected, what was observed,
and the matrix in docs/interoperability.md that is made of it.

All servers offer the same things, and all clients (ours is `ours.py`) go through the same steps and
report what they saw:

    tools       add (structured, annotated), fail, count (progress), chatter (logs), wait and
                noticed (cancellation), grow (a new tool, prompt or resource), touch (a resource
                was updated), meta, slow (works as a task), ask_form, ask_url, ask_sample,
                ask_sample_tools, ask_roots (questions to the client), absent (what the SDK does
                not have: {feature: why})
    resources   text://hello, blob://bytes, the template item://{id}
    prompts     greet(name, tone), both arguments completed

A report is {feature: value}, where the value is {"absent": why} for what an SDK does not have,
{"code": …} for an error of the protocol and {"failed": …} for any other. What a peer does otherwise
than the specification says stands in `DEVIATIONS`; an entry goes when its peer changes.
"""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import ours
import pairings
import peers
import transcripts

PEERS = {"python2": "mcp", "fastmcp": "FastMCP", "ts2": "TypeScript"}
ERAS = {"legacy": pairings.LATEST_LEGACY, "modern": pairings.MODERN}
MATRIX = Path(__file__).resolve().parents[2] / "docs" / "interoperability.md"
OUR_SERVER = [sys.executable, str(peers.PROGRAMS / "our_features_server.py")]

ADA = {"name": "Ada", "age": 36}


def text(uri: str, value: str) -> dict[str, Any]:
    return {"uri": uri, "mimeType": "text/plain", "text": value}


@dataclass(frozen=True)
class Feature:
    """A row of the matrix."""

    title: str
    expected: Any
    eras: tuple[str, ...] = ("legacy", "modern")


FEATURES: dict[str, Feature] = {
    "instructions": Feature("instructions", "Try every feature."),
    "ping": Feature("ping", "pong", ("legacy",)),
    "tools": Feature("tools: list", ["add", "Add two numbers.", ["a", "b"]]),
    "structured": Feature(
        "tools: structured content, output schema", ["integer", {"result": 5}, "5"]
    ),
    "tool_error": Feature("tools: errors", [True, True]),
    "annotations": Feature(
        "tools: annotations",
        {"title": "Add up", "readOnlyHint": True, "destructiveHint": False},
    ),
    "titles": Feature("titles", ["Adder", "Greeting", "Hello"]),
    "icons": Feature(
        "icons",
        [{"src": "https://example.com/add.png", "mimeType": "image/png", "sizes": ["48x48"]}],
    ),
    "meta_of_things": Feature("`_meta` of a tool", "sum"),
    "meta_of_requests": Feature("`_meta` of requests and results", ["t-1", 42]),
    "resources": Feature(
        "resources: list",
        [
            ["blob://bytes", "bytes", "application/octet-stream"],
            ["text://hello", "hello", "text/plain"],
        ],
    ),
    "read_text": Feature("resources: read text", [text("text://hello", "Hello.")]),
    "read_blob": Feature(
        "resources: read bytes",
        [{"uri": "blob://bytes", "mimeType": "application/octet-stream", "blob": "AAECAw=="}],
    ),
    "templates": Feature("resource templates: list", [["item://{id}", "item", "text/plain"]]),
    "read_template": Feature("resource templates: read", [text("item://7", "item 7")]),
    "missing_resource": Feature("resources: error for a missing one", None),  # see `observed`
    "prompts": Feature(
        "prompts: list", ["greet", "Greet somebody.", [["name", True], ["tone", False]]]
    ),
    "get_prompt": Feature("prompts: get", [["user", "Greet Ada, tone cold."]]),
    "complete_prompt": Feature("completion: prompt argument", ["Ada", "Alan"]),
    "complete_template": Feature("completion: template variable", ["10", "11"]),
    "complete_context": Feature("completion: with known arguments", ["c for Ada"]),
    "logging": Feature(
        "logging", [[level, {"said": level}, "chatter"] for level in ("warning", "error")]
    ),
    "progress": Feature("progress", [[i, 3, f"step {i}"] for i in (1, 2, 3)]),
    "cancellation": Feature("cancellation", ["wait"]),
    "pagination": Feature("pagination", [True, True, True]),
    "tools_changed": Feature("changes: list of tools", True),
    "prompts_changed": Feature("changes: list of prompts", True),
    "resources_changed": Feature("changes: list of resources", True),
    "resource_updated": Feature("changes: a resource", "text://hello"),
    "elicitation_form": Feature(
        "elicitation: form",
        ["Who are you?", ["age", "name"], {"action": "accept", "content": ADA}],
    ),
    "elicitation_url": Feature(
        "elicitation: URL", ["Sign in.", "https://example.com/sign-in", {"action": "accept"}]
    ),
    "sampling": Feature("sampling", ["Capital of France?", 50, {"model": "m-1", "text": "Paris"}]),
    "sampling_tools": Feature(
        "sampling: with tools", [["look_up"], [["tool_use", "look_up", {"q": 1}]]]
    ),
    "roots": Feature("roots", [["file:///work", "work"]]),
    "tasks": Feature("tasks", "done"),
}


@dataclass(frozen=True)
class Way:
    """A session: with whom, which way and in which era."""

    peer: str
    serving: bool  # our server serves the peer's client; else our client calls its server
    era: str
    only: str = ""  # the one older revision that the server speaks
    over: str = "stdio"

    def __str__(self) -> str:
        way = "calls-us" if self.serving else "serves-us"
        peer = self.peer if self.over == "stdio" else f"{self.peer}-{self.over}"
        return f"{peer}-{way}-{self.only or self.era}"

    @property
    def version(self) -> str:
        return self.only or ERAS[self.era]

    @property
    def features(self) -> list[str]:
        return [name for name, feature in FEATURES.items() if self.era in feature.eras]


WAYS = [Way(peer, serving, era) for serving in (True, False) for peer in PEERS for era in ERAS]
# Beside the matrix: the older revisions, where one SDK can be told to speak nothing else.
OLDER = [
    Way(peer, serving, "legacy", version)
    for peer, serving in (("python2", True), ("ts2", True), ("python2", False))
    for version in pairings.OLDER
]
# Beside the matrix, too: its sessions over Streamable HTTP.
HTTP = [replace(way, over="http") for way in WAYS]
REFUSED = "the server cannot ask this"
# What our server gives to revisions before the one that has a feature; and what our client does not
# send to servers of them: known arguments of a completion.
BEFORE: dict[str, tuple[str, Any]] = {
    "structured": ("2025-06-18", [None, None, "5"]),
    "annotations": ("2025-03-26", None),
    "titles": ("2025-06-18", [None, None, None]),
    "icons": ("2025-11-25", None),
    "meta_of_things": ("2025-06-18", None),
    "complete_context": ("2025-06-18", ["c for None"]),
    "progress": ("2025-03-26", [[i, 3, None] for i in (1, 2, 3)]),
    "elicitation_form": ("2025-06-18", REFUSED),
    "elicitation_url": ("2025-11-25", REFUSED),
    "sampling_tools": ("2025-11-25", REFUSED),
}
# (peer, it serves us, era, feature): what it does
DEVIATIONS: dict[tuple[str, bool, str, str], str] = {
    (peer, False, "legacy", "missing_resource"): "Answers -32602, the code of 2026-07-28, where "
    "2025-11-25 has -32002; our client tells both as a missing resource"
    for peer in PEERS
}


@dataclass
class Held:
    """A session that was held."""

    way: Way
    report: dict[str, Any]
    runs: list[transcripts.Run]


@dataclass(frozen=True)
class Cell:
    """What became of one feature in one session."""

    state: str  # "works", "absent" or "deviates"
    note: str = ""
    seen: Any = None


def observed(held: Held, feature: str) -> Cell:
    """What a session showed of a feature."""
    way, report = held.way, held.report
    assert "failed" not in report, report["failed"]
    seen = report[feature]
    if isinstance(seen, dict) and "absent" in seen:
        return Cell("absent", seen["absent"])
    expected: Any = FEATURES[feature].expected
    since, earlier = BEFORE.get(feature, ("", None))
    if way.version < since and (way.serving or feature == "complete_context"):
        expected = earlier
    if isinstance(seen, dict) and "refused" in seen and expected == REFUSED:
        return Cell("works")
    if earlier == REFUSED and not way.serving and way.version < since:
        # this peer asks nevertheless, and our client says no
        return Cell("works" if seen.get("code") in (-32601, -32602) else "deviates", "", seen)
    if feature == "missing_resource":
        # on the wire: some clients tell one code as the other
        seen = [code for method, code in held.runs[-1].errors() if method == "resources/read"]
        expected = [-32602 if way.era == "modern" else -32002]
    if feature == "tasks":
        assert held.runs[-1].requests("tasks/get"), "the call was no task"
    if feature == "logging" and way.peer == "fastmcp" and not way.serving:
        # it wraps what is logged, which may be anything
        seen = [[level, data.get("extra"), logger] for level, data, logger in seen]
    if seen == expected:
        return Cell("works")
    return Cell("deviates", DEVIATIONS.get((way.peer, way.serving, way.era, feature), ""), seen)


# -- holding them ----------------------------------------------------------------------------------

Outcome = Held | Exception


def command(peer: str, role: str) -> list[str]:
    """What launches a peer's program: its "client" or "server"."""
    if role == "client":
        return pairings.client_command(peer)
    if peer == "fastmcp":
        return [peers.python(peer), str(peers.PROGRAMS / "fastmcp_server.py")]
    return [*pairings.server_command(peer), "--features"]


def hold(ways: list[Way], folder: Path) -> dict[Way, Outcome]:
    """Hold sessions, two at a time; their wires are written below the folder."""
    groups: dict[tuple[str, bool, str], list[Way]] = {}
    for way in ways:
        groups.setdefault((way.peer, way.serving, way.over), []).append(way)

    async def main() -> dict[Way, Outcome]:
        two = asyncio.Semaphore(2)
        found: dict[Way, Outcome] = {}
        for outcomes in await asyncio.gather(
            *(_group(two, group, folder) for group in groups.values())
        ):
            found |= outcomes
        return found

    with asyncio.Runner(loop_factory=pairings.loop_factory()) as runner:
        return runner.run(main())


async def _group(two: asyncio.Semaphore, ways: list[Way], folder: Path) -> dict[Way, Outcome]:
    peer, serving = ways[0].peer, ways[0].serving
    places = {way: folder / str(way) for way in ways}
    for place in places.values():
        place.mkdir()
    try:
        async with two:
            role = "client" if serving else "server"
            launch = await asyncio.to_thread(command, peer, role)
            hold_all = _their_client if serving else _our_client
            reports = await hold_all(launch, places)
    except Exception as exc:
        return dict.fromkeys(ways, exc)
    return {way: Held(way, reports[way], transcripts.runs(places[way])) for way in ways}


async def _their_client(launch: list[str], places: dict[Way, Path]) -> dict[Way, dict[str, Any]]:
    first = next(iter(places.values()))
    job, report = first.with_suffix(".job.json"), first.with_suffix(".report.json")
    async with AsyncExitStack() as servers:
        sessions: list[dict[str, Any]] = []
        for way, place in places.items():
            mode = "legacy" if way.era == "legacy" else "auto"
            session = {"name": str(way), "mode": mode, "features": way.features}
            options = ("--versions", way.only) * bool(way.only)
            if way.over == "http":
                server = pairings.listening(place, OUR_SERVER, options, "http")
                session["url"] = await servers.enter_async_context(server)
            else:
                session["command"] = pairings.spied(place, OUR_SERVER, options)
            sessions.append(session)
        job.write_text(json.dumps({"sessions": sessions, "report": str(report)}))
        await pairings.run_program(launch, job, report)
    named = json.loads(report.read_text())
    return {way: named[str(way)] for way in places}


async def _our_client(launch: list[str], places: dict[Way, Path]) -> dict[Way, dict[str, Any]]:
    found = {}
    for way, place in places.items():
        era = "legacy" if way.era == "legacy" else "auto"
        options = ("--legacy", way.only) * bool(way.only)
        if way.over == "http":
            async with pairings.listening(place, launch, options, "http") as url:
                found[way] = await ours.Ours(url, era, way.features).hold()
        else:
            command = pairings.spied(place, launch, options)
            found[way] = await ours.Ours(command, era, way.features).hold()
    return found


# -- the matrix ------------------------------------------------------------------------------------


def packages(peer: str) -> str:
    """What a peer is made of, and of which versions."""
    if peer == "ts2":
        names = [f"@modelcontextprotocol/{name}" for name in ("client", "server")]
        pins = [(name, peers.PINS["npm"][name]) for name in names]
    else:
        pins = [tuple(pin.split("==")) for pin in peers.PINS["python"][peer]]
    return ", ".join(f"`{name}` {version}" for name, version in pins)


HEAD = """\
# Interoperability

What works between wirespeed and the SDKs of others, feature by feature, both ways and in both eras
({legacy} for the legacy era, {modern} for the modern one). The page is written by the tests of
`tests/interop`, out of sessions that were held over stdio; `pytest tests/interop --write-matrix`
writes it anew, and a run that sees anything else fails.

{packages}

* **yes**: works, in every detail that the test looks at.
* **no**: the other side does not offer it; the note says what is missing.
* **differs**: the other side does otherwise than the specification says; the note says how.
"""


BESIDE = """\
## What else is tested

* The older revisions (2024-11-05, 2025-03-26, 2025-06-18): all features above with the clients of
  mcp and TypeScript and with the server of mcp.
* Over Streamable HTTP: all features above, with all packages above, both ways and in both eras.
* Tools, logging, progress and cancellation, 100 calls at once, messages of more than a megabyte, in
  every revision: `mcp` {mcp} and {mcp1}, `@modelcontextprotocol/sdk` {sdk} and the packages above;
  over Streamable HTTP, and over WebSocket with the two that have it.
* Over Streamable HTTP behind nginx and HAProxy, with [the settings of the
  guide](how-to/behind-a-proxy.md); from a page in Chromium by `fetch`; from the command line of MCP
  Inspector {inspector}; from `curl`.
* Over Streamable HTTP at three hosts with one store, behind HAProxy, which sends each request to
  another host: all features above with the clients of all packages above, and tools, changes,
  questions and resumption with those of `mcp` {mcp1} and `@modelcontextprotocol/sdk` {sdk}. One
  host is drained, and one is killed.
* Tasks of 2025-11-25, with questions in them: `mcp` {mcp1}, `@modelcontextprotocol/sdk` {sdk}.
* Tasks of 2026-07-28 (the extension `io.modelcontextprotocol/tasks`), with questions in them and
  cancelled: all packages above; where there is none of their own, by programs that write it on what
  they have for extensions.
* Authorization: the clients of all packages above and of `@modelcontextprotocol/sdk` {sdk} log in
  to our server; our client logs in to the servers of mcp and FastMCP. The authorization server is
  of Authlib {authlib}, to which the command line logs in through Chromium. The clients get further
  scopes for one tool, except `@modelcontextprotocol/sdk` {sdk}, which renews its token instead.
* Through one endpoint of the [proxy](how-to/share-a-server.md), at the published
  `mcp-server-time` {time}, `server-everything` and `server-filesystem` {servers}: our
  client, `mcp` {mcp}, `@modelcontextprotocol/client`, and MCP Inspector {inspector}.
* The published `mcp-server-time` {time}.
"""


def _pins() -> dict[str, str]:
    python, npm = peers.PINS["python"], peers.PINS["npm"]
    versions = {
        "mcp": python["python2"][0],
        "mcp1": python["python1"][0],
        "time": python["time"][0],
    }
    found = {name: pin.partition("==")[2] for name, pin in versions.items()}
    inspector = peers.PINS["inspector"]["@modelcontextprotocol/inspector"]
    authlib = peers.PINS["python"]["authlib"][0].partition("==")[2]
    sdk = npm["@modelcontextprotocol/sdk"]
    servers = peers.PINS["servers"]["@modelcontextprotocol/server-everything"]
    return found | {"sdk": sdk, "inspector": inspector, "authlib": authlib, "servers": servers}


def matrix(cells: dict[tuple[Way, str], Cell]) -> str:
    """The page, out of all that was observed."""
    notes: dict[str, int] = {}

    def note(peer: str, cell: Cell) -> str:
        if not cell.note:
            return ""
        words = f"{PEERS[peer]}: {cell.note}." if cell.state == "absent" else f"{cell.note}."
        return f" [{notes.setdefault(words, len(notes) + 1)}]"

    def cell(way: Way, feature: str) -> str:
        if way.era not in FEATURES[feature].eras:
            return ""
        found = cells[way, feature]
        words = {"works": "yes", "absent": "no", "deviates": "differs"}[found.state]
        return words + note(way.peer, found)

    listed = "\n".join(f"* {name}: {packages(peer)}" for peer, name in PEERS.items())
    parts = [HEAD.format(packages=listed, **ERAS)]
    tables = {True: "Their clients, our server", False: "Our client, their servers"}
    for serving, title in tables.items():
        heads = [f"{name}, {era}" for name in PEERS.values() for era in ERAS]
        lines = [f"| | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
        for feature, row in FEATURES.items():
            columns = [cell(Way(peer, serving, era), feature) for peer in PEERS for era in ERAS]
            lines.append(f"| {row.title} | {' | '.join(columns)} |")
        parts.append(f"## {title}\n\n" + "\n".join(lines) + "\n")
    parts.append(BESIDE.format(**_pins()))
    if notes:
        listed = "\n".join(f"{number}. {words}" for words, number in notes.items())
        parts.append(f"## Notes\n\n{listed}\n")
    return "\n".join(parts)
