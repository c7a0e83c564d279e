"""The C kernels: every level against the scalar one, at every alignment and at a guard page."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest
from lab.guard_page import guarded, put, shifted
from lab.rows import every
from lab.wording import raises

from wirespeed._core import _simd

__all__ = ["guarded"]  # a fixture

LEVELS = _simd.levels()
FAST = [level for level in LEVELS if level != "scalar"]
UTF8 = (
    "plain ascii, " + "é" + "日本語" + "🎉" + "\x7f\x00 " + "ж" * 20 + "𐍈" * 9 + "x" * 70
).encode()

ROW = b'{"id":7,"name":"r","tags":["a","b"],"v":-1.5e-3,"ok":true,"n":null,"e":[{},[]]},'


def text_of(length: int) -> bytes:
    """JSON of exactly this many bytes, for lengths from 2: rows, strings, numbers, whitespace."""
    rows = b'{"id":12,"name":"r\xc3\xa9 \\n","v":-1.5e3,"ok":true,"n":null,"t":["a",[],{}]}'
    out = b"[" + b",".join([rows] * (length // len(rows)))
    if len(out) + 1 > length:
        out = b"["
    rest = length - len(out) - 1
    if out != b"[" and rest >= 4:
        out += b',"' + b"x" * (rest - 3) + b'"'
    elif out == b"[" and rest >= 2:
        out += b'"' + b"y" * (rest - 2) + b'"'
    return out.ljust(length - 1) + b"]"


# ---- levels ----


def test_levels_are_those_of_the_machine() -> None:
    assert LEVELS[0] == "scalar"
    assert _simd.level() in LEVELS
    known = ["scalar", "sse2", "avx2", "avx512", "neon"]
    assert [level for level in known if level in LEVELS] == LEVELS


def test_levels_need_what_linux_knows_of_the_cpu() -> None:
    if platform.machine() in ("aarch64", "arm64"):
        assert LEVELS == ["scalar", "neon"]
    elif sys.platform == "linux" and platform.machine() == "x86_64":
        (line, *_) = (x for x in Path("/proc/cpuinfo").read_text().splitlines() if x[:5] == "flags")
        flags = set(line.split())
        avx2 = flags >= {"avx2", "bmi1", "bmi2", "pclmulqdq", "popcnt"}
        wide = flags >= {"avx512f", "avx512bw", "avx512vl", "avx512vbmi", "avx512_vbmi2"}
        assert ("avx2" in LEVELS) == avx2
        assert ("avx512" in LEVELS) == (avx2 and wide)


@pytest.mark.parametrize("level", ["", "mmx", "SCALAR", "scalar\0"])
def test_unknown_level_is_refused(level: str) -> None:
    with raises(ValueError):
        _simd.find_newline(b"", level=level)


def cap(value: str | None) -> str:
    env = {key: text for key, text in os.environ.items() if key != "WIRESPEED_SIMD"}
    if value is not None:
        env["WIRESPEED_SIMD"] = value
    program = "from wirespeed._core import _simd; print(_simd.level())"
    done = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.mark.parametrize("level", LEVELS)
def test_variable_caps_the_level(level: str) -> None:
    assert cap(level) == level
    assert cap(level.upper()) == level


def test_without_a_cap_the_best_level_is_used() -> None:
    assert cap(None) == LEVELS[-1]
    assert cap("no such level") == LEVELS[-1]


def test_only_contiguous_bytes_are_taken() -> None:
    with pytest.raises(BufferError):
        _simd.find_newline(memoryview(b"a\nb\n")[::2])
    with pytest.raises(TypeError):
        _simd.find_newline("text")  # type: ignore[arg-type]
    assert _simd.find_newline(bytearray(b"ab\n")) == 2
    assert _simd.find_newline(memoryview(b"xab\n")[1:]) == 2


# ---- newline ----


@pytest.mark.parametrize("level", LEVELS)
def test_newline_at_every_place(level: str, guarded: memoryview) -> None:
    for length in range(257):
        plain = b"\x0b\x8a\x09." * 65
        assert _simd.find_newline(put(guarded, plain[:length]), level=level) == length
        for at in {0, length // 3, length // 2, length - 1} & set(range(length)):
            data = bytearray(plain[:length])
            data[at] = 10
            data[-1] = 10
            assert _simd.find_newline(put(guarded, bytes(data)), level=level) == at


@pytest.mark.parametrize("level", LEVELS)
def test_newline_at_every_alignment(level: str) -> None:
    for by in range(64):
        for length in (0, 1, 15, 16, 17, 63, 64, 65, 128, 200, 256):
            assert _simd.find_newline(shifted(b"x" * length, by), level=level) == length


# ---- UTF-8 ----

BAD_UTF8 = [
    b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xc3", b"\xc3\x28", b"\xe0\x80\x80",
    b"\xe0\x9f\xbf", b"\xe2\x82", b"\xe2\x28\xa1", b"\xe2\x82\x28", b"\xed\xa0\x80",
    b"\xed\xbf\xbf", b"\xf0\x80\x80\x80", b"\xf0\x8f\xbf\xbf", b"\xf0\x9f\x8e", b"\xf0\x28\x8c\xbc",
    b"\xf0\x90\x28\xbc", b"\xf0\x90\x8c\x28", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xf8",
    b"\xf9\x80\x80\x80\x80", b"\xfe", b"\xff", b"\xc3\xa9\xa9", b"\xe2\x82\xac\x80",
    b"\xf0\x9f\x8e\x89\x80",
]  # fmt: skip
GOOD_UTF8 = [
    b"\x00", b"\x7f", b"\xc2\x80", b"\xdf\xbf", b"\xe0\xa0\x80", b"\xec\xbf\xbf", b"\xed\x9f\xbf",
    b"\xee\x80\x80", b"\xef\xbf\xbf", b"\xf0\x90\x80\x80", b"\xf3\xbf\xbf\xbf", b"\xf4\x8f\xbf\xbf",
]  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
def test_utf8_sequences_at_every_place(level: str, guarded: memoryview) -> None:
    for good, sequences in ((False, BAD_UTF8), (True, GOOD_UTF8)):
        for sequence in sequences:
            for before in range(131):
                for behind in (b"", b"x", b"x" * 70):
                    data = b"a" * before + sequence + behind
                    assert _simd.utf8_valid(put(guarded, data), level=level) is good, data


@pytest.mark.parametrize("level", LEVELS)
def test_every_pair_of_bytes_is_judged_as_python_does(level: str) -> None:
    for first in range(0x78, 256):
        for second in range(256):
            for rest in (b"", b"\x80", b"\x80\x80"):
                data = b"." * 62 + bytes((first, second)) + rest
                try:
                    data.decode()
                except UnicodeDecodeError:
                    assert not _simd.utf8_valid(data, level=level)
                else:
                    assert _simd.utf8_valid(data, level=level)


@pytest.mark.parametrize("level", FAST)
def test_utf8_at_every_length_and_alignment(level: str) -> None:
    for by in range(64):
        for length in range(by % 3, 257, 3):
            data = shifted(UTF8[:length], by)
            assert _simd.utf8_valid(data, level=level) == _simd.utf8_valid(data, level="scalar")


# ---- escaping ----


@pytest.mark.parametrize("level", LEVELS)
def test_escaped_text_is_what_json_writes(level: str, guarded: memoryview) -> None:
    every = "".join(map(chr, range(256))) + '"quoted" \\ 日本 🎉' + "x" * 80 + '\n"\n' * 30
    for length in range(len(every) + 1):
        text = every[length:] + every[: length // 2]
        expected = json.dumps(text, ensure_ascii=False)[1:-1].encode()
        assert _simd.json_escape(put(guarded, text.encode()), level=level) == expected


@pytest.mark.parametrize("level", FAST)
def test_escaping_at_every_alignment(level: str) -> None:
    for by in range(64):
        for at in range(0, 130, 7):
            data = shifted(b"p" * at + b'"' + b"q" * 67 + b"\x01" + b"r" * (by % 9), by)
            got = _simd.json_escape(data, level=level)
            assert got == _simd.json_escape(data, level="scalar")


@pytest.mark.parametrize("level", LEVELS)
def test_json_plain_at_every_place(level: str, guarded: memoryview) -> None:
    for n in range(200):
        text = b"a" * n
        assert _simd.json_plain(put(guarded, text), level=level) == (n, True)
        for at in {0, 1, n // 2, n - 2, n - 1} & set(range(n)):
            for odd in b'"\\\x00\x1f\n':
                data = bytearray(text)
                data[at] = odd
                data[at + 1 :] = b"\xff" * (n - at - 1)  # what lies behind counts for nothing
                assert _simd.json_plain(put(guarded, data), level=level) == (at, True)
            for high in b"\x80\xff":
                data = bytearray(text)
                data[at] = high
                assert _simd.json_plain(put(guarded, data), level=level) == (n, False)


# ---- JSON ----


@pytest.mark.parametrize("level", LEVELS)
def test_json_of_every_length_at_a_guard_page(level: str, guarded: memoryview) -> None:
    for length in range(2, 700):
        text = text_of(length)
        assert len(text) == length
        json.loads(text)
        for data in (text, b'{"id":1,"params":' + text + b"}"):
            found = _simd.scan(put(guarded, data), level=level)
            assert (found.status, found.end) == ("ok", len(data)), data
        for cut in (text[:-1], text[: length // 2]):
            assert _simd.scan(put(guarded, cut), level=level).status != "ok"


@pytest.mark.parametrize("level", FAST)
def test_json_at_every_alignment(level: str) -> None:
    for by in range(64):
        for length in range(2 + by % 5, 257, 5):
            data = shifted(b'{"id":"a","x":' + text_of(length) + b"}", by)
            assert _simd.scan(data, level=level) == _simd.scan(data, level="scalar")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("big", [False, True])
def test_every_cut_at_a_guard_page(level: str, big: bool, guarded: memoryview) -> None:
    rows = b"[" + ROW * (8 if big else 1) + b'"\\u00e9",-0.5e+7,false]'
    data = b'{"id":-7,"params":{"name":"n","x":{},"_meta":{"y":[[]]},"z":' + rows + b'},"error":{}}'
    json.loads(data)
    for cut in range(len(data)):
        end = put(guarded, data[:cut])
        for prefix in (False, True):
            found = _simd.scan(end, prefix=prefix, level=level)
            assert (found.status, found.error_at) == ("syntax" if cut else "empty", cut)


@pytest.mark.parametrize("level", LEVELS)
def test_prefix_ends_at_a_guard_page(level: str, guarded: memoryview) -> None:
    for length in range(2, 400):
        text = text_of(length)
        for tail in (b"", b",", b" \n", b"]]]", b'"', b"\xff\x00", b"{" * 80):
            found = _simd.scan(put(guarded, text + tail), prefix=True, level=level)
            assert (found.status, found.value, found.end) == ("ok", (0, length), length)


MESSAGE = (
    b'{"jsonrpc":"2.0","id":1001,"method":"tools/call","params":{"name":"echo","arguments":'
    b'{"text":"hi"},"_meta":{"progressToken":7}}}'
)


@every("level", LEVELS)
@every("lead", range(0, 131, 13))
def test_points_of_interest(level: str, lead: int) -> None:
    data = b" " * lead + MESSAGE + b" \r"
    found = _simd.scan(data, level=level)
    texts = {name: data[off : off + size] for name, (off, size) in found.poi.items()}
    assert texts == {
        "jsonrpc": b'"2.0"',
        "id": b"1001",
        "method": b'"tools/call"',
        "params": MESSAGE[MESSAGE.index(b'{"name') : -1],
        "params.name": b'"echo"',
        "params.arguments": b'{"text":"hi"}',
        "params._meta": b'{"progressToken":7}',
        "params._meta.progressToken": b"7",
    }
    assert (found.status, found.root, found.id_kind) == ("ok", "object", "integer")
    assert (found.value, found.end) == ((lead, len(MESSAGE)), lead + len(MESSAGE))
    assert (found.duplicates, found.error_at) == ((), 0)


@every("level", LEVELS)
@every(
    ("text", "kind"),
    [
        ("0", "integer"), ("-0", "integer"), ("-12", "integer"), ("1" * 300, "integer"),
        ("1.0", "invalid"), ("1e2", "invalid"), ('"1"', "string"), ('""', "string"),
        ("null", "null"), ("true", "invalid"), ("false", "invalid"), ("[1]", "invalid"),
        ("{}", "invalid"), ('{"id":1}', "invalid"),
    ],
)  # fmt: skip
def test_kind_of_id(level: str, text: str, kind: str) -> None:
    for data in (f'{{"id":{text}}}', f'{{"method":"m","id" : {text} ,"params":{{"id":3}}}}'):
        found = _simd.scan(data.encode(), level=level)
        assert found.id_kind == kind
        off, size = found.poi["id"]
        assert data[off : off + size] == text


@pytest.mark.parametrize("level", LEVELS)
def test_second_occurrence_is_marked_and_not_entered(level: str) -> None:
    data = rb'{"id":1,"params":{"name":"a"},"p\u0061rams":{"name":"b","uri":"c"},"id":"2"}'
    found = _simd.scan(data, level=level)
    assert found.duplicates == ("id", "params")
    assert found.id_kind == "integer"
    assert set(found.poi) == {"id", "params", "params.name"}
    assert found.poi["id"] == (6, 1)


@every("level", LEVELS)
@every("limit", [1, 2, 7, 62, 63, 64, 65, 127, 128, 1023, 1024])
def test_depth_bound_is_exact(level: str, limit: int) -> None:
    for opener, closer in ((b"[", b"]"), (b'{"params":', b"}"), (b'{"result":', b"}")):
        for pad in (b"", b"." * 300):
            head = b'{"x":"' + pad + b'","y":' if pad else b""
            tail = b"}" if pad else b""
            levels = limit - len(tail)
            good = head + opener * levels + b"1" + closer * levels + tail
            bad = head + opener * (levels + 1) + b"1" + closer * (levels + 1) + tail
            assert _simd.scan(good, max_depth=limit, level=level).status == "ok"
            found = _simd.scan(bad, max_depth=limit, level=level)
            inner = bad.rindex(opener)
            assert (found.status, found.error_at) == ("depth", inner)
            assert found.end == inner


@pytest.mark.parametrize("level", LEVELS)
def test_depth_fault_keeps_what_came_before(level: str) -> None:
    found = _simd.scan(b'{"id":9,"method":"m","params":[[[]]],"x":1}', max_depth=3, level=level)
    assert found.status == "depth"
    assert found.id_kind == "integer"
    assert set(found.poi) == {"id", "method"}


def test_depth_out_of_range_is_refused() -> None:
    for depth in (0, -1, 1025, 1 << 40):
        with raises(ValueError):
            _simd.scan(b"[]", max_depth=depth)


FAULTS = [
    (b"", "empty", 0), (b" \n\t\r", "empty", 4), (b"nul", "syntax", 3), (b"nulL", "syntax", 3),
    (b"tru]", "syntax", 3), (b"01", "syntax", 1), (b"-", "syntax", 1), (b"-a", "syntax", 1),
    (b"1.", "syntax", 2), (b"1.e1", "syntax", 2), (b"1e", "syntax", 2), (b"1e+", "syntax", 3),
    (b"+1", "syntax", 0), (b".5", "syntax", 0), (b"NaN", "syntax", 0), (b"Infinity", "syntax", 0),
    (b"[1,]", "syntax", 3), (b"[,1]", "syntax", 1), (b"[1 2]", "syntax", 3), (b"[1", "syntax", 2),
    (b"[1}", "syntax", 2), (b"]", "syntax", 0), (b"[]]", "syntax", 2), (b"{]", "syntax", 1),
    (b"{1:2}", "syntax", 1), (b'{"a"}', "syntax", 4), (b'{"a":}', "syntax", 5),
    (b'{"a":1,}', "syntax", 7), (b'{"a":1 "b":2}', "syntax", 7), (b'{"a"::1}', "syntax", 5),
    (b'{"a":1', "syntax", 6), (b'["a":1]', "syntax", 4), (b'"a', "syntax", 2),
    (b'"\n"', "syntax", 1), (b'"\x00"', "syntax", 1), (b'"\\x"', "syntax", 2),
    (b'"\\u12g4"', "syntax", 5), (b'"\\u12"', "syntax", 5), (b'"\\', "syntax", 2),
    (b"\xef\xbb\xbf1", "syntax", 0), (b"\xff", "utf8", 0), (b"[1\x80]", "utf8", 2),
    (b'"a\xc3"', "utf8", 2), (b'"\xed\xa0\x80"', "utf8", 1), (b'"\xe6\x97', "utf8", 1),
    (b'"\\\xff"', "utf8", 2), (b"[1]\x0c", "syntax", 3), (b"1 1", "syntax", 2),
    (b"truefalse", "syntax", 4), (b"[\xc2\xa01]", "syntax", 1),
]  # fmt: skip


@every("level", LEVELS)
@every(("data", "status", "at"), FAULTS)
def test_faults(level: str, data: bytes, status: str, at: int) -> None:
    found = _simd.scan(data, level=level)
    assert (found.status, found.error_at) == (status, at)


# Wrong where they stand, for reasons that lie one or many tokens apart.
MISPLACED = [
    b"1.2.3", b"1e5.5", b"1e5e5", b"1.5e5.5", b"1.5e5e5", b"-01", b"00", b"1-2", b"1+2", b"--1",
    b"1e--5", b"1e+-5", b"1e5-", b"-.5", b"1.-5", b"1,5e", b"nul", b"nulll", b"tru", b"trull",
    b"true5", b"truee", b"fals", b"falsee", b"falsetrue", b"null1", b"1null", b"nule", b"trulse",
    b"faue", b"True", b"1a", b"a", b"1true", b"-true", b"\x7f", b"1\xc2\xa0", b"[1}", b'{"a":1]',
    b"[[1]", b"[1]]", b"[}", b"{]", b'{"a":[1}]', b'[{"a":1]}', b"{[]}", b"{{}}", b'{"a":1,[]}',
    b'{"a":1,[2],3}',
    b'{"a":1,[],"b":2}',
    b'{"a":1,{}}', b'{"a":{},[]}', b'{"a":1,"b"}', b'{"a","b":1}', b'{"a":1:2}',
    b'{"a":"b":1}', b'["a":1]', b'["a":[]]', b'[1,"a":{}]', b'[[],"a":1]', b'[{},[],"a":1]', b"[:]",
    b'{"a":1,,"b":2}', b"[1,,2]", b"[,]", b"{,}", b'{"a":,"b":1}', b'{:"a"}', b'"a"1', b'1"a"',
    b'"a""b"', b'"a"[]', b"[]{}", b"{}1", b'[]"a"', b'{"a"1}', b'{"a" "b":1}', b"{true:1}",
    b"{1:1}",
    b'{null:"a"}', b'{[]:1}', b"\\n", b'"\\u00"', b'"\\u00g0"', b'"\\', b'"\t"', b"'a'",
]  # fmt: skip


@every("level", LEVELS)
@every("data", MISPLACED)
def test_misplaced_tokens_everywhere(level: str, data: bytes) -> None:
    for shift in range(67):
        blank = b" " * shift
        short = b'{"x":[' + blank + data + b"]}"
        amid = b'{"x":[' + ROW * 4 + blank + data + b"," + ROW * 4 + b"1]}"
        inner = (
            b'{"x":['
            + b"[" * 20
            + ROW * 2
            + blank
            + data
            + b","
            + ROW * 8
            + b"1"
            + b"]" * 21
            + b"}"
        )
        for text in (short, amid, inner, short[5:-1]):
            assert _simd.scan(text, level=level).status in ("syntax", "utf8"), text
            good = text.replace(data, b"1", 1) if text.count(data) == 1 else b"1"
            assert _simd.scan(good, level=level).status == "ok", good


@pytest.mark.parametrize("level", LEVELS)
def test_utf8_in_strings_at_every_place(level: str) -> None:
    for good, sequences in ((False, BAD_UTF8), (True, GOOD_UTF8[2:])):
        for sequence in sequences:
            for before in range(131):
                for behind in (b"", b"x" * 70):
                    text = b'"' + b"a" * before + sequence + behind + b'"'
                    for data in (b'{"id":' + text + b"}", b'{"x":[' + ROW * 2 + text + b"]}"):
                        found = _simd.scan(data, level=level)
                        assert found.status == ("ok" if good else "utf8"), data


@every("level", LEVELS)
@every(
    ("data", "end"),
    [
        (b"12abc", 2), (b"01", 1), (b"truex", 4), (b"null]", 4), (b'"a"b', 3), (b" [] ]", 3),
        (b'{"a":[]}}', 8), (b"-0.5e-3-", 7), (b'"\\""\xff', 4), (b"\n{}\xff", 3),
    ],
)  # fmt: skip
def test_prefix_looks_at_nothing_behind_the_value(level: str, data: bytes, end: int) -> None:
    for tail in (b"", b"," * 300, b"\xff" * 70):
        found = _simd.scan(data + tail, prefix=True, level=level)
        assert (found.status, found.end) == ("ok", end)
        assert sum(found.value) == end
