"""What web pages of another origin are allowed, as a browser reads it."""

from __future__ import annotations

import pytest

from wirespeed.transport.headers import Headers
from wirespeed.transport.http.cors import is_preflight, preflight_fields, response_fields

PAGE = "https://app.example"


def asked(names: str) -> Headers:
    return Headers(
        {
            "Origin": PAGE,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": names,
        }
    )


def words(value: str) -> list[str]:
    return [word.strip().lower() for word in value.split(",")]


def test_a_preflight_allows_what_clients_send() -> None:
    fields = dict(preflight_fields(asked("authorization,content-type"), ["POST", "GET", "DELETE"]))
    assert fields["Access-Control-Allow-Origin"] == PAGE
    assert words(fields["Access-Control-Allow-Methods"]) == ["post", "get", "delete"]
    needed = "authorization content-type accept mcp-session-id mcp-protocol-version last-event-id"
    assert {*needed.split(), "mcp-method", "mcp-name"} <= {
        *words(fields["Access-Control-Allow-Headers"])
    }
    assert int(fields["Access-Control-Max-Age"]) > 0
    assert "origin" in words(fields["Vary"])


def test_header_parameters_are_allowed_as_asked_for() -> None:
    names = "mcp-param-region, Mcp-Param-Tenant,x-evil,mcp-param-,mcp-param-a b"
    fields = dict(preflight_fields(asked(names), ["POST"]))
    allowed = words(fields["Access-Control-Allow-Headers"])
    assert {"mcp-param-region", "mcp-param-tenant"} <= set(allowed)
    assert not {"x-evil", "mcp-param-", "mcp-param-a b"} & set(allowed)


@pytest.mark.parametrize("missing", ["origin", "access-control-request-method"])
def test_other_options_requests_are_no_preflight(missing: str) -> None:
    headers = asked("")
    assert is_preflight(headers)
    fewer = {name: value for name, value in headers.items() if name != missing}
    assert not is_preflight(Headers(fewer))


def test_a_page_may_read_the_session_and_the_challenge() -> None:
    fields = dict(response_fields(PAGE))
    assert fields["Access-Control-Allow-Origin"] == PAGE
    assert fields["Vary"] == "Origin"
    exposed = words(fields["Access-Control-Expose-Headers"])
    assert {"mcp-session-id", "mcp-protocol-version", "www-authenticate"} <= set(exposed)
