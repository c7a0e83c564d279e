"""The framing by three newlines against its model: the same frames at any chunking."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from model import blank_lines
from model.streams import cuts

from wirespeed._core.framing.line import BlankLineFramer
from wirespeed._core.streams import FrameStream

PIECES = (
    b"\n", b"\n\n", b"\n\n\n", b"\r\n", b"\r\n\r\n\r\n", b"\r", b" ", b"\t", b"x", b'"', b"\\",
    b'{"a":1}', b"{", b"}", b"[", b"]", b'"}"', b'{\n"a":\n1\n}', b"\xef\xbb\xbf", b"y" * 30,
)  # fmt: skip


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Mostly newlines and brackets, in any order."""
    mark = draw(st.sampled_from((b"", b"", b"\xef\xbb\xbf")))
    return mark + b"".join(draw(st.lists(st.sampled_from(PIECES), max_size=30)))


@given(st.data(), streams(), st.booleans(), st.booleans(), st.sampled_from((5, 20, 1000)))
def test_the_same_frames_as_the_model(
    data: st.DataObject, stream: bytes, eof: bool, lenient: bool, max_frame: int
) -> None:
    reader = FrameStream(BlankLineFramer(max_frame, lenient=lenient))
    found: list[bytes | None] = []
    so_far = b""
    for chunk in data.draw(cuts(stream)):
        if data.draw(st.booleans()):
            reader.receive_data(chunk)
        else:
            view = reader.get_buffer()
            view[: len(chunk)] = chunk
            reader.buffer_updated(len(chunk))
        so_far += chunk
        if data.draw(st.booleans()):
            found += [None if frame is None else bytes(frame) for frame in reader]
            assert found == blank_lines.frames(so_far, False, max_frame, lenient)
    if eof:
        reader.receive_eof()
    found += [None if frame is None else bytes(frame) for frame in reader]
    assert found == blank_lines.frames(stream, eof, max_frame, lenient)
    assert reader.oversize == found.count(None)
    if eof:
        assert reader.framer.buffered == 0
