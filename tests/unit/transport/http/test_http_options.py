"""`HttpOptions` and `HttpResponse`: what they refuse, and how routes are found."""

from __future__ import annotations

from typing import Any

import pytest
from lab.rows import every
from lab.wording import raises

from wirespeed import HttpOptions, HttpRequest, HttpResponse, ListenOptions


async def hello(request: HttpRequest) -> HttpResponse:
    return HttpResponse(body=f"hello {request.path}")


async def broken(request: HttpRequest) -> HttpResponse:
    raise ValueError("s3cret")


@every(
    ("fields", "match"),
    [
        ({"session_ttl": 0}, "session_ttl must be seconds above 0"),
        ({"sse_keepalive": float("inf")}, "sse_keepalive must be seconds above 0"),
        ({"retry": -1.0}, "retry must be seconds above 0"),
        ({"idle_timeout": float("nan")}, "idle_timeout must be seconds above 0"),
        ({"name": ""}, "name is at most 64 letters, digits, - and _, not ''"),
        ({"name": "east.1"}, "name is at most 64"),
        ({"name": "e" * 65}, "name is at most 64"),
        ({"name": "ö"}, "name is at most 64"),
        ({"max_sessions": 0}, "max_sessions must be at least 1"),
        ({"max_requests": 0}, "max_requests must be at least 1"),
        ({"response": "xml"}, "response must be"),
        ({"access_log": "xml"}, "access_log must be"),
        ({"access_log_sample": 0}, "access_log_sample must be above 0"),
        ({"access_log_sample": 1.5}, "access_log_sample must be above 0"),
        ({"trusted_proxies": ["proxy.example"]}, "trusted_proxies: 'proxy.example'"),
        ({"trusted_proxies": ["10.0.0.1/8"]}, "trusted_proxies: .*host bits"),
        ({"healthz": "healthz"}, "healthz is a path"),
        ({"sse_path": "sse"}, "sse_path is a path"),
        ({"routes": {"hello": hello}}, "'hello' is not the path of a URL"),
        ({"routes": {"get /hello": hello}}, "'get' is not a method of HTTP"),
        ({"routes": {"/hello": hello, "GET /hello": hello}}, "GET /hello twice"),
        ({"routes": {"/healthz": hello}}, "/healthz is the path of healthz and of a route"),
        ({"routes": {"/sse": hello}, "sse_path": "/sse"}, "of sse_path and of a route"),
    ],
)
def test_options_that_are_not_possible(fields: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        HttpOptions(**fields)


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"trusted_proxies": "127.0.0.1"}, "trusted_proxies is a sequence"),
        ({"routes": [hello]}, "routes is a mapping"),
        ({"routes": {"/hello": "hello"}}, "must be a coroutine function"),
    ],
)
def test_options_of_a_wrong_type(fields: Any, match: str) -> None:
    with pytest.raises(TypeError, match=match):
        HttpOptions(**fields)


def test_options_are_part_of_a_listener() -> None:
    options = ListenOptions(http=HttpOptions(stateless=True))
    assert options.http.stateless
    assert repr(options) == "ListenOptions(http=HttpOptions(stateless=True))"
    with raises(TypeError):
        ListenOptions(http={"stateless": True})  # type: ignore[arg-type]


def test_routes_have_paths_and_methods() -> None:
    found = HttpOptions(routes={"/a b"[:2]: hello, "POST /é": broken, "GET /é": hello}).by_path
    assert found == {
        "/a": {"GET": hello, "HEAD": hello},
        "/%C3%A9": {"POST": broken, "GET": hello},
    }


def test_a_response_has_one_content_type() -> None:
    assert HttpResponse(204).fields == []
    own = HttpResponse(200, b"{}", {"content-type": "application/json", "ETag": '"1"'})
    assert own.fields == [("content-type", "application/json"), ("ETag", '"1"')]
    assert HttpResponse(200, "{}", media_type="application/json").fields == [
        ("Content-Type", "application/json")
    ]


@every(
    "fields",
    [
        {"status": 101},
        {"status": 600},
        {"headers": {"X": "a\r\nb"}},
        {"headers": {"Content-Length": "3"}},
        {"headers": {"Transfer-Encoding": "chunked"}},
        {"headers": {"Connection": "close"}},
        {"media_type": "text/plain\r\nX: 1"},
    ],
)
def test_responses_that_cannot_be_said(fields: Any) -> None:
    with pytest.raises(ValueError):
        HttpResponse(**fields)


def test_a_body_is_bytes_or_text() -> None:
    with raises(TypeError):
        HttpResponse(body={})  # type: ignore[arg-type]
