"""Requests to authorization servers: what is sent, what is refused, what is bounded."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest
from lab.origin import JSON, SSE, Origin, Request, ok
from lab.rows import every
from lab.wording import raises

from wirespeed.auth.fetch import MAX_ORIGINS, MAX_WAITING, Fetcher, FetchError
from wirespeed.errors import TransportError

pytestmark = pytest.mark.smoke


@contextlib.asynccontextmanager
async def fetcher_of(origin: Origin | str | None, **options: Any) -> Any:
    home = url_of(origin) if isinstance(origin, Origin) else origin
    fetcher = Fetcher(home, **options)
    try:
        yield fetcher
    finally:
        await fetcher.close()


def url_of(origin: Origin, path: str = "/") -> str:
    return f"http://127.0.0.1:{origin.port}{path}"


async def echo(request: Request) -> None:
    await request.write(ok(request.body))


async def test_a_get_a_form_and_json() -> None:
    async with Origin(echo) as origin, fetcher_of(origin) as fetcher:
        found = await fetcher.get(url_of(origin, "/a?b=c"), headers=[("X-Y", "z")])
        assert (found.status, found.body) == (200, b"")
        assert found.headers["content-type"] == "application/json"
        found = await fetcher.post(url_of(origin), form={"a": "1 2", "é": "&"})
        assert found.body == b"a=1+2&%C3%A9=%26"
        found = await fetcher.post(url_of(origin), json={"a": [1]})
        assert found.json() == {"a": [1]}
        get, form, json = origin.requests
        assert (get.method, get.target, get.headers["x-y"]) == ("GET", "/a?b=c", "z")
        assert get.headers["accept"] == "application/json"
        assert form.headers["content-type"] == "application/x-www-form-urlencoded"
        assert json.headers["content-type"] == "application/json"
        assert origin.n_connections == 1


@pytest.mark.parametrize("status", [b"400 Bad Request", b"503 Service Unavailable"])
async def test_errors_are_responses(status: bytes) -> None:
    async def answer(request: Request) -> None:
        await request.write(ok(b'{"error":"invalid_grant"}', status=status))

    async with Origin(answer) as origin, fetcher_of(origin) as fetcher:
        found = await fetcher.post(url_of(origin), form={})
        assert (found.status, found.json()) == (int(status[:3]), {"error": "invalid_grant"})


@every("body", [b"<html>", b"", b"[" * 100_000, b'"\xff"'])
async def test_a_body_that_is_not_json(body: bytes) -> None:
    async def answer(request: Request) -> None:
        await request.write(ok(body))

    async with Origin(answer) as origin, fetcher_of(origin) as fetcher:
        found = await fetcher.get(url_of(origin))
        with raises(FetchError):
            found.json()


@every(
    ("response", "reason"),
    [
        (ok(b"x" * 1001), "1000"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", "1000"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n" + b"x" * 1001, "1000"),
        (ok(b"", b"Location: /elsewhere?s3cret\r\n", b"307 X"), "redirects are not followed"),
        (ok(b"", b"Location: https://a.example/\r\n", b"302 X"), "redirects are not followed"),
        (SSE + b"\r\ndata: 1\n\n", "answered with a stream of events"),
        (ok(b"x", JSON + b"Content-Encoding: gzip\r\n"), "content coding"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "malformed"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: %b\r\n" % (b"y" * 70_000), "malformed"),
    ],
    ids=[
        "long", "length", "chunks", "redirect", "elsewhere", "events", "gzip", "ssh", "head",
    ],
)  # fmt: skip
async def test_a_response_that_is_of_no_use(response: bytes, reason: str) -> None:
    async def answer(request: Request) -> None:
        await request.write(response)

    async with Origin(answer) as origin, fetcher_of(origin, max_bytes=1000) as fetcher:
        with pytest.raises(FetchError, match=reason) as caught:
            await fetcher.get(url_of(origin, "/?s3cret"))
        assert isinstance(caught.value, TransportError)
        assert "s3cret" not in str(caught.value)
        assert len(origin.requests) == 1


async def test_an_error_names_the_url_of_its_own_request() -> None:
    """Also where an older connection is used, which was opened for another URL."""

    async def answer(request: Request) -> None:
        moved = ok(b"", b"Location: /elsewhere\r\n", b"307 X")
        await request.write(moved if request.target == "/token" else ok(b"{}"))

    async with Origin(answer) as origin, fetcher_of(origin) as fetcher:
        await fetcher.get(url_of(origin, "/metadata"))
        with raises(FetchError) as caught:
            await fetcher.post(url_of(origin, "/token"), form={})
        assert url_of(origin, "/token") in str(caught.value)
        assert "metadata" not in str(caught.value)
        assert origin.n_connections == 1


async def test_a_slow_response_ends_in_time() -> None:
    async def answer(request: Request) -> None:
        await request.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while True:  # a byte now and then does not help
            await request.write(b"x")
            await asyncio.sleep(0.02)

    async with Origin(answer) as origin, fetcher_of(origin, timeout=0.2) as fetcher:
        with raises(FetchError):
            await fetcher.get(url_of(origin))
        async with asyncio.timeout(5):
            await origin.gone.wait()  # the connection is closed


async def test_a_cancelled_request_closes_its_connection() -> None:
    asked = asyncio.Event()

    async def answer(request: Request) -> None:
        asked.set()

    async with Origin(answer) as origin, fetcher_of(origin) as fetcher:
        task = asyncio.create_task(fetcher.get(url_of(origin)))
        await asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            await origin.gone.wait()


@every(
    ("url", "reason"),
    [
        ("http://auth.example/", "http://auth.example/ is not secure: https is needed"),
        ("http://10.0.0.1/", "is not secure"),
        ("ftp://auth.example/", "is not a URL"),
        ("wss://auth.example/", "is not an https URL"),
        ("unix:/x", "is not an https URL"),
        ("file:///etc/passwd", "is not a URL"),
        ("javascript:alert(1)", "is not a URL"),
        ("https://u:s3cret@auth.example/", "must not hold a user"),
        ("https://auth.example/#s3cret", "fragment"),
        ("https://", "has no host"),
        ("https://a b/?s3cret", "has a space"),
        ("", "is not a URL"),
        (None, "a URL is a string"),
    ],
)
async def test_urls_that_are_not_asked(url: Any, reason: str) -> None:
    async with fetcher_of(None, allow_private=True) as fetcher:
        with pytest.raises(FetchError, match=reason) as caught:
            await fetcher.get(url)
        assert "s3cret" not in str(caught.value)


@every(
    ("home", "host"),
    [
        (None, "127.0.0.1"),
        (None, "localhost"),
        ("https://8.8.8.8/mcp", "127.0.0.1"),
        ("https://8.8.8.8/mcp", "localhost"),
        ("https://10.0.0.1/mcp", "localhost"),
        ("https://no-such-host.invalid/mcp", "localhost"),
    ],
)
async def test_a_public_server_does_not_lead_to_this_machine(home: str | None, host: str) -> None:
    async with Origin(echo) as origin, fetcher_of(home) as fetcher:
        with raises(FetchError):
            await fetcher.get(f"http://{host}:{origin.port}/")
        assert origin.n_connections == 0


@every(
    "url",
    [
        "https://10.0.0.1/",
        "https://192.168.0.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/",
        "https://[fd00:ec2::254]/",
        "https://[::ffff:7f00:1]/",
        "https://0.0.0.0/",
        "https://2130706433/",  # 127.0.0.1 as a number
        "https://0x7f.1/",
    ],
)
async def test_a_public_server_does_not_lead_inside(url: str) -> None:
    async with fetcher_of("https://8.8.8.8/mcp") as fetcher:
        with raises(FetchError):
            await fetcher.get(url)


async def test_this_machine_does_not_lead_to_metadata_services() -> None:
    async with fetcher_of("http://localhost:8000/mcp") as fetcher:
        with raises(FetchError):
            await fetcher.get("https://169.254.169.254/latest/meta-data")


@every("home", ["http://127.0.0.1:1/mcp", "http://localhost/mcp", None])
async def test_this_machine_may_lead_to_itself(home: str | None) -> None:
    async with Origin(echo) as origin, fetcher_of(home, allow_private=home is None) as fetcher:
        assert (await fetcher.get(url_of(origin))).status == 200


async def test_a_proxy_is_not_asked_for_private_addresses(monkeypatch: Any) -> None:
    async with Origin(echo) as proxy:
        monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{proxy.port}")
        async with fetcher_of("https://8.8.8.8/mcp") as fetcher:
            with raises(FetchError):
                await fetcher.get("https://10.0.0.1/")
            assert proxy.n_connections == 0
            with raises(FetchError):
                await fetcher.get("https://auth.example/")
            assert proxy.n_connections == 1
        monkeypatch.setenv("https_proxy", "socks5://x")
        async with fetcher_of(None) as fetcher:
            with raises(FetchError):
                await fetcher.get("https://auth.example/")


async def test_many_origins_one_after_another() -> None:
    async with contextlib.AsyncExitStack() as stack:
        origins = [await stack.enter_async_context(Origin(echo)) for _ in range(MAX_ORIGINS + 4)]
        fetcher = await stack.enter_async_context(fetcher_of(None, allow_private=True))
        for _ in range(2):
            for origin in origins:
                assert (await fetcher.get(url_of(origin))).status == 200


async def test_too_many_origins_at_once() -> None:
    async def answer(request: Request) -> None:
        pass

    async with contextlib.AsyncExitStack() as stack:
        origins = [await stack.enter_async_context(Origin(answer)) for _ in range(MAX_ORIGINS + 1)]
        fetcher = await stack.enter_async_context(fetcher_of(None, allow_private=True))
        tasks = [asyncio.create_task(fetcher.get(url_of(o))) for o in origins[:MAX_ORIGINS]]
        await asyncio.sleep(0)
        with pytest.raises(FetchError, match=f"more than {MAX_ORIGINS} hosts are asked at once"):
            await fetcher.get(url_of(origins[-1]))
        await fetcher.close()
        for task in tasks:
            with raises(FetchError):
                await task


async def test_too_many_requests_at_once() -> None:
    async def answer(request: Request) -> None:
        pass

    async with Origin(answer) as origin, fetcher_of(origin) as fetcher:
        tasks = [asyncio.create_task(fetcher.get(url_of(origin))) for _ in range(MAX_WAITING + 9)]
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert f"more than {MAX_WAITING} requests wait" in str(done.pop().exception())
        await fetcher.close()
        failures = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, FetchError) for one in failures)
        assert origin.n_connections <= 4


def test_a_fetcher_on_one_loop_after_another() -> None:
    fetcher = Fetcher(allow_private=True)

    async def scene(close: bool) -> None:
        async with Origin(echo) as origin:
            for _ in range(2):
                assert (await fetcher.get(url_of(origin))).status == 200
            if close:
                await fetcher.close()

    asyncio.run(scene(True))
    asyncio.run(scene(True))
