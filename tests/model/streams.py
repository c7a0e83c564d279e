"""Hypothesis strategies for what a peer may send: good, broken and hostile."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")

IDS = (
    b"1", b"2", b"3", b"1048577", b"4503599627370497", b"12345678901234567890123", b"-0",
    b'"1"', b'"a"', '"é"'.encode(), b'"\\u00e9"', b'"' + b"long" * 20 + b'"',
)  # fmt: skip
BAD_IDS = (b"null", b"true", b"1.5", b"1e0", b"[]", b"{}")
METHODS = (
    b'"x"', b'"tools/call"', b'"tools\\/call"', b'"ping"', b'"initialize"', b'"initi\\u0061lize"',
    b'"notifications/cancelled"', b'"notifications\\/cancelled"', b'"notifications/progress"',
)  # fmt: skip
VALUES = (b"{}", b"[]", b'"s"', b"0", b"null", b'{"name":1}', b'{"name":1,"name":2}')
BLANKS = st.sampled_from((b"", b"", b"", b" ", b"\t", b"  ", b"\r"))

ids = st.sampled_from(IDS)
any_id = st.one_of(ids, ids, ids, st.sampled_from(BAD_IDS))
small_ids = st.sampled_from(
    (b"1", b"2", b"1", b'"1"', rb'"\u0031"', b"1048577", b"1.0", b"4503599627370497")
)


@st.composite
def objects(draw: st.DrawFn, members: st.SearchStrategy[list[tuple[bytes, bytes]]]) -> bytes:
    """Members in any order, with whitespace anywhere."""
    parts = []
    for key, value in draw(st.permutations(draw(members))):
        blank = draw(BLANKS)
        parts.append(blank + b'"' + key + b'"' + blank + b":" + draw(BLANKS) + value)
    return b"{" + b",".join(parts) + draw(BLANKS) + b"}"


@st.composite
def call_members(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    members = [(b"jsonrpc", b'"2.0"'), (b"method", draw(st.sampled_from(METHODS)))]
    if draw(st.integers(0, 3)):
        members.append((b"id", draw(any_id)))
    if draw(st.booleans()):
        about = draw(st.sampled_from((b"requestId", b"progressToken", b"name", b"_meta")))
        params = b'{"%b":%b}' % (about, draw(st.one_of(ids, small_ids)))
        members.append((b"params", draw(st.sampled_from((params, params, b"{}", *VALUES)))))
    return members


@st.composite
def cancel_members(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    return [
        (b"jsonrpc", b'"2.0"'),
        (b"method", b'"notifications/cancelled"'),
        (b"params", b'{"requestId":%b}' % draw(st.one_of(ids, small_ids))),
    ]


@st.composite
def request_members(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    method = draw(st.sampled_from((b'"x"', b'"tools/call"', b'"ping"')))
    return [(b"jsonrpc", b'"2.0"'), (b"method", method), (b"id", draw(ids))]


@st.composite
def response_members(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    members = [(b"jsonrpc", b'"2.0"')]
    if draw(st.integers(0, 4)):
        members.append((b"id", draw(st.one_of(small_ids, small_ids, any_id))))
    body = st.tuples(st.sampled_from((b"result", b"error")), st.sampled_from(VALUES))
    members += draw(st.lists(body, min_size=1, max_size=1) | st.lists(body, max_size=2))
    return members


@st.composite
def broken_members(draw: st.DrawFn) -> list[tuple[bytes, bytes]]:
    """Members that a message may have, any of them, any number of times."""
    keys = st.sampled_from(
        (
            b"jsonrpc",
            b"json\\u0072pc",
            b"id",
            b"i\\u0064",
            b"method",
            b"params",
            b"result",
            b"error",
        )
    )
    values = st.one_of(
        st.sampled_from((b'"2.0"', b'"2\\u002e0"', b'"1.0"')), any_id, st.sampled_from(METHODS),
        st.sampled_from(VALUES),
    )  # fmt: skip
    return draw(st.lists(st.tuples(keys, values), max_size=6))


@st.composite
def nested(draw: st.DrawFn) -> bytes:
    depth = draw(st.integers(1, 9))
    deep = b"[" * depth + b"]" * depth
    return b'{"jsonrpc":"2.0","method":"x","id":9,"params":{"a":%b}}' % deep


@st.composite
def damaged(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> bytes:
    """A text with one byte put in, taken out or changed."""
    text = draw(texts)
    at = draw(st.integers(0, len(text)))
    byte = draw(
        st.sampled_from((b'"', b"{", b"}", b"[", b",", b"\\", b"\xff", b"\xc3", b"\x00", b"1"))
    )
    return text[:at] + draw(st.sampled_from((b"", byte))) + text[at + draw(st.integers(0, 1)) :]


messages = st.one_of(
    objects(request_members()), objects(request_members()), objects(call_members()),
    objects(cancel_members()), objects(response_members()), objects(response_members()),
    objects(broken_members()), nested(),
    st.sampled_from((b"1", b"null", b'"text"', b"[[]]", b"nonsense", b"{}", b"\xc3\xa9", b"\xff")),
)  # fmt: skip


@st.composite
def batch_texts(draw: st.DrawFn) -> bytes:
    blank = draw(BLANKS)
    joint = draw(st.sampled_from((b",", b",", b",", b" , ", b",,", b"")))
    return b"[" + blank + joint.join(draw(st.lists(messages, max_size=6))) + blank + b"]"


texts = st.one_of(
    messages, messages, messages, batch_texts(), damaged(messages), damaged(batch_texts())
)


@st.composite
def streams(draw: st.DrawFn, max_lines: int = 12) -> bytes:
    """Lines, each ended in one of the tolerated ways, perhaps with a mark before and a rest."""
    stream = draw(st.sampled_from((b"", b"", b"", b"\xef\xbb\xbf")))
    for text in draw(st.lists(texts, max_size=max_lines)):
        stream += (
            draw(BLANKS)
            + text
            + draw(st.sampled_from((b"\n", b"\n", b"\r\n", b"\n\n", b" \r\r\n")))
        )
    return stream + draw(
        st.sampled_from((b"", b"", b'{"jsonrpc":"2.0","method":"last"}', b"x", b"\r"))
    )


FEW = [b'{"jsonrpc":"2.0","id":%d,"method":"x"}\n' % id for id in (1, 2, 3)]
FEW += [
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}\n' % id
    for id in (1, 2, 3)
]
# Requests with few ids, and their cancellations.
busy = st.lists(st.sampled_from(FEW), max_size=25).map(b"".join)


def turns(values: st.SearchStrategy[T]) -> st.SearchStrategy[Sequence[T]]:
    """What is done behind each of many chunks, in turn: chunk ``i`` has ``turns[i % len(turns)]``.

    A value for each chunk of a stream that comes byte by byte would take most of the test's time.
    """
    return st.lists(values, min_size=1, max_size=8)


@st.composite
def cuts(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    """The stream in chunks."""
    style = draw(st.sampled_from(("whole", "bytes", "lines", "any")))
    if style == "whole":
        return [stream] if stream else []
    if style == "bytes":
        return [stream[i : i + 1] for i in range(len(stream))]
    if style == "lines":
        return re.findall(rb"[^\n]*\n|[^\n]+", stream)
    at = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    return [stream[i:j] for i, j in zip([0, *at], [*at, len(stream)], strict=True) if i < j]
