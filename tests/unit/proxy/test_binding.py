"""The binding of a connection, which says where its requests go."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from wirespeed import Socket
from wirespeed.limits import Limits
from wirespeed.proxy import BackendConfig
from wirespeed.proxy.binding import UNBOUND, Binding
from wirespeed.proxy.downstream import Downstream, WithoutSession
from wirespeed.proxy.isolation.instance import Instance
from wirespeed.proxy.upstream import Upstream

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"
REFUSAL = -31009, "the server is down"


def downstream() -> Downstream:
    service: Any = SimpleNamespace(limits=Limits(), flow=None, opens=None)
    return Downstream(service, asyncio.get_running_loop(), None, WithoutSession())


def test_the_table_has_each_binding() -> None:
    _, _, rows = PAGE.read_text().partition("\n| Binding | ")
    table = re.findall(r"^\| `(\w+)` \|", rows.partition("\n\n")[0], re.MULTILINE)
    assert table == [*(name for name in vars(Binding) if name.startswith("to_")), "UNBOUND"]


@pytest.mark.parametrize(
    "name", [one for one in Binding._fields if one not in ("refusal", "on_drain")]
)
async def test_only_bind_says_where_requests_go(name: str) -> None:
    one: Any = downstream()
    with pytest.raises(AttributeError):
        setattr(one, name, getattr(one, name))
    with pytest.raises(AttributeError):
        one.binding = UNBOUND


async def test_a_binding_is_taken_as_a_whole() -> None:
    one = downstream()
    owner: Any = SimpleNamespace()
    upstream = Upstream("server", owner, Limits(), asyncio.get_running_loop())
    assert upstream.binding is UNBOUND
    legacy = Binding.to_legacy(one.router, None, {}, upstream, None, None, passes=True)
    one.bind(legacy)
    assert (one.across, one.admits_legacy, one.admits_modern) == (upstream, True, False)
    one.bind(legacy.lost())
    assert (one.across, one.admits_legacy) == (None, True)
    one.bind(Binding.to_pool(one.router, None, {}, None))
    assert (one.across, one.admits_legacy) == (None, False)


async def test_a_client_that_drains_keeps_its_refusal() -> None:
    one = downstream()
    one.bind(Binding.to_router(one.router, None, REFUSAL))
    assert one.session.refusal == REFUSAL
    one.bind(Binding.to_router(one.router, None))
    assert one.session.refusal is None
    one.turn_away(-31001, "the proxy is shutting down")
    one.drain()
    one.bind(Binding.to_router(one.router, None, REFUSAL))
    assert one.session.refusal == (-31001, "the proxy is shutting down")


async def test_clients_in_the_same_state_have_the_same_object() -> None:
    config = BackendConfig(target=Socket("unix:/nowhere"))
    instance = Instance(config, Limits(), is_one_of_several=False)
    one, other = downstream(), downstream()
    for each in (one, other):
        instance.bind(each, Binding.to_pool(instance, None, {}, None))
    assert one.binding is other.binding
    instance.bind(one, one.binding.admitting(legacy=True))
    assert (one.admits_legacy, other.admits_legacy) == (True, False)
