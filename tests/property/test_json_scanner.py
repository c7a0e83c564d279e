"""The JSON scan against json, orjson and the scalar kernel, on good and damaged documents."""

from __future__ import annotations

import json
import random
import re

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from model import json_model

from wirespeed._core import _simd

LEVELS = _simd.levels()
SEEDS = st.integers(0, 2**64 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=60,
)  # fmt: skip


def check(data: bytes, level: str) -> None:
    """The scan of `data` finds what the model finds."""
    expected = json_model.read(data)
    found = _simd.scan(data, level=level)
    if expected is None:
        assert found.status in ("empty", "syntax", "utf8")
        assert 0 <= found.error_at <= len(data)
        assert (found.status == "empty") == (data.strip(b" \t\n\r") == b"")
        return
    assert found.status == "ok"
    assert (found.root, found.id_kind) == (expected.root, expected.id_kind)
    assert set(found.duplicates) == expected.duplicates
    texts = {name: data[off : off + size] for name, (off, size) in found.poi.items()}
    assert {name: json_model.decode(text.decode()) for name, text in texts.items()} == (
        expected.values
    )
    for text in (*texts.values(), data[found.value[0] : found.end]):
        assert text == text.strip(b" \t\n\r")
    assert data[found.end :].strip(b" \t\n\r") == b""
    assert sum(found.value) == found.end
    if expected.depth:
        assert _simd.scan(data, level=level, max_depth=expected.depth).status == "ok"
    if expected.depth > 1:
        limited = _simd.scan(data, level=level, max_depth=expected.depth - 1)
        assert limited.status == "depth"
        assert data[limited.error_at] in b"[{"


def same(data: bytes, level: str, **options: int) -> None:
    assert _simd.scan(data, level=level, **options) == _simd.scan(data, level="scalar", **options)


@pytest.mark.parametrize("level", LEVELS)
@given(seed=SEEDS)
def test_documents_are_read_as_json_reads_them(level: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(10):
        check(json_model.document(rng), level)


@pytest.mark.parametrize("level", LEVELS)
@given(seed=SEEDS)
def test_damaged_documents_are_judged_as_json_judges_them(level: str, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        check(json_model.mutate(rng, json_model.document(rng)), level)


@pytest.mark.parametrize("level", LEVELS)
@given(value=VALUES, indent=st.sampled_from([None, 0, 1, 30]), ascii=st.booleans())
def test_what_json_writes_is_read(
    level: str, value: object, indent: int | None, ascii: bool
) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii)
    data = text.encode("utf-8", "surrogatepass")
    check(data, level)


@pytest.mark.parametrize("level", LEVELS)
@given(data=st.binary(max_size=200))
@example(data=b"\xef\xbb\xbf{}")
def test_any_bytes_get_a_verdict(level: str, data: bytes) -> None:
    check(data, level)


@pytest.mark.parametrize("level", LEVELS)
@given(seed=SEEDS)
def test_orjson_agrees(level: str, seed: int) -> None:
    """Save that orjson refuses lone surrogate escapes, and numbers beyond a double."""
    rng = random.Random(seed)
    for _ in range(20):
        data = json_model.document(rng)
        if rng.random() < 0.7:
            data = json_model.mutate(rng, data)
        try:
            orjson.loads(data)
        except orjson.JSONDecodeError:
            beyond = re.search(rb"\\u[dD][89a-fA-F]|[eE][+-]?[0-9]{3}|[0-9]{300}", data)
            assert _simd.scan(data, level=level).status != "ok" or beyond
        else:
            assert _simd.scan(data, level=level).status == "ok"


@pytest.mark.parametrize("level", [level for level in LEVELS if level != "scalar"])
@given(seed=SEEDS)
def test_levels_agree_at_every_shift(level: str, seed: int) -> None:
    rng = random.Random(seed)
    data = json_model.document(rng).lstrip(b" ")
    if rng.random() < 0.5:
        data = json_model.mutate(rng, data)
    depth = rng.choice((1, 2, 3, 4, 8, 128))
    for shift in range(131):
        same(b" " * shift + data, level, max_depth=depth)
        same(b'{"x":"' + b"s" * shift + b'","params":' + data + b"}", level, max_depth=depth)


@pytest.mark.parametrize("level", LEVELS)
@given(seed=SEEDS)
def test_prefix_is_the_document_whatever_follows(level: str, seed: int) -> None:
    rng = random.Random(seed)
    data = json_model.document(rng).rstrip(b" \t\n\r")
    whole = _simd.scan(data, level=level)
    tail = rng.choice((b"", b",", b"]", b" ", b"\xff", b'"', b",{}", b"\n" * 70, b"}]" * 90))
    assert _simd.scan(data + tail, prefix=True, level=level) == whole
    damaged = json_model.mutate(rng, data) + tail
    assert _simd.scan(damaged, prefix=True, level=level) == (
        _simd.scan(damaged, prefix=True, level="scalar")
    )


@pytest.mark.parametrize("level", LEVELS)
@given(seed=SEEDS)
def test_every_cut_of_a_document_is_faulty(level: str, seed: int) -> None:
    rng = random.Random(seed)
    data = b'{"x":' + json_model.document(rng).strip(b" \t\n\r") + b"}"
    for cut in range(len(data)):
        found = _simd.scan(data[:cut], level=level)
        assert found.status in ("empty", "syntax", "utf8")
        if found.status == "syntax":
            assert found.error_at == cut  # the fault is that it ends
