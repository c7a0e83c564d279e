"""What can mean only that it is absent: null for an optional member, `[]` for an object."""

from __future__ import annotations

import pytest
from lab.core import outcomes, request, take

from wirespeed.core import Session, parse

pytestmark = pytest.mark.compiled


@pytest.mark.parametrize("nothing", ["null", "[]", "[ \t]"])
def test_params_and_arguments_are_absent(nothing: str) -> None:
    message = parse(request(1, "tools/list", nothing))
    assert (message.kind, message.params) == ("request", None)
    message = parse(request(1, "tools/call", f'{{"name":"a","arguments":{nothing}}}'))
    assert message.lease("params.arguments") is None
    assert message.params is not None
    assert message.text("params.name") == "a"


@pytest.mark.parametrize("value", ['"null"', "0", "false", "[null]", "[[]]"])
def test_another_value_is_no_absence(value: str) -> None:
    assert parse(request(1, "tools/list", value)).reason == "params must be an object"
    message = parse(request(1, "tools/call", f'{{"name":"a","arguments":{value}}}'))
    assert message.lease("params.arguments") == value.encode()


@pytest.mark.parametrize(
    ("text", "kind", "present"),
    [
        (b'"result":{},"error":null', "result", "result"),
        (b'"result":null,"error":{"code":1,"message":""}', "error", "error"),
        (b'"method":null,"params":null,"result":{},"error":null', "result", "result"),
        (b'"method":null,"error":{"code":1,"message":""}', "error", "error"),
        (b'"result":null,"error":null', "result", "result"),
    ],
)
def test_a_response_with_every_member_of_its_class(text: bytes, kind: str, present: str) -> None:
    message = parse(b'{"jsonrpc":"2.0","id":1,%b}' % text)
    assert message.kind == kind
    for name in ("method", "result", "error"):
        assert (message.lease(name) is None) is (name != present)


@pytest.mark.parametrize("text", [b'"result":{},"error":{}', b'"method":"m","result":{}'])
def test_two_that_say_something_are_ambiguous(text: bytes) -> None:
    assert parse(b'{"jsonrpc":"2.0","id":1,%b}' % text).kind == "invalid"


def test_an_answer_with_a_null_error_resolves_its_request() -> None:
    session = Session(role="client")
    id = session.send_request("ping", token="t")
    session.receive_data(b'{"jsonrpc":"2.0","id":%d,"result":{},"error":null}\n' % id)
    (message,) = take(session)
    assert (message.kind, message.token) == ("result", "t")


def test_ids_stay_strict() -> None:
    session = Session()
    session.receive_data(b'{"jsonrpc":"2.0","id":null,"method":"m","params":null}\n')
    session.receive_data(b'{"jsonrpc":"2.0","id":[],"method":"m"}\n')
    session.receive_data(b'{"jsonrpc":"2.0","id":1,"method":"m","params":null,"params":{}}\n')
    assert outcomes(session) == ["invalid request"] * 3
