"""Answers whose id has another type than the request's."""

from __future__ import annotations

import pytest
from lab.core import outcomes, take
from lab.rows import every

from wirespeed.core import Session

pytestmark = pytest.mark.compiled


def answer(id: str, body: str = '"result":{}') -> bytes:
    return f'{{"jsonrpc":"2.0","id":{id},{body}}}\n'.encode()


@every("form", ['"{}"', "{}.0", "{}.000", '"{}.0"', '"\\u003{}"'])
@every("body", ['"result":{}', '"error":{"code":1,"message":"no"}'])
def test_it_fits_exactly_one(form: str, body: str) -> None:
    session = Session(role="client")
    id = session.send_request("ping", token="t")
    other = session.send_request("ping", token="u")
    session.receive_data(answer(form.format(id), body))
    (message,) = take(session)
    assert message.kind == ("result" if "result" in body else "error")
    assert message.token == "t"
    assert session.counters["faults"] == session.counters["late_responses"] == 0
    session.receive_data(answer(str(other)))
    assert take(session)[0].token == "u"
    assert session.counters["requests_outstanding"] == 0


@every("id", ['"2"', "2.0", '"1.5"', '"01"', '" 1"', '"x"', '""', "1e0", "1.", "-1.0"])
def test_it_fits_none(id: str) -> None:
    session = Session(role="client")
    session.send_request("ping", token="t")
    session.receive_data(answer(id))
    assert [one.token for one in take(session)] in ([], [None])
    assert session.counters["requests_outstanding"] == 1


@pytest.mark.parametrize("id", ["null", "true", "[1]", '{"a":1}'])
def test_another_type_is_no_id(id: str) -> None:
    session = Session(role="client")
    session.send_request("ping", token="t")
    session.receive_data(answer(id))
    assert outcomes(session) == ["invalid response"]
    assert session.counters["requests_outstanding"] == 1


def test_an_id_that_stands_there_twice_is_ambiguous() -> None:
    session = Session(role="client")
    session.send_request("ping", token="t")
    session.receive_data(b'{"jsonrpc":"2.0","id":"1","id":1,"result":{}}\n')
    (message,) = take(session)
    assert (message.kind, message.token) == ("invalid", None)


def test_where_it_fits_several_each_fails() -> None:
    session = Session(role="client")
    minted = session.send_request("ping", token="minted")
    session.send_request("ping", token="chosen", id=b'"%d"' % minted)
    session.send_request("ping", token="third")
    session.receive_data(answer(f"{minted}.0"))
    found = take(session)
    assert [(one.kind, one.fault) for one in found] == [("invalid", "response")] * 2
    assert {one.token for one in found} == {"minted", "chosen"}
    assert {one.reason for one in found} == {f"its id {minted}.0 may be that of 2 requests"}
    assert session.counters["requests_outstanding"] == 1


def test_an_exact_id_is_never_another_ones() -> None:
    session = Session(role="client")
    minted = session.send_request("ping", token="minted")
    session.send_request("ping", token="chosen", id=b'"%d"' % minted)
    session.receive_data(answer(f'"{minted}"') + answer(str(minted)))
    assert [one.token for one in take(session)] == ["chosen", "minted"]
