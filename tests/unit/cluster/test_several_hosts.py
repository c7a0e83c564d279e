"""Servers of one name on several hosts: what any host answers, what is accepted once, and what a
store that is away costs."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from lab.http import Peer, Place, serving
from lab.store import SECONDS, MakeServer, StoreServer
from lab.task import SECRET
from lab.token import token
from lab.wording import raises
from prometheus_client import CollectorRegistry

from wirespeed import (
    TASKS,
    Client,
    Context,
    HttpOptions,
    MemoryEventStore,
    Server,
    SyncClient,
)
from wirespeed.auth import ResourceServer
from wirespeed.auth.dpop import DpopKey
from wirespeed.cluster import Cluster, RedisTaskStore, RedisTokenBuckets
from wirespeed.cluster.store import STORE_TIMEOUT
from wirespeed.errors import InvalidToken, RemoteError
from wirespeed.ext.prometheus import instrument
from wirespeed.middleware import LimitRate
from wirespeed.tasks import MemoryTaskStore
from wirespeed.transport.backoff import Backoff
from wirespeed.types import ElicitRequest, InputRequired

FORM = {"type": "object", "properties": {"value": {"type": "integer"}}}
ACCEPT = {"elicit-1": {"action": "accept", "content": {"value": 3}}}
RESOURCE = "https://tools.example/mcp"
SOON = Backoff(0.01, 0.05)
PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "several-hosts.md"


def a_server(cluster: Cluster | str, **options: Any) -> Server:
    """A server as each host has it."""
    server = Server("mill", cluster=cluster, state_secret=SECRET, state_single_use=True, **options)

    server.use_tasks(poll_interval=0.02)

    @server.tool
    async def plain(n: int) -> int:
        return n

    @server.tool(inline=True)
    def inline(n: int) -> int:
        return n

    @server.tool
    async def asks(ctx: Context) -> str:
        answer = await ctx.elicit("How many?", FORM)
        return f"ground {answer.content}"

    @server.tool
    async def explicit(ctx: Context) -> str | InputRequired:
        return InputRequired(requests={"n": ElicitRequest("How many?", FORM)}, state=1)

    @server.tool(task="required")
    async def grind(n: int) -> int:
        return 2 * n

    @server.tool(task="optional", task_after=1000)
    async def slow(ctx: Context) -> str:
        return f"slow {(await ctx.elicit('How many?', FORM)).content}"

    @server.prompt
    async def poem(ctx: Context) -> str:
        return f"poem {(await ctx.elicit('How many?', FORM)).content}"

    @server.resource("mill://flour")
    async def flour(ctx: Context) -> str:
        return f"flour {(await ctx.elicit('How many?', FORM)).content}"

    return server


@contextlib.asynccontextmanager
async def hosts(
    url: str, n: int = 2, store_timeout: float = STORE_TIMEOUT, **options: Any
) -> AsyncIterator[list[Place]]:
    """Several hosts at work. They have nothing in common but the store and the secret."""
    async with contextlib.AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                serving(
                    a_server(Cluster(url, store_timeout=store_timeout, returns=SOON), **options)
                )
            )
            for _ in range(n)
        ]


# -- any host --------------------------------------------------------------------------------------


async def test_any_host_answers_what_is_stateless_and_every_task(
    store_server: StoreServer,
) -> None:
    """Each request goes to the next host, as behind a load balancer without stickiness."""
    async with hosts(store_server.url, 3, SECONDS) as places, contextlib.AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(Client(p.url, era="modern", extensions=[TASKS]))
            for p in places
        ]
        for n in range(9):
            result = await clients[n % 3].call_tool("plain", {"n": n})
            assert result.structured_content == {"result": n}
        for n in range(6):
            task = await clients[n % 3].start_tool("grind", {"n": n})
            seen = await clients[(n + 1) % 3].get_task(task.id)
            assert (await seen.result()).structured_content == {"result": 2 * n}
    assert store_server.ask("INFO", "clients")["connected_clients"] == 1


async def call(peer: Peer, name: str, state: str | None = None, **more: Any) -> Any:
    """The result of a tools/call, or the code of its error."""
    params: dict[str, Any] = {"name": name, "arguments": more.pop("arguments", {})}
    return await ask(peer, "tools/call", params, state)


async def ask(peer: Peer, method: str, params: dict[str, Any], state: str | None = None) -> Any:
    able = {"elicitation": {}, "extensions": {TASKS: {}}}
    params = {**params, "_meta": {"io.modelcontextprotocol/clientCapabilities": able}}
    if state is not None:
        params |= {"requestState": state, "inputResponses": ACCEPT | {"n": ACCEPT["elicit-1"]}}
    found = (await peer.modern(method, params)).json
    return found["result"] if "result" in found else found["error"]["code"]


ROUNDS: Any = [
    ("tools/call", {"name": "asks", "arguments": {}}),
    ("tools/call", {"name": "explicit", "arguments": {}}),
    ("tools/call", {"name": "slow", "arguments": {}}),
    ("prompts/get", {"name": "poem"}),
    ("resources/read", {"uri": "mill://flour"}),
]


@pytest.mark.parametrize("middleware", [False, True])
@pytest.mark.parametrize(("method", "params"), ROUNDS)
async def test_a_state_is_accepted_once_at_any_host(
    store_server: StoreServer, method: str, params: Any, middleware: bool
) -> None:
    async with hosts(store_server.url, 2, SECONDS) as places:
        if middleware:
            for place in places:

                @place.server.add_middleware
                async def through(request: Any, call_next: Any) -> Any:
                    return await call_next(request)

        here, there = [await place.connect() for place in places]
        state = (await ask(here, method, params))["requestState"]
        second = await ask(there, method, params, state)
        assert second["resultType"] == (
            "input_required" if params.get("name") == "explicit" else "complete"
        )
        assert await ask(here, method, params, state) == -32602
        assert await ask(there, method, params, state) == -32602
        # a state of another request is refused without being used up
        state = (await ask(here, method, params))["requestState"]
        other = ROUNDS[0] if method != "tools/call" else ROUNDS[3]
        assert await ask(there, *other, state) == -32602
        assert "resultType" in await ask(there, method, params, state)


async def test_of_many_requests_at_once_one_uses_a_state(store_server: StoreServer) -> None:
    async with hosts(store_server.url, 2, SECONDS) as places:
        state = (await call(await places[0].connect(), "asks"))["requestState"]
        peers = [await place.connect() for place in places for _ in range(8)]
        found = await asyncio.gather(*(call(peer, "asks", state) for peer in peers))
        assert sorted(map(str, found))[:15] == ["-32602"] * 15
        with store_server.client() as client:
            (key,) = client.keys("wirespeed:{once1:mill:state:*")
            assert client.get(key) == "" and 600_000 < client.pttl(key) <= 1_210_000


async def test_a_proof_of_a_key_is_accepted_once_at_any_host(store_server: StoreServer) -> None:
    key = DpopKey()
    bound = token("anne", key_thumbprint=key.thumbprint)

    def verify(text: str) -> Any:
        if text != "bound":
            raise InvalidToken("unknown")
        return bound

    def auth() -> ResourceServer:
        return ResourceServer(
            RESOURCE, ["https://login.example"], verifier=verify, dpop="required", dpop_nonces=True
        )

    async with contextlib.AsyncExitStack() as stack:
        places = [
            await stack.enter_async_context(serving(a_server(store_server.url, auth=auth())))
            for _ in range(2)
        ]
        here, there = [await place.connect() for place in places]

        async def status(peer: Peer, proof: str) -> int:
            fields = {"authorization": "DPoP bound", "dpop": proof}
            response = await peer.modern(
                "tools/call", {"name": "plain", "arguments": {"n": 1}}, **fields
            )
            key.note(RESOURCE, response.headers)  # the nonce of one host is that of all
            return response.status

        assert await status(here, key.field("POST", RESOURCE, "bound")) == 401
        proof = key.field("POST", RESOURCE, "bound")
        assert await status(there, proof) == 200
        assert [await status(peer, proof) for peer in (here, there)] == [401, 401]
        proof = key.field("POST", RESOURCE, "bound")
        found = [await status(here, proof), await status(there, proof)]
        assert found == [200, 401]
    with store_server.client() as client:
        found_keys = client.keys("*")
        assert len(found_keys) == 2 and not any("anne" in one for one in found_keys)


# -- what it costs ---------------------------------------------------------------------------------


async def test_a_call_that_needs_no_store_asks_none(store_server: StoreServer) -> None:
    async with hosts(store_server.url, 1) as (place,):
        for era in ("modern", "legacy"):
            async with Client(place.url, era=era) as client:
                for n in range(20):
                    await client.call_tool("plain", {"n": n})
                    await client.call_tool("inline", {"n": n})
                await client.list_tools()
        assert place.server.service.stores.cluster.state == "idle"
        peer = await place.connect()
        store_server.ask("CONFIG", "RESETSTAT")
        state = (await call(peer, "asks"))["requestState"]
        assert store_server.calls() == {}
        await call(peer, "asks", state)
        assert store_server.calls()["set"] == 1


# -- a store that is away --------------------------------------------------------------------------


async def test_single_use_fails_closed(new_store_server: MakeServer) -> None:
    server = new_store_server()
    async with hosts(server.url, 1) as (place,):
        peer = await place.connect()
        first, second = [(await call(peer, "asks"))["requestState"] for _ in range(2)]
        server.freeze()
        for state in (first, second):
            response = await peer.modern(
                "tools/call",
                {"name": "asks", "arguments": {}, "requestState": state, "inputResponses": ACCEPT},
            )
            assert response.status == 503 and response.headers["retry-after"] == "1"
            assert response.json["error"]["code"] == -31007
        server.thaw()
        while place.server.service.stores.cluster.state != "up":
            await asyncio.sleep(0.01)
        # the second one was not even sent
        assert (await call(peer, "asks", second))["resultType"] == "complete"


async def test_calls_under_load_do_not_notice_a_store_that_comes_and_goes(
    new_store_server: MakeServer,
) -> None:
    server = new_store_server()
    async with hosts(server.url, 2) as places, contextlib.AsyncExitStack() as stack:
        clusters = [place.server.service.stores.cluster for place in places]
        clients = [
            await stack.enter_async_context(Client(p.url, era="modern", extensions=[TASKS]))
            for p in places
            for _ in range(4)
        ]
        over, empty = asyncio.Event(), asyncio.Event()
        done = {"plain": 0, "task": 0, "refused": 0}

        async def load(client: Client, name: str) -> None:
            while not over.is_set():
                if name == "plain":
                    await client.call_tool("plain", {"n": 1})
                    done["plain"] += 1
                    await asyncio.sleep(0.001)
                    continue
                try:
                    task = await client.start_tool("grind", {"n": 1})
                    assert (await task.result()).structured_content == {"result": 2}
                    done["task"] += 1
                except RemoteError as exc:
                    assert exc.code == -31007 or (empty.is_set() and exc.code == -32602), exc
                    done["refused"] += 1
                    await asyncio.sleep(0.01)

        async def grows(name: str, by: int = 5) -> None:
            until = done[name] + by
            while done[name] < until:
                await asyncio.sleep(0.005)

        running = [
            asyncio.create_task(load(client, ("plain", "task")[i % 2]))
            for i, client in enumerate(clients)
        ]
        await grows("task")
        for away, back in ((server.freeze, server.thaw), (server.kill, server.start)):
            away()
            while any(cluster.state != "down" for cluster in clusters):
                await asyncio.sleep(0.005)
            await grows("plain", 50)
            if away == server.kill:
                empty.set()  # it does not know earlier tasks
            back()
            while any(cluster.state != "up" for cluster in clusters):
                await asyncio.sleep(0.005)
            await grows("task")
        over.set()
        await asyncio.gather(*running)


async def test_who_listens_to_a_task_hears_that_the_store_has_lost_it(
    new_store_server: MakeServer,
) -> None:
    server = new_store_server()
    async with hosts(server.url, 1) as (place,):

        @place.server.tool(task="required")
        async def endless() -> None:
            await asyncio.Event().wait()

        async with Client(place.url, era="modern", extensions=[TASKS]) as client:
            task = await client.start_tool("endless", {})
            async with client.subscribe(more={"taskIds": [task.id]}) as events:
                assert (await anext(events)).params["status"] == "working"
                server.ask("FLUSHALL")
                told = (await anext(events)).params
            assert told["status"] == "failed"
            with raises(RemoteError, code=-32602) as caught:
                await client.get_task(task.id)
            error = RemoteError(told["error"]["code"], told["error"]["message"])
            assert str(error) == str(caught.value)


# -- options ---------------------------------------------------------------------------------------


def test_a_cluster_needs_a_secret_of_all_hosts() -> None:
    with raises(ValueError):
        Server("mill", cluster="redis://store")
    with pytest.raises(ValueError, match="the URL of a cluster is"):
        Server("mill", cluster="store", state_secret=SECRET)
    server = Server("mill", cluster="redis://store", state_secret=SECRET)
    with raises(RuntimeError):
        server.service.use_cluster("redis://store")


async def test_the_stores_that_an_author_chose_stay(store_server: StoreServer) -> None:
    server = Server("mill", cluster=store_server.url, state_secret=(b"new" * 9, SECRET))
    server.use_tasks(MemoryTaskStore())

    @server.tool(task="required")
    async def grind(ctx: Context) -> str:
        await ctx.progress(1)
        return "flour"

    events = MemoryEventStore()
    async with serving(server, http=HttpOptions(event_store=events, response="sse")) as place:
        async with Client(place.url, extensions=[TASKS]) as client:
            assert (await (await client.start_tool("grind")).result()).text == "flour"
        async with Client(place.url, era="legacy") as client:
            await client.list_tools()
    assert store_server.calls() == {}


async def test_a_cluster_that_comes_behind_the_tools(store_server: StoreServer) -> None:
    """As of ``wirespeed serve --cluster``."""
    server = Server("mill", state_secret=SECRET)

    @server.tool(task="required")
    async def grind() -> str:
        return "flour"

    server.service.use_cluster(store_server.url)
    async with Client(server, extensions=[TASKS]) as client:
        task = await client.start_tool("grind")
        assert (await task.result()).text == "flour"
        cluster = Cluster(store_server.url)
        other = RedisTaskStore(cluster, "mill", secret=SECRET)
        await other.open()
        assert (await other.get(task.id)) is not None
        await other.close()


async def test_events_of_streams_are_in_the_store(store_server: StoreServer) -> None:
    async with hosts(store_server.url, 1) as (place,):
        peer, session = await place.session()
        peer.send(
            body=b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}',
            mcp_session_id=session,
            accept="text/event-stream, application/json",
        )
        await peer.response()
        get, _ = await place.connect(), None
        get.send("GET", mcp_session_id=session, accept="text/event-stream")
        await get.head()
        place.server.add_tool(lambda: None, name="more")
        while not store_server.ask("KEYS", "wirespeed:{events1:mill}:e:*"):
            await asyncio.sleep(0.01)


def test_from_one_loop_to_the_next(store_server: StoreServer) -> None:
    server = a_server(store_server.url)
    for _ in range(2):
        with SyncClient(server, extensions=[TASKS]) as client:
            assert client.call_tool("plain", {"n": 1}).structured_content == {"result": 1}
            task = client.start_tool("grind", {"n": 1})
            assert task.result().structured_content == {"result": 2}


async def test_metrics_say_whether_the_store_is_up(new_store_server: MakeServer) -> None:
    store = new_store_server()
    server = a_server(Cluster(store.url, returns=SOON))
    registry = CollectorRegistry()
    instrument(server, registry=registry)
    instrument(Server("other"), registry=registry)

    def values() -> tuple[float | None, float | None]:
        labels = {"peer": "mill"}
        assert registry.get_sample_value("wirespeed_server_store_up", {"peer": "other"}) is None
        up = registry.get_sample_value("wirespeed_server_store_up", labels)
        return up, registry.get_sample_value("wirespeed_server_store_losses_total", labels)

    async with Client(server, era="modern", extensions=[TASKS]) as client:
        assert values() == (1, 0)
        await client.start_tool("grind", {"n": 1})
        store.freeze()
        with raises(RemoteError, code=-31007):
            await client.start_tool("grind", {"n": 1})
        assert values() == (0, 1)
        store.thaw()
        while values() != (1, 1):
            await asyncio.sleep(0.01)


RIGHTS = re.search(r"^ACL SETUSER mill (on .*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


async def test_the_rights_that_the_page_names_are_enough(new_store_server: MakeServer) -> None:
    store = new_store_server()
    assert RIGHTS is not None
    store.ask("ACL", "SETUSER", "mill", *RIGHTS[1].split())
    cluster = Cluster(store.url.replace("//", "//mill:PASSWORD@"), returns=SOON)
    server = a_server(cluster)
    buckets = RedisTokenBuckets(cluster, "mill", secret=SECRET)
    server.add_middleware(LimitRate(1000, buckets=buckets))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(buckets.close)
        place = await stack.enter_async_context(serving(server))
        async with Client(place.url, era="modern", extensions=[TASKS]) as client:
            task = await client.start_tool("grind", {"n": 1})
            assert (await task.result()).structured_content == {"result": 2}
        events = place.server.service.stores.new_event_store()
        await events.append("a", 1, b"{}")
        assert await events.after("a", 0) == [(1, b"{}")]
        await events.forget("a")
        await events.close()
        peer = await place.connect()
        state = (await call(peer, "asks"))["requestState"]
        assert (await call(peer, "asks", state))["resultType"] == "complete"
    # nothing was refused but the name that redis-py gives its connections
    with store.client() as reader:
        refused = {entry["object"] for entry in reader.acl_log()}
    assert refused <= {"client|setinfo"}
