"""Heads of HTTP messages: verdicts of a corpus, compared with llhttp and h11, and what is found."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from lab.http_corpus import CASES, DIFFERENCES, MAX_BODY, Case, head
from lab.http_parsers import PARSERS, difference, pieces
from lab.rows import every
from lab.wording import raises

from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed._core.framing.http.head import HttpHead
from wirespeed.core import FrameStream


def verdict(data: bytes, step: int) -> tuple[int | list[bytes], tuple[int, str] | None]:
    framer = HttpFramer(max_body=MAX_BODY)
    stream = FrameStream(framer)
    bodies = []
    for piece in pieces(data, step):
        stream.receive_data(piece)
        bodies += [bytes(body or b"") for body in stream]
    if framer.failure is None:
        return bodies, None
    assert framer.ended
    assert framer.buffered == 0
    return framer.failure[0], framer.failure


@pytest.mark.smoke
@every("case", CASES, ids=lambda case: case.name)
def test_verdict(case: Case) -> None:
    whole, failure = verdict(case.data, max(1, len(case.data)))
    assert whole == case.expected, failure
    for step in (1, 2, 5):
        assert verdict(case.data, step) == (whole, failure)


def test_names_of_cases_differ() -> None:
    assert len({case.name for case in CASES}) == len(CASES) >= 200


@pytest.mark.parametrize("parser", PARSERS)
def test_each_difference_to_another_parser_has_a_reason(parser: str) -> None:
    """And each reason is needed: nothing is listed that is not a difference."""
    used: set[tuple[str, str]] = set()
    for case in CASES:
        own = None if isinstance(case.expected, int) else case.expected
        theirs = difference(own, PARSERS[parser](case.data, MAX_BODY))
        if not theirs:
            continue
        listed = [
            (one.reason, pattern)
            for one in DIFFERENCES
            if (one.parser, one.theirs) == (parser, theirs)
            for pattern in one.cases
            if fnmatchcase(case.name, pattern)
        ]
        assert len(listed) == 1, (case.name, theirs, listed)
        used.update(listed)
    known = {
        (one.reason, pattern)
        for one in DIFFERENCES
        if one.parser == parser
        for pattern in one.cases
    }
    assert known == used


def scan(data: bytes, **options: int) -> HttpHead:
    found = HttpHead(**options)
    assert found.scan(data) == len(data), found.failure
    return found


def answer(data: bytes) -> HttpHead:
    found = HttpHead(True)
    found.scan(data)
    return found


def test_a_request() -> None:
    data = head(
        "ACCEPT: application/json,\ttext/event-stream ",
        "X-Empty:",
        "Connection: Upgrade, keep-alive",
        "Content-Length: 12",
        "Expect: 100-continue",
        line=b"POST /a/b?c=d&e HTTP/1.1",
        host=b"host:\tA.example:80",
    )
    found = HttpHead()
    assert found.scan(data + b"body") == len(data)
    assert found.raw == data
    assert (found.method, found.path, found.query) == ("POST", "/a/b", "c=d&e")
    assert (found.authority, found.minor, found.status) == ("A.example:80", 1, 0)
    assert found.fields == [
        ("host", "A.example:80"),
        ("ACCEPT", "application/json,\ttext/event-stream"),
        ("X-Empty", ""),
        ("Connection", "Upgrade, keep-alive"),
        ("Content-Length", "12"),
        ("Expect", "100-continue"),
    ]
    assert (found.has_length, found.length, found.chunked) == (True, 12, False)
    assert found.keeps_alive
    assert found.upgrades
    assert found.expects_continue


@every(
    ("line", "host", "authority", "path", "query"),
    [
        (b"GET / HTTP/1.1", b"Host: a", "a", "/", None),
        (b"GET /? HTTP/1.1", b"Host: a", "a", "/", ""),
        (b"GET /?a?/b HTTP/1.1", b"Host: a", "a", "/", "a?/b"),
        (b"GET http://b:1/c?d HTTP/1.1", b"Host: a", "b:1", "/c", "d"),
        (b"GET HTTPS://[::1] HTTP/1.1", b"Host: a", "[::1]", "/", None),
        (b"GET wss://b?d HTTP/1.1", b"Host: a", "b", "/", "d"),
        (b"OPTIONS * HTTP/1.1", b"Host: a", "a", "*", None),
        (b"GET / HTTP/1.0", None, "", "/", None),
    ],
)
def test_where_a_request_goes(
    line: bytes, host: bytes | None, authority: str, path: str, query: str | None
) -> None:
    found = scan(head(line=line, host=host))
    assert (found.authority, found.path, found.query) == (authority, path, query)


@every(
    ("version", "connection", "keeps", "upgrades"),
    [
        (b"1.1", None, True, False),
        (b"1.1", "close", False, False),
        (b"1.1", "Close", False, False),
        (b"1.1", "keep-alive", True, False),
        (b"1.1", "keep-alive, close", False, False),
        (b"1.1", ",, upgrade ,", True, True),
        (b"1.1", "closed, xclose, clos", True, False),
        (b"1.0", None, False, False),
        (b"1.0", "Keep-Alive", True, False),
        (b"1.0", "keep-alive, close", False, False),
        (b"1.0", "keep-alive, upgrade", True, False),
    ],
)
def test_what_connection_says(
    version: bytes, connection: str | None, keeps: bool, upgrades: bool
) -> None:
    fields = [] if connection is None else [f"Connection: {connection}"]
    found = scan(head(*fields, line=b"GET / HTTP/" + version))
    assert (found.keeps_alive, found.upgrades) == (keeps, upgrades)


def test_members_of_several_connection_fields_count() -> None:
    assert not scan(head("Connection: x", "Connection: close", "Connection: y")).keeps_alive


@pytest.mark.parametrize(
    ("data", "status", "minor"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", 200, 1),
        (b"HTTP/1.1 200 \r\n\r\n", 200, 1),
        (b"HTTP/1.1 200\r\n\r\n", 200, 1),
        (b"HTTP/1.0 404 No such\tthing \xe9\r\n\r\n", 404, 0),
        (b"HTTP/1.1 999 x\r\n\r\n", 999, 1),
    ],
)
def test_a_response(data: bytes, status: int, minor: int) -> None:
    found = answer(data)
    assert (found.failure, found.status, found.minor) == (None, status, minor)


@every(
    "data",
    [
        b"HTTP/1.1 20\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 +20 OK\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\n\n",
        b"HTTP/1.1 200 O\x01\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"a" * 20000,
    ],
)
def test_a_response_that_is_refused(data: bytes) -> None:
    """The fault is the server's: 502, not 400."""
    found = answer(data)
    assert found.failure is not None
    assert found.failure[0] == 502


@pytest.mark.parametrize(
    ("options", "data", "sentence"),
    [
        ({"max_head": 30}, head(), "the head has more than 30 bytes"),
        ({"max_target": 3}, head(), "the target has more than 3 bytes"),
        ({"max_fields": 1}, head("X: a"), "the head has more than 1 header fields"),
    ],
)
def test_limits_are_named(options: dict[str, int], data: bytes, sentence: str) -> None:
    found = HttpHead(**options)
    assert found.scan(data) == 0
    assert found.failure is not None
    assert found.failure[1] == sentence
    assert found.failure[0] == (414 if "target" in sentence else 431)


@pytest.mark.parametrize(
    "options",
    [{"max_head": 0}, {"max_head": 65536}, {"max_target": 0}, {"max_fields": 0}],
)
def test_limits_have_bounds(options: dict[str, int]) -> None:
    with raises(ValueError):
        HttpHead(**options)


def test_a_head_is_not_read_when_its_bytes_are_gone() -> None:
    framer = HttpFramer(max_body=10)
    stream = FrameStream(framer)
    found = framer.head
    with raises(RuntimeError):
        _ = found.fields
    stream.receive_data(head(line=b"GET /a HTTP/1.1"))
    assert [bytes(body or b"") for body in stream] == [b""]
    with raises(RuntimeError):
        _ = found.path  # the iteration has asked for another one
    stream.receive_data(head(line=b"GET /b HTTP/1.1"))
    assert next(stream) is not None
    assert found.path == "/b"
    stream.receive_data(b"G")
    with raises(RuntimeError):
        _ = found.path
    assert list(stream) == []
    stream.receive_data(b"ET /c HTTP/1.1\r\nHost: a\r\n\r\n")
    assert next(stream) is not None
    assert found.raw.startswith(b"GET /c")
    del stream, framer
    with raises(RuntimeError):
        _ = found.authority
