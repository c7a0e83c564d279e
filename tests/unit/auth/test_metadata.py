"""Documents of protected resources and authorization servers: where they lie, what is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from lab.origin import Origin, Request, ok
from lab.rows import every

from wirespeed.auth.fetch import Fetcher, FetchError
from wirespeed.auth.metadata import (
    ResourceMetadata,
    ServerMetadata,
    fetch_document,
    fetch_server_metadata,
    resource_metadata_urls,
    server_metadata_urls,
)

pytestmark = pytest.mark.smoke


@pytest.mark.parametrize(
    ("resource", "urls"),
    [
        ("https://a.example", ["https://a.example/.well-known/oauth-protected-resource"]),
        ("https://a.example/", ["https://a.example/.well-known/oauth-protected-resource"]),
        (
            "https://a.example:8443/public/mcp",
            [
                "https://a.example:8443/.well-known/oauth-protected-resource/public/mcp",
                "https://a.example:8443/.well-known/oauth-protected-resource",
            ],
        ),
        (
            "http://[::1]:8000/mcp/?a=b",
            [
                "http://[::1]:8000/.well-known/oauth-protected-resource/mcp?a=b",
                "http://[::1]:8000/.well-known/oauth-protected-resource",
            ],
        ),
    ],
)
def test_where_a_resource_has_its_metadata(resource: str, urls: list[str]) -> None:
    assert resource_metadata_urls(resource) == urls


@pytest.mark.parametrize(
    ("issuer", "urls"),
    [
        (
            "https://a.example",
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ],
        ),
        (
            "https://a.example/tenant1/",
            [
                "https://a.example/.well-known/oauth-authorization-server/tenant1",
                "https://a.example/.well-known/openid-configuration/tenant1",
                "https://a.example/tenant1/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_where_an_issuer_has_its_metadata(issuer: str, urls: list[str]) -> None:
    assert server_metadata_urls(issuer) == urls


@pytest.mark.parametrize("find", [resource_metadata_urls, server_metadata_urls])
def test_places_of_other_urls(find: Callable[[str], list[str]]) -> None:
    for url in ("http://a.example/", "unix:/x", "x"):
        with pytest.raises(FetchError):
            find(url)


class Documents:
    """An origin with documents by path; the rest is 404."""

    def __init__(self) -> None:
        self.at: dict[str, bytes] = {}
        self.asked: list[str] = []

    async def __call__(self, request: Request) -> None:
        self.asked.append(request.target)
        body = self.at.get(request.target)
        if body is None:
            await request.write(ok(b"<h1>no</h1>", b"Content-Type: text/html\r\n", b"404 X"))
        elif body.isdigit():
            await request.write(ok(b"", status=b"%b X" % body))
        else:
            await request.write(ok(body))


async def scene(documents: Documents, path: str, run: Callable[[Fetcher, str], Any]) -> Any:
    async with Origin(documents) as origin:
        issuer = f"http://127.0.0.1:{origin.port}{path}"
        documents.at = {k: v.replace(b"ISSUER", issuer.encode()) for k, v in documents.at.items()}
        fetcher = Fetcher(issuer)
        try:
            return await run(fetcher, issuer)
        finally:
            await fetcher.close()


DOCUMENT = b'{"issuer": "ISSUER", "token_endpoint": "ISSUER/token", "jwks_uri": null, "x": {}}'
OAUTH = "/.well-known/oauth-authorization-server"
OPENID = "/.well-known/openid-configuration"


@every(
    ("path", "places", "n_asked"),
    [
        ("", [OAUTH], 1),
        ("", [OPENID], 2),
        ("/t", [f"{OAUTH}/t", f"/t{OPENID}"], 1),
        ("/t", [f"{OPENID}/t"], 2),
        ("/t", [f"/t{OPENID}"], 3),
    ],
)
async def test_the_first_document_is_taken(path: str, places: list[str], n_asked: int) -> None:
    documents = Documents()
    documents.at = dict.fromkeys(places, DOCUMENT)
    found = await scene(documents, path, fetch_server_metadata)
    assert isinstance(found, ServerMetadata)
    assert found.token_endpoint == f"{found.issuer}/token"
    assert found.jwks_uri is None
    assert found.code_challenge_methods_supported is None
    assert len(documents.asked) == n_asked


async def test_an_issuer_without_metadata() -> None:
    documents = Documents()
    assert await scene(documents, "/t", fetch_server_metadata) is None
    assert documents.asked == [f"{OAUTH}/t", f"{OPENID}/t", f"/t{OPENID}"]


@every(
    ("body", "reason"),
    [
        (b'{"issuer": "https://other.example"}', "has the issuer 'https://other.example', not "),
        (b'{"issuer": "ISSUER/"}', "has the issuer"),
        (b"{}", "is not metadata: Object missing required field `issuer`"),
        (b'{"issuer": 1}', "is not metadata: Expected `str`"),
        (b'{"issuer": "ISSUER", "scopes_supported": [1]}', "is not metadata"),
        (b"[]", "is not metadata"),
        (b"<html>", "is not metadata: it is not JSON"),
        (b"\xff", "is not metadata: it is not JSON"),
        (b'{"issuer":' + b"[" * 10_000, "is not metadata: it is not JSON"),
        (b"500", "answered 500"),
        (b"201", "answered 201"),
    ],
)
async def test_documents_that_are_refused(body: bytes, reason: str) -> None:
    documents = Documents()
    documents.at = {OAUTH: body}
    with pytest.raises(FetchError, match=reason):
        await scene(documents, "", fetch_server_metadata)
    documents.at[OPENID] = DOCUMENT
    if "issuer" in reason and "missing" not in reason:
        with pytest.raises(FetchError, match=reason):
            await scene(documents, "", fetch_server_metadata)
    else:  # a page at an unknown path
        assert await scene(documents, "", fetch_server_metadata) is not None


async def test_the_metadata_of_a_resource() -> None:
    documents = Documents()
    members = {"resource": "https://a/mcp", "authorization_servers": ["https://b"], "more": 1}
    documents.at = {"/x": json.dumps(members).encode()}

    async def run(fetcher: Fetcher, url: str) -> Any:
        return await fetch_document(fetcher, url, ResourceMetadata)

    found = await scene(documents, "/x", run)
    assert found == ResourceMetadata(resource="https://a/mcp", authorization_servers=["https://b"])
    assert await scene(documents, "/y", run) is None
