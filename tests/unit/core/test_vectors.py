"""What each kind of input gets (protocol digest, section 1.3), whole and in every cut, by both
doors, alone and with a tail behind it."""

from __future__ import annotations

import json

from lab.core import DOORS, chunkings, feed_all, outcomes, sent
from lab.rows import every

from wirespeed.core import Session

NULL = None
NOTHING = object()  # no answer
DEEP = b"[" * 128 + b"]" * 128

# name: (line, outcome, what is answered: (code, id) or NOTHING)
VECTORS: dict[str, tuple[bytes, str, object]] = {
    # messages
    "request": (b'{"jsonrpc":"2.0","id":7,"method":"m"}', "request", NOTHING),
    "request with params": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":[1,{}]}}', "request", NOTHING),
    "members in another order": (
        b'{"params":{},"method":"m","id":"7","jsonrpc":"2.0"}', "request", NOTHING),
    "unknown members": (
        b'{"jsonrpc":"2.0","x":1,"x":2,"id":7,"method":"m","y":null}', "request", NOTHING),
    "blanks everywhere": (
        b' \t { "jsonrpc" :\t"2.0" , "id" : 7 , "method" : "m" } \t', "request", NOTHING),
    "escaped keys": (
        b'{"\\u006asonrpc":"2.0","\\u0069d":7,"m\\u0065thod":"m"}', "request", NOTHING),
    "escaped version": (b'{"jsonrpc":"2\\u002e0","id":7,"method":"m"}', "request", NOTHING),
    "id 0": (b'{"jsonrpc":"2.0","id":0,"method":"m"}', "request", NOTHING),
    "id -0": (b'{"jsonrpc":"2.0","id":-0,"method":"m"}', "request", NOTHING),
    "id empty string": (b'{"jsonrpc":"2.0","id":"","method":"m"}', "request", NOTHING),
    "id beyond 64 bits": (
        b'{"jsonrpc":"2.0","id":12345678901234567890123,"method":"m"}', "request", NOTHING),
    "method with line separators": (
        '{"jsonrpc":"2.0","id":7,"method":"\u2028\u2029\u0085\x7f"}'.encode(), "request", NOTHING),
    "empty method": (b'{"jsonrpc":"2.0","id":7,"method":""}', "request", NOTHING),
    "notification": (b'{"jsonrpc":"2.0","method":"m"}', "notification", NOTHING),
    "notification with params": (
        b'{"jsonrpc":"2.0","method":"m","params":{}}', "notification", NOTHING),
    "params null": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":null}', "request", NOTHING),
    "params an empty array": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":[ \t]}', "request", NOTHING),
    "notification with params null": (
        b'{"jsonrpc":"2.0","method":"m","params":null}', "notification", NOTHING),
    "every member of a class": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":null,"result":null,"error":null}',
        "request", NOTHING),
    "error without id": (
        b'{"jsonrpc":"2.0","error":{"code":1,"message":""}}', "error", NOTHING),
    "error with id null": (
        b'{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":""}}', "error", NOTHING),
    "error with id 1.5": (b'{"jsonrpc":"2.0","id":1.5,"error":{}}', "error", NOTHING),
    # not JSON
    "a word": (b"hello", "invalid parse", (-32700, NULL)),
    "cut short": (b'{"jsonrpc":"2.0","id":7,"method":"m"', "invalid parse", (-32700, NULL)),
    "one brace more": (b'{"jsonrpc":"2.0","id":7,"method":"m"}}', "invalid parse", (-32700, NULL)),
    "two in a line": (b"{}{}", "invalid parse", (-32700, NULL)),
    "trailing comma": (b'{"jsonrpc":"2.0",}', "invalid parse", (-32700, NULL)),
    "single quotes": (b"{'id':7}", "invalid parse", (-32700, NULL)),
    "NaN": (b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"a":NaN}}',
            "invalid parse", (-32700, NULL)),
    "leading zero": (b'{"jsonrpc":"2.0","id":07,"method":"m"}', "invalid parse", (-32700, NULL)),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":7,"method":"\xff"}', "invalid parse", (-32700, NULL)),
    "overlong": (b'{"jsonrpc":"2.0","id":7,"method":"\xc0\xaf"}', "invalid parse", (-32700, NULL)),
    "surrogate in UTF-8": (
        b'{"jsonrpc":"2.0","id":7,"method":"\xed\xa0\x80"}', "invalid parse", (-32700, NULL)),
    "character cut by the newline": (b'{"a":"\xe2\x80', "invalid parse", (-32700, NULL)),
    "control character": (b'{"a":"\x01"}', "invalid parse", (-32700, NULL)),
    "NUL": (b"\x00", "invalid parse", (-32700, NULL)),
    "a second byte order mark": (b"\xef\xbb\xbf{}", "invalid parse", (-32700, NULL)),
    "batch that is not JSON": (b"[{},}]", "invalid parse", (-32700, NULL)),
    # JSON, but no message
    "number": (b"1", "invalid request", (-32600, NULL)),
    "string": (b'"id"', "invalid request", (-32600, NULL)),
    "null": (b"null", "invalid request", (-32600, NULL)),
    "array": (b'[{"jsonrpc":"2.0","id":7,"method":"m"}]', "invalid request", (-32600, NULL)),
    "empty array": (b"[]", "invalid request", (-32600, NULL)),
    "empty object": (b"{}", "invalid request", (-32600, NULL)),
    "too deep": (b'{"a":%b}' % DEEP, "invalid request", (-32600, NULL)),
    "no jsonrpc": (b'{"id":7,"method":"m"}', "invalid request", (-32600, 7)),
    "jsonrpc 1.0": (b'{"jsonrpc":"1.0","id":"7","method":"m"}', "invalid request", (-32600, "7")),
    "jsonrpc number": (b'{"jsonrpc":2.0,"id":7,"method":"m"}', "invalid request", (-32600, 7)),
    "method number": (b'{"jsonrpc":"2.0","id":7,"method":1}', "invalid request", (-32600, 7)),
    "method null": (b'{"jsonrpc":"2.0","id":7,"method":null}', "invalid request", (-32600, 7)),
    "method number without id": (
        b'{"jsonrpc":"2.0","method":1}', "invalid request", (-32600, NULL)),
    "no method": (b'{"jsonrpc":"2.0","id":7}', "invalid request", (-32600, 7)),
    "params array": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":[1]}', "invalid request", (-32600, 7)),
    "params text": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":"null"}', "invalid request", (-32600, 7)),
    "method null, params too": (
        b'{"jsonrpc":"2.0","id":7,"method":null,"params":null}', "invalid request", (-32600, 7)),
    "id null": (b'{"jsonrpc":"2.0","id":null,"method":"m"}', "invalid request", (-32600, NULL)),
    "id true": (b'{"jsonrpc":"2.0","id":true,"method":"m"}', "invalid request", (-32600, NULL)),
    "id 1.5": (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', "invalid request", (-32600, NULL)),
    "id 1e0": (b'{"jsonrpc":"2.0","id":1e0,"method":"m"}', "invalid request", (-32600, NULL)),
    "id array": (b'{"jsonrpc":"2.0","id":[],"method":"m"}', "invalid request", (-32600, NULL)),
    "id object": (b'{"jsonrpc":"2.0","id":{},"method":"m"}', "invalid request", (-32600, NULL)),
    "request and response": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","result":{}}', "invalid request", (-32600, 7)),
    # a member twice: no answer goes to what nobody can take for a request
    "id twice": (
        b'{"jsonrpc":"2.0","id":7,"id":7,"method":"m"}', "invalid request", (-32600, NULL)),
    "id twice, once escaped": (
        b'{"jsonrpc":"2.0","id":7,"\\u0069d":8,"method":"m"}', "invalid request", (-32600, NULL)),
    "method twice": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","method":"m"}', "invalid request", (-32600, 7)),
    "params twice": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":{},"params":{}}',
        "invalid request", (-32600, 7)),
    "method twice without id": (
        b'{"jsonrpc":"2.0","method":"m","method":"m"}', "invalid notification", NOTHING),
    "result twice": (
        b'{"jsonrpc":"2.0","id":7,"result":{},"result":{}}', "invalid response", NOTHING),
    "name twice": (
        b'{"jsonrpc":"2.0","id":7,"method":"m","params":{"name":"a","name":"b"}}',
        "invalid request", (-32600, 7)),
    "progressToken twice": (
        b'{"jsonrpc":"2.0","id":7,"method":"m",'
        b'"params":{"_meta":{"progressToken":1,"progressToken":2}}}',
        "invalid request", (-32600, 7)),
    # broken notifications and responses are never answered
    "notification without jsonrpc": (b'{"method":"m"}', "invalid notification", NOTHING),
    "notification with params array": (
        b'{"jsonrpc":"2.0","method":"m","params":[{}]}', "invalid notification", NOTHING),
    "notification with name twice": (
        b'{"jsonrpc":"2.0","method":"m","params":{"name":1,"name":1}}',
        "invalid notification", NOTHING),
    "both result and error": (
        b'{"jsonrpc":"2.0","id":7,"result":{},"error":{}}', "invalid response", NOTHING),
    "response without jsonrpc": (b'{"id":7,"result":{}}', "invalid response", NOTHING),
    "result without id": (b'{"jsonrpc":"2.0","result":{}}', "invalid response", NOTHING),
    "result with id null": (
        b'{"jsonrpc":"2.0","id":null,"result":{}}', "invalid response", NOTHING),
    "error is no object": (b'{"jsonrpc":"2.0","id":7,"error":"no"}', "invalid response", NOTHING),
}  # fmt: skip
TAIL = b'{"jsonrpc":"2.0","method":"tail"}\n'
FIRST = b'{"jsonrpc":"2.0","method":"first"}\n'


def answers(session: Session) -> list[object]:
    """(code, id) of the errors that were sent."""
    found: list[object] = []
    for line in sent(session).splitlines():
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        assert isinstance(message["error"]["message"], str)
        found.append((message["error"]["code"], message["id"]))
    return found


@every("door", DOORS)
@every("name", VECTORS)
def test_vector(name: str, door: str) -> None:
    line, expected, answer = VECTORS[name]
    owed = [] if answer is NOTHING else [answer]
    for end in (b"\n", b"\r\n"):
        for chunks in chunkings(line + end + TAIL):
            session = Session()
            # not the first line, which may begin with a byte order mark
            found = feed_all(session, [FIRST, *chunks], DOORS[door])
            assert found == ["notification", expected, "notification"], chunks
            assert answers(session) == owed, chunks


@every("name", VECTORS)
def test_vector_as_the_last_line_without_a_newline(name: str) -> None:
    line, expected, answer = VECTORS[name]
    for door in DOORS.values():
        session = Session()
        assert feed_all(session, [FIRST, line], door) == ["notification"]
        session.receive_eof()
        assert outcomes(session) == [expected]
        assert outcomes(session) == []
        assert answers(session) == ([] if answer is NOTHING else [answer])


@every("name", VECTORS)
def test_a_client_answers_no_fault(name: str) -> None:
    line, expected, _ = VECTORS[name]
    session = Session(role="client")
    session.receive_data(FIRST + line + b"\n")
    assert outcomes(session) == ["notification", expected]
    assert answers(session) == []
    assert session.counters["faults"] == expected.startswith("invalid")


@every("name", VECTORS)
def test_without_null_ids(name: str) -> None:
    """2025-11-25 and later: an error whose id could not be read has none."""
    line, _, answer = VECTORS[name]
    session = Session()
    session.null_ids = False
    session.receive_data(FIRST + line + b"\n")
    outcomes(session)
    for text in sent(session).splitlines():
        assert answer is not NOTHING
        assert isinstance(answer, tuple)
        assert ("id" in json.loads(text)) == (answer[1] is not NULL)


@every("name", VECTORS)
def test_a_response_of_ours_that_is_broken_fails_its_call(name: str) -> None:
    """Vectors that are no request but carry the id of a call of ours end that call."""
    line, expected, _ = VECTORS[name]
    session = Session(role="client")
    token = object()
    for _ in range(7):  # ids 1 to 7
        session.send_request("a", token=token)
    session.receive_data(FIRST + line + b"\n")
    first, event = session.events()
    assert first.token is None
    names_7 = b'"id":7' in line and line.count(b'"id"') == 1 and b"method" not in line
    is_response = expected == "invalid response" or name == "no method"
    assert (event.token is token) == (names_7 and is_response)
    assert session.counters["requests_outstanding"] == 7 - (names_7 and is_response)
    if event.token is token:
        assert event.fault == "response"
        assert event.reason
