"""A launched program exits while another process holds its pipes."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

import pytest
from lab.client import CHILDREN, alive, until
from lab.wording import raises

from wirespeed import Client, Stdio
from wirespeed.client.timeouts import DELAYS
from wirespeed.errors import CallTimeout, ChildExited
from wirespeed.litemcp import LiteClient

LEAVES = str(CHILDREN / "leaves_its_pipes.py")
ENV = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def leaving(*args: str, **options: Any) -> Stdio:
    return Stdio(sys.executable, [LEAVES, *args], ENV, stderr="discard", **options)


class ShortClient(Client):
    _delays = DELAYS._replace(answer=0.3, first_answer=0.3)


class ShortLiteClient(LiteClient):
    _delays = ShortClient._delays


class FairClient(Client):
    """As short as a server that has to start beside other tests can bear."""

    _delays = DELAYS._replace(answer=2.0)


class FairLiteClient(LiteClient):
    _delays = FairClient._delays


async def test_calls_fail_with_the_exit_status(era: Any) -> None:
    async with ShortClient(leaving(), era=era, timeout=None) as client:
        both = [client.call_tool("die", {"status": 5}), client.call_tool("pid")]
        async with asyncio.timeout(20):
            errors = await asyncio.gather(*both, return_exceptions=True)
        for error in errors:
            assert type(error) is ChildExited
            assert error.status == 5
            assert "no process answers on its pipes" in str(error)
            assert "the server exited with status 5" in str(error)


async def test_the_server_is_started_again() -> None:
    async with ShortClient(leaving(restart=1), timeout=None) as client:
        async with asyncio.timeout(20):
            with pytest.raises(ChildExited):
                await client.call_tool("die", {"status": 5})
            assert (await client.call_tool("pid")).structured_content["result"] > 0


async def test_a_time_limit_tells_the_exit_status() -> None:
    async with Client(leaving()) as client:
        with raises(CallTimeout):
            await client.call_tool("die", {"status": 5}, timeout=1)


async def test_a_wrapper_may_exit_before_its_server(era: Any) -> None:
    target = leaving("3", sys.executable, LEAVES)
    async with FairClient(target, era=era) as client:
        pid = (await client.call_tool("pid")).structured_content["result"]
        await until(lambda: len(asyncio.all_tasks()) == 1)  # no more doubt about the server
        again = (await client.call_tool("pid")).structured_content["result"]
        assert again == pid
    await until(lambda: not alive(pid))


async def test_a_wrapper_of_a_lite_server() -> None:
    lite = [sys.executable, str(CHILDREN / "lite_server.py"), "calculator"]
    async with FairLiteClient(leaving("3", *lite)) as client:
        name = (await client.info()).name
        await until(lambda: len(asyncio.all_tasks()) == 1)  # no more doubt about the server
        assert (await client.info()).name == name


async def test_a_lite_server_that_is_none() -> None:
    async with ShortLiteClient(leaving("3", "sleep", "60")) as client:
        began = time.monotonic()
        with pytest.raises(ChildExited) as caught:
            await client.info(timeout=30)
        assert caught.value.status == 3
        assert time.monotonic() - began < 20
