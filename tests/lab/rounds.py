"""What tests of rounds share: calls of a server that asks, and what it was sent."""

from __future__ import annotations

from typing import Any

import pytest
from lab.asking import params_of
from lab.peer import LinePeer

from wirespeed import Client
from wirespeed.types import ElicitParams


async def name(request: ElicitParams) -> Any:
    return {"name": "octocat"}


async def call(client: Client, peer: LinePeer) -> list[dict[str, Any]]:
    """Make one call; the params of each round."""
    assert (await client.call_tool("book", {"seats": 2})).text == "done"
    return params_of(peer)


async def fail(client: Client, peer: LinePeer) -> Exception:
    """Make one call that fails."""
    with pytest.raises(Exception) as caught:
        await client.call_tool("book", {"seats": 2})
    return caught.value
