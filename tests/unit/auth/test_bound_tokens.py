"""Tokens that are bound to a key or to a certificate, and what belongs to the user of a token."""

from __future__ import annotations

import base64
import hashlib
import ssl
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lab.http import Peer, Response, call, message, serving
from lab.token import RESOURCE, bearer, notes, token

from wirespeed import Client, Context, Http, WebSocket
from wirespeed.auth.dpop import DpopKey
from wirespeed.auth.metadata import find_challenge
from wirespeed.errors import AuthorizationError, WirespeedError

LIST = "tools/list"


async def with_proof(
    peer: Peer, key: DpopKey, *, method: str = "POST", url: str = RESOURCE, proof: str | None = None
) -> tuple[Response, str]:
    """A request with a proof, and the proof."""
    proof = proof or key.field(method, url, "bound")
    fields = {"authorization": "DPoP bound", "dpop": proof}
    return await peer.modern(LIST, **fields), proof


async def test_a_proof_is_accepted_once_and_for_its_request_alone() -> None:
    key, other = DpopKey(), DpopKey()
    tokens = {"bound": token("anne", "notes:read", key_thumbprint=key.thumbprint)}
    async with serving(notes(tokens.get, dpop="accepted")) as place:
        peer = await place.connect()
        first, proof = await with_proof(peer, key)
        assert first.status == 200
        assert (await with_proof(peer, key))[0].status == 200  # a connection goes on
        for refused in (
            await with_proof(peer, key, proof=proof),
            await with_proof(await place.connect(), key, proof=proof),
            await with_proof(peer, key, method="GET"),
            await with_proof(peer, key, url="https://notes.example/other"),
            await with_proof(peer, other),
        ):
            assert refused[0].status == 401
            challenge = find_challenge(refused[0].headers["www-authenticate"], "dpop")
            assert challenge is not None and "ES256" in challenge.params["algs"]
            assert challenge.params["error"] in ("invalid_dpop_proof", "invalid_token")
        # without its proof the token is worth nothing
        for fields in (bearer("bound"), {"authorization": "DPoP bound"}):
            assert (await peer.modern(LIST, **fields)).status == 401


@pytest.mark.parametrize(("dpop", "status"), [("off", 200), ("accepted", 200), ("required", 401)])
async def test_a_token_without_a_key(dpop: Any, status: int) -> None:
    key = DpopKey()
    tokens = {
        "free": token("anne", "notes:read"),
        "bound": token("anne", "notes:read", key_thumbprint=key.thumbprint),
    }
    async with serving(notes(tokens.get, dpop=dpop)) as place:
        peer = await place.connect()
        refused = await peer.modern(LIST, **bearer("free"))
        assert refused.status == status
        # a server that checks no proofs takes no bound tokens
        assert (await peer.modern(LIST, **bearer("bound"))).status == 401
        assert (await with_proof(peer, key))[0].status == (401 if dpop == "off" else 200)
        metadata = await peer.ask("GET", "/.well-known/oauth-protected-resource")
        required = metadata.json.get("dpop_bound_access_tokens_required")
        assert required is (True if dpop == "required" else None)


async def test_the_nonce_of_the_server_is_asked_for() -> None:
    key = DpopKey()
    tokens = {"bound": token("anne", "notes:read", key_thumbprint=key.thumbprint)}
    async with serving(notes(tokens.get, dpop="required", dpop_nonces=True)) as place:
        peer = await place.connect()
        refused, _ = await with_proof(peer, key)
        assert refused.status == 401 and refused.headers["dpop-nonce"]
        challenge = find_challenge(refused.headers["www-authenticate"], "dpop")
        assert challenge is not None and challenge.params["error"] == "use_dpop_nonce"


async def test_a_token_of_a_client_certificate(tmp_path: Path) -> None:
    made = {}
    for name in ("server", "anne", "bob"):
        cert, key = tmp_path / f"{name}.pem", tmp_path / f"{name}.key"
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert, "-days", "2"),
                *("-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1"),
            ],
            check=True,
            capture_output=True,
        )
        made[name] = cert, key
    listens = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    listens.load_cert_chain(*made["server"])
    listens.verify_mode = ssl.CERT_OPTIONAL
    for name in ("anne", "bob"):
        listens.load_verify_locations(made[name][0])
    der = ssl.PEM_cert_to_DER_cert(made["anne"][0].read_text())
    thumbprint = base64.urlsafe_b64encode(hashlib.sha256(der).digest()).rstrip(b"=").decode()
    tokens = {"bound": token("anne", "notes:read", certificate_thumbprint=thumbprint)}
    server = notes(tokens.get, certificate_bound=True)
    for scheme in ("https", "wss"):
        async with serving(server, url=f"{scheme}://127.0.0.1:0/mcp", ssl=listens) as place:
            for name in ("anne", "bob", None):
                context = ssl.create_default_context(cafile=str(made["server"][0]))
                if name is not None:
                    context.load_cert_chain(*made[name])
                kind = Http if scheme == "https" else WebSocket
                client = Client(kind(place.url, token="bound", ssl=context))
                if name == "anne":
                    async with client:
                        result = await client.call_tool("who")
                        assert str(result.content[0].text).startswith("anne")  # type: ignore[union-attr]
                else:
                    with pytest.raises((AuthorizationError, WirespeedError)):
                        async with client:
                            pass


async def test_tasks_and_request_states_belong_to_issuer_and_subject() -> None:
    tokens = {
        "anne": token("anne", "notes:read"),
        "again": token("anne", "notes:read"),
        "bob": token("bob", "notes:read"),
        "stranger": token("anne", "notes:read", issuer="https://other.example"),
    }
    server = notes(tokens.get)

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.elicit("name?", str)
        return str(answer)

    capabilities = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}}}
    async with serving(server) as place:
        peer = await place.connect()
        asked = await peer.modern(
            "tools/call", {"name": "ask", "_meta": capabilities}, **bearer("anne")
        )
        result = asked.json["result"]
        assert result["resultType"] == "input_required"
        (name,) = result["inputRequests"]
        answers = {name: {"action": "accept", "content": {"value": "x"}}}
        params = {
            "name": "ask", "_meta": capabilities, "requestState": result["requestState"],
            "inputResponses": answers,
        }  # fmt: skip
        for who, good in (("bob", False), ("stranger", False), ("again", True), ("anne", True)):
            answer = await peer.modern("tools/call", params, **bearer(who))
            assert ("result" in answer.json) is good, (who, answer.body)


async def test_a_task_is_unknown_to_another_user() -> None:
    tokens = {"anne": token("anne", "notes:read"), "bob": token("bob", "notes:read")}
    server = notes(tokens.get)

    @server.tool(task="required")
    async def work() -> str:
        return "done"

    async with serving(server) as place:
        sessions = {}
        for who in tokens:
            peer = await place.connect()
            opened = await peer.initialize(**bearer(who))
            fields = {"mcp_session_id": opened.headers["mcp-session-id"], **bearer(who)}
            sessions[who] = peer, fields
        peer, fields = sessions["anne"]
        made = await peer.ask(body=call("work", task={}), **fields)
        id = made.json["result"]["task"]["taskId"]
        for who, member in (("bob", "error"), ("anne", "result")):
            peer, fields = sessions[who]
            answer = await peer.ask(body=message("tasks/get", {"taskId": id}, 5), **fields)
            assert member in answer.json, (who, answer.body)
