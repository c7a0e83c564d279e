"""Several servers behind one proxy, each at a path of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lab.proxy import Lab
from lab.wording import raises

from wirespeed import Client, Stdio
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig

pytestmark = pytest.mark.off_schema


def config(*names: str, **options: Any) -> ProxyConfig:
    backends = tuple(BackendConfig(target=Stdio("never-started"), name=name) for name in names)
    return ProxyConfig(backends=backends, listen=(), **options)


async def test_each_has_its_path(tmp_path: Any) -> None:
    labs = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        labs.append(Lab(folder, "shared", name=name))
    backends = tuple(lab.proxy.config.backends[0] for lab in labs)
    proxy = Proxy(ProxyConfig(backends=backends, listen=("ws://127.0.0.1:0",)))
    listening: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(proxy.serve(on_listening=listening.set_result))
    urls = await listening
    assert [url.rpartition("/servers/")[2] for url in urls] == ["one", "two"]
    async with Client(urls[0]) as one, Client(urls[1]) as two:
        pids = [(await client.call_tool("echo")).meta["pid"] for client in (one, two)]
    assert pids[0] != pids[1]
    assert [len(lab.read("tools/call")) for lab in labs] == [1, 1]
    serving.cancel()
    await asyncio.wait([serving])


def test_one_has_the_path_of_the_url_too() -> None:
    url, routes = Proxy(config("time")).routes("ws://127.0.0.1:0/mcp")
    assert (url, list(routes)) == ("ws://127.0.0.1:0/", ["/mcp", "/servers/time"])


def test_where_there_are_no_paths() -> None:
    url, routes = Proxy(config("time")).routes("unix:/run/tools.sock")
    assert (url, list(routes)) == ("unix:/run/tools.sock", ["/"])


@pytest.mark.parametrize("url", ["ws://127.0.0.1:0/mcp", "unix:/run/s", "tcp://127.0.0.1:0"])
def test_several_are_merged_at_the_url(url: str) -> None:
    proxy = Proxy(config("time", "files"))
    _, routes = proxy.routes(url)
    services = proxy.services
    (merged,) = [service for service in routes.values() if service not in services.values()]
    assert merged.name == "proxy"
    assert proxy.routes(url)[1] == routes


@pytest.mark.parametrize("names", [(), ("a", "a")])
def test_names_differ(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"needs a server|the same name: a, a"):
        config(*names)


@pytest.mark.parametrize("name", ["", "a/b", ".hidden", "a b", "x" * 65])
def test_names_are_fit_for_paths(name: str) -> None:
    with raises(ValueError):
        BackendConfig(target=Stdio("x"), name=name)
