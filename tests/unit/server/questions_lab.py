"""What tests of asking share: messages of clients that can be asked, in both eras."""

from __future__ import annotations

from typing import Any

from raw import META, modern, notification, request

CAPABILITIES = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}, "context": {}},
    "roots": {},
}
ACCEPT = {"action": "accept", "content": {"row": 5}}
SAMPLED = {
    "role": "assistant",
    "content": {"type": "text", "text": "Paris"},
    "model": "m-1",
    "stopReason": "endTurn",
}
ROOTS = {"roots": [{"uri": "file:///a", "name": "A"}, {"uri": "file:///b"}]}
ANSWERS = {"elicitation/create": ACCEPT, "sampling/createMessage": SAMPLED, "roots/list": ROOTS}
REFUSAL = (-32602, "requestState is not valid for this request")


def tool_request(
    id: Any,
    tool: str,
    arguments: Any = None,
    capabilities: Any = None,
    **params: Any,
) -> dict[str, Any]:
    """A modern tools/call of a client with these capabilities (all, unless told)."""
    members = {"name": tool, "arguments": arguments or {}, **params}
    return modern_request(id, "tools/call", members, capabilities)


def modern_request(id: Any, method: str, params: Any, capabilities: Any = None) -> dict[str, Any]:
    declared = CAPABILITIES if capabilities is None else capabilities
    return modern(id, method, params, **{META + "clientCapabilities": declared})


def again(id: Any, message: dict[str, Any], result: Any, responses: Any = None) -> dict[str, Any]:
    """The retry of a request that was answered with questions."""
    params = {**message["params"]}
    params.pop("inputResponses", None)
    if "requestState" in result:
        params["requestState"] = result["requestState"]
    if responses is not None:
        params["inputResponses"] = responses
    return {**message, "id": id, "params": params}


def answers_to(result: Any) -> dict[str, Any]:
    """An answer to each question."""
    return {key: ANSWERS[asked["method"]] for key, asked in result["inputRequests"].items()}


def play(peer: Any, message: dict[str, Any], rounds: int = 10) -> tuple[Any, list[Any]]:
    """Repeat a modern request with answers until it is complete: the result, and what was asked in
    each round."""
    asked: list[Any] = []
    for n in range(rounds):
        result = peer.result({**message, "id": n})
        if result["resultType"] == "complete":
            return result, asked
        assert result["resultType"] == "input_required"
        asked.append(result["inputRequests"])
        message = again(n, message, result, answers_to(result))
    raise AssertionError(asked)


def enter(connect: Any, version: str, capabilities: Any = None) -> Any:
    """A connection after the handshake of a legacy client with these capabilities."""
    peer = connect()
    declared = CAPABILITIES if capabilities is None else capabilities
    params = {"protocolVersion": version, "capabilities": declared}
    params["clientInfo"] = {"name": "raw", "version": "1"}
    assert peer.result(request("init", "initialize", params))["protocolVersion"] == version
    peer.send(notification("notifications/initialized"))
    return peer


def reply(question: Any, result: Any) -> dict[str, Any]:
    """A client's answer to a request of the server."""
    return {"jsonrpc": "2.0", "id": question["id"], "result": result}
