"""Requests and responses of any shape, at any chunking of the bytes, both ways."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from lab.examples import examples
from lab.http_corpus import CASES

from wirespeed._core.framing.http.framer import HttpFramer
from wirespeed._core.framing.http.writer import field_lines
from wirespeed.core import FrameStream

TOKEN = "!#$%&'*+-.^_`|~0123456789ABCXYZabcxyz"
VISIBLE = "".join(map(chr, [*range(0x21, 0x7F), *range(0x80, 0x100)]))
MEANT = {"host", "content-length", "transfer-encoding", "connection", "expect"}
tokens = st.text(TOKEN, min_size=1, max_size=30)
names = tokens.filter(lambda name: name.lower() not in MEANT)
values = st.text(VISIBLE + " \t", max_size=60).map(lambda text: text.strip(" \t"))
blanks = st.text(" \t", max_size=3)
paths = st.text("abz09-._~:@!$&'()*+,;=%/", max_size=20).map(lambda text: "/" + text)
queries = st.none() | st.text("ab9=&?/{|}^`\\", max_size=20)
bodies = st.binary(max_size=300)


class Request(NamedTuple):
    method: str
    path: str
    query: str | None
    fields: list[tuple[str, str]]
    body: bytes


@st.composite
def chunkings(draw: st.DrawFn, body: bytes) -> bytes:
    """A body in chunks, with extensions and trailers."""
    out = b""
    quoted = st.text(VISIBLE, max_size=9).map(
        lambda text: '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
    )
    while True:
        n = draw(st.integers(1, 100))
        part, body = body[:n], body[n:]
        size = draw(st.sampled_from(["%x", "%X", "000%x"])) % len(part)
        for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
            size += draw(blanks) + ";" + draw(blanks) + draw(tokens)
            if draw(st.booleans()):
                size += draw(blanks) + "=" + draw(blanks) + draw(tokens | quoted)
        out += size.encode("latin-1") + b"\r\n"
        if not part:
            break
        out += part + b"\r\n"
    for name, value in draw(st.lists(st.tuples(tokens, values), max_size=2)):
        out += f"{name}:{value}\r\n".encode("latin-1")
    return out + b"\r\n"


@st.composite
def requests(draw: st.DrawFn) -> tuple[Request, bytes]:
    fields = draw(st.lists(st.tuples(names, values), max_size=20))
    method, path = draw(tokens.filter(lambda word: word != "CONNECT")), draw(paths)
    query, body = draw(queries), draw(bodies)
    wire = body
    if draw(st.booleans()):
        framing = [("Transfer-Encoding", "chunked")]
        wire = draw(chunkings(body))
    elif body or draw(st.booleans()):
        framing = [("Content-Length", str(len(body)))]
    else:
        framing = []
    for field in [("Host", "a.example"), *framing]:
        fields.insert(draw(st.integers(0, len(fields))), field)
    target = path if query is None else f"{path}?{query}"
    lines = [f"{method} {target} HTTP/1.1"]
    lines += [f"{name}:{draw(blanks)}{value}{draw(blanks)}" for name, value in fields]
    head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
    empty = draw(st.sampled_from([b"", b"", b"\r\n"]))
    return Request(method, path, query, fields, body), empty + head + wire


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=20)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]


def read(chunks: list[bytes], buffered: bool = False) -> tuple[list[Request], HttpFramer]:
    framer = HttpFramer(max_body=1000)
    stream = FrameStream(framer)
    found = []
    for chunk in chunks:
        if buffered:
            view = stream.get_buffer()
            view[: len(chunk)] = chunk
            view.release()
            stream.buffer_updated(len(chunk))
        else:
            stream.receive_data(chunk)
        for body in stream:
            head = framer.head
            found.append(
                Request(head.method, head.path, head.query, head.fields, bytes(body or b""))
            )
    return found, framer


@examples(100)
@given(st.data(), st.lists(requests(), max_size=4), st.booleans())
def test_requests_are_read_as_they_were_meant(
    data: st.DataObject, written: list[tuple[Request, bytes]], buffered: bool
) -> None:
    found, framer = read(data.draw(cuts(b"".join(wire for _, wire in written))), buffered)
    assert framer.failure is None
    assert found == [request for request, _ in written]
    assert framer.buffered == 0


@examples(250)
@given(
    st.data(),
    st.lists(st.sampled_from([case.data for case in CASES if len(case.data) < 500]), max_size=2),
    st.lists(st.tuples(st.integers(0, 600), st.integers(0, 5), st.binary(max_size=3))),
    st.booleans(),
)
def test_the_cut_does_not_decide(
    data: st.DataObject, seeds: list[bytes], edits: list[tuple[int, int, bytes]], buffered: bool
) -> None:
    stream = b"".join(seeds)
    for at, n, text in edits:
        stream = stream[:at] + text + stream[at + n :]
    whole, framer = read([stream] if stream else [])
    found, other = read(data.draw(cuts(stream)), buffered)
    assert (found, other.failure, other.ended) == (whole, framer.failure, framer.ended)


@examples(100)
@given(
    st.data(),
    st.lists(
        st.tuples(
            st.sampled_from((200, 202, 204, 404, 599)), st.lists(st.tuples(names, values)), bodies
        ),
        max_size=5,
    ),
)
def test_a_client_reads_what_a_server_writes(
    data: st.DataObject, written: list[tuple[int, list[tuple[str, str]], bytes]]
) -> None:
    server = HttpFramer(max_body=1000)
    output = FrameStream(server)
    expected = []
    for status, fields, body in written:
        if status == 204:
            body = b""
        server.respond(status, body, fields=fields)
        expected.append((status, fields, body))
    wire = b"".join(map(bytes, output.data_to_send()))
    client = HttpFramer("client", max_body=1000)
    stream = FrameStream(client)
    found = []
    for chunk in data.draw(cuts(wire)):
        stream.receive_data(chunk)
        for body in stream:
            fields = [one for one in client.head.fields if one[0] != "Content-Length"]
            found.append((client.head.status, fields, bytes(body or b"")))
    assert client.failure is None
    assert found == expected


@examples(150)
@given(st.data(), st.lists(st.tuples(st.booleans(), bodies), max_size=4), bodies, st.booleans())
def test_bodies_in_pieces_are_those_that_were_sent(
    data: st.DataObject, sent: list[tuple[bool, bytes]], rest: bytes, whole: bool
) -> None:
    """Some bodies in pieces and some whole, and at last one that the connection ends."""
    wire = b""
    for chunked, body in sent:
        if chunked:
            wire += b"HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n"
            wire += data.draw(chunkings(body))
        else:
            wire += b"HTTP/1.1 200 x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    wire += b"HTTP/1.1 200 x\r\n\r\n" + rest
    framer = HttpFramer("client", max_body=1000, heads=True)
    stream = FrameStream(framer)
    found: list[bytes] = []
    ended = []

    def look() -> None:
        for piece in stream:
            if framer.part == "head":
                found.append(b"")
                if not whole or len(found) % 2:
                    framer.take_pieces()
            else:
                assert framer.part != "end" or not piece
                found[-1] += bytes(piece or b"")
                if framer.part != "piece":
                    ended.append(len(found))

    for chunk in data.draw(cuts(wire)):
        stream.receive_data(chunk)
        look()
    stream.receive_eof()
    look()
    assert framer.failure is None
    assert found == [*(body for _, body in sent), rest]
    assert ended == list(range(1, len(found) + 1))


@given(st.lists(st.tuples(tokens, values), max_size=5))
def test_written_fields_are_read_alike(fields: list[tuple[str, str]]) -> None:
    fields = [(name, value) for name, value in fields if name.lower() not in MEANT]
    head = b"GET / HTTP/1.1\r\nHost: a\r\n" + field_lines(fields) + b"\r\n"
    [found], _ = read([head])
    assert found.fields[1:] == fields
