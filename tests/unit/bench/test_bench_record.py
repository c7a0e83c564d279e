"""The file of a recorded exchange: what is refused, what a redaction leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from lab.rows import every

from wirespeed.bench.tap_file import BadRecord, TapFile, read_record
from wirespeed.bench.tap_http import is_message

HEADER = '{"format":"wirespeed-record","version":1,"started":"2026-11-29T18:00:00Z","target":"x"}\n'
MESSAGE = '{"t":1.5,"from":"client","connection":1,"bytes":"{}"}\n'


@every(
    ("text", "reason"),
    [
        ("", "line 1: the file is empty"),
        ("{}\n", "line 1: it is not the header of a record"),
        ("\x00\n", "line 1: it is not the header of a record"),
        (HEADER.replace("wirespeed-r", "r"), "line 1: the format is 'record', not 'wirespeed-re"),
        (HEADER.replace(":1,", ":9,"), "line 1: version 9 is not known, only 1"),
        (HEADER + MESSAGE + "{x\n", "line 3: JSON is malformed"),
        (HEADER + MESSAGE + "\n", "line 3: Input data was truncated"),
        (HEADER + MESSAGE[:-1], "line 2: it is cut off"),
        (HEADER + MESSAGE[:-9] + "\n", "line 2: JSON is malformed"),
        (HEADER + MESSAGE.replace("client", "me"), "line 2: Invalid enum value 'me'"),
        (HEADER + MESSAGE.replace('"t":1.5,', ""), "line 2: Object missing required field `t`"),
        (HEADER + MESSAGE.replace("bytes", "bites"), "line 2: a message has either bytes or base"),
        (HEADER + MESSAGE.replace("bytes", "base64"), "line 2: base64 is not valid"),
        (HEADER + MESSAGE + MESSAGE.replace("1.5", "1.4"), "line 3: t is less than in the line be"),
        (HEADER + MESSAGE.replace("1.5", "-1"), "line 2: t is less than"),
    ],
)
def test_a_corrupt_file_is_refused_by_line_and_reason(
    text: str, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "r"
    path.write_text(text)
    with pytest.raises(BadRecord) as caught:
        read_record(str(path))
    assert str(caught.value).startswith(f"{path}, {reason}")


@every(
    ("text", "expected"),
    [
        ('{"jsonrpc":"2.0","id":1,"result":{}}', True),
        (' [{"jsonrpc":"2.0","id":1,"result":{}}]', True),
        ('{"access_token":"a"}', False),
        ('[{"access_token":"a"}]', False),
        ('[{"jsonrpc":"2.0","method":"a"},{"access_token":"a"}]', False),
        ("[]", False),
        ("[1]", False),
        ("[" * 5000, False),
        ("[" * 5000 + "]" * 5000, False),
    ],
)
def test_a_body_of_http_is_written_if_it_has_messages(text: str, expected: bool) -> None:
    assert is_message(text.encode()) is expected


def redacted(tmp_path: Path, *messages: tuple[str, str]) -> list[str]:
    path = str(tmp_path / "r")
    file = TapFile(path, "x", redact=True)
    for sender, text in messages:
        file.message(sender, 1, text.encode())  # type: ignore[arg-type]
    file.close()
    return [message.data.decode() for message in read_record(path)[1]]


@every(
    ("text", "left"),
    [
        (
            '{"id": "a", "method":"tools/call", "params": {"name":"t","arguments":'
            ' {"k" : ["v\\"", -1.5e3, true, null, {"":"w"}]}, "_meta":{"progressToken":7}}}',
            '{"id": "a", "method":"tools/call", "params": {"name":"t","arguments":'
            ' {"k" : ["xxx", -1.1e1, true, null, {"":"x"}]}, "_meta":{"progressToken":7}}}',
        ),
        (
            '{"method":"notifications/message","params":{"level":"info","data":"a b"}}',
            '{"method":"notifications/message","params":{"level":"info","data":"xxx"}}',
        ),
        ('{"error":{"code":-3,"message":"no é"}}', '{"error":{"code":-3,"message":"xxxxx"}}'),
        ('[{"id":1,"result":{"a":"b"}}]', '[{"id":1,"result":{"a":"x"}}]'),
        (
            '{"id":2,"method":"resources/read","params":{"uri":"file:///a","_meta":{"a/b":"c"}}}',
            '{"id":2,"method":"resources/read","params":{"uri":"xxxxxxxxx","_meta":{"a/b":"x"}}}',
        ),
        (
            '{"id":2,"method":"a/list","params":{"_meta":{"io.modelcontextprotocol/x":"1"}}}',
            '{"id":2,"method":"a/list","params":{"_meta":{"io.modelcontextprotocol/x":"1"}}}',
        ),
        (
            '{"id":2,"method":"completion/complete","params":{"ref":{"type":"t","uri":"f"}}}',
            '{"id":2,"method":"completion/complete","params":{"ref":{"type":"t","uri":"x"}}}',
        ),
        ('{"error":{"code":"a"}}', '{"error":{"code":"x"}}'),
        (
            '{"id":2,"method":"tools/call","params":{"arguments":"a"},"method":"tools/list"}',
            '{"id":2,"method":"tools/call","params":{"arguments":"x"},"method":"tools/list"}',
        ),
        ("12 words: \"a\"", "xxxxxxxxxxxxx"),
        ('"a"', '"x"'),
        ('{"id":9,"result":{"tools":"a"}}', '{"id":9,"result":{"tools":"x"}}'),
    ],
)  # fmt: skip
def test_values_become_letters_of_the_same_length(text: str, left: str, tmp_path: Path) -> None:
    assert redacted(tmp_path, ("client", text)) == [left]


def test_a_result_is_redacted_by_the_method_of_its_request(tmp_path: Path) -> None:
    result = {"content": [{"type": "text", "text": "a"}], "isError": False, "type": "b"}
    structured = result | {"structuredContent": {"content": [{"type": "c"}]}}
    lines = [
        ("client", {"id": 1, "method": "tools/list"}),
        ("client", {"id": "1", "method": "tools/call", "params": {"name": "t"}}),
        ("server", {"id": "1", "result": structured}),
        ("server", {"id": 1, "result": {"tools": [{"name": "t"}]}}),
        ("client", {"id": 2, "method": "tasks/list"}),
        ("server", {"id": 2, "result": {"tasks": [{"status": "failed", "statusMessage": "a"}]}}),
        ("server", {"id": 1, "method": "roots/list"}),
        ("client", {"id": 1, "result": {"roots": [{"uri": "file:///a"}]}}),
    ]
    left = [json.loads(one) for one in redacted(tmp_path, *((s, json.dumps(v)) for s, v in lines))]
    assert left[2]["result"] == {
        "content": [{"type": "text", "text": "x"}],
        "isError": False,
        "type": "b",
        "structuredContent": {"content": [{"type": "x"}]},
    }
    assert left[3] == lines[3][1]
    assert left[5]["result"] == {"tasks": [{"status": "failed", "statusMessage": "x"}]}
    assert left[7]["result"] == {"roots": [{"uri": "x" * 9}]}
