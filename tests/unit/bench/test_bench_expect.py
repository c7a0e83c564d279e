"""Expected answers: values at paths, schemas, sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lab.rows import every

from wirespeed.bench.expect import read_expect

RESULT = {
    "content": [{"type": "text", "text": "42"}, {"type": "text", "text": "é"}],
    "structuredContent": {"sum": 3.0, "a b": [True, {"n": None}]},
}


def allows(text: str, result: Any = RESULT, **options: Any) -> bool:
    check = read_expect(text, **options).check
    return check is None or bool(check(result))


@every(
    ("text", "right"),
    [
        ("any", True),
        ("path=$.structuredContent.sum:3", True),
        ("path=$.structuredContent.sum:4", False),
        ("path=$.structuredContent.sum", True),
        ("path=$.structuredContent.product", False),
        ("path=$.content[0].text:42", True),
        ('path=$.content[0].text:"42"', True),
        ("path=$.content[-1].text:é", True),
        ("path=$.content[2]", False),
        ("path=$.content.text", False),
        ('path=$.structuredContent["a b"][0]:true', True),
        ('path=$.structuredContent["a b"][0]:1', False),
        ('path=$.structuredContent["a b"][1].n:null', True),
        ('path=$.structuredContent["a b"]:[true,{"n":null}]', True),
        ('path=$.structuredContent["a b"]:[true,{"n":0}]', False),
        ('path=$.structuredContent["a b"]:[true]', False),
        ("path=$", True),
        ("bytes=4", True),
        ("bytes=3", False),
    ],
)
def test_expected_values(text: str, right: bool) -> None:
    assert allows(text) is right


@every(
    "text",
    [
        "",
        "echo",
        "echo=",
        "path",
        "path=sum:1",
        "path=$sum:1",
        "path=$.sum=1",
        "path=$.a..b",
        "path=$[x]",
        "bytes=many",
        "bytes=-1",
        pytest.param("bytes=" + "9" * 5000, id="many-digits"),
        pytest.param("path=$[" + "9" * 5000 + "]", id="a-long-index"),
        r'path=$["\x"]',
        "schema=/no/such/file",
        "regex=.*",
    ],
)
def test_what_is_not_expected(text: str) -> None:
    with pytest.raises(
        ValueError, match=r"^it is any|^path=|^cannot read|^bytes=N takes"
    ) as caught:
        read_expect(text)
    assert len(str(caught.value)) < 500


@every(
    ("result", "lite", "right"),
    [
        (
            {"content": [{"type": "text", "text": "ab"}, {"type": "image", "data": "x"}]},
            False,
            True,
        ),
        ({"content": [{"type": "image", "data": "ab"}]}, False, False),
        ({"response": {"content": [{"type": "text", "data": "ab"}]}}, True, True),
        ({"response": {"content": [{"type": "image", "data": "ab"}]}}, True, False),
        ({"response": {"content": [{"type": "text", "data": "ab"}]}}, False, False),
        ({"response": {"content": [{"type": "text", "text": "ab"}]}}, False, False),
        ({"content": [{"type": "text", "text": 5}]}, False, False),
        ({"content": ["ab"]}, False, False),
        ({"content": "ab"}, False, False),
        ({"content": None}, False, False),
        ({}, True, False),
        (["ab"], False, False),
    ],
)
def test_texts_of_a_result_count_alone(result: Any, lite: bool, right: bool) -> None:
    assert allows("bytes=2", result, whole=lite) is right


def test_schemas(tmp_path: Path) -> None:
    path = tmp_path / "sum.json"
    schema = {"type": "object", "properties": {"sum": {"type": "number", "maximum": 3}}}
    path.write_text(json.dumps(schema | {"required": ["sum"]}))
    text = f"schema={path}"
    assert allows(text)
    assert not allows(text, {"content": [], "structuredContent": {"sum": 4}})
    assert not allows(text, {"content": []})
    assert not allows(text, whole=True)
    assert allows(text, {"sum": 1}, whole=True)
    path.write_text("{")
    with pytest.raises(ValueError, match="is not JSON"):
        read_expect(text)
    path.write_text('{"type": 5}')
    with pytest.raises(ValueError, match="cannot be used"):
        read_expect(text)


def test_a_schema_needs_an_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"pip install 'wirespeed\[validate\]'"):
        read_expect("schema=x.json")
