"""What tests of asking share: messages of clients that can be asked, in both eras."""

from __future__ import annotations

from typing import Any

import msgspec
from lab.raw import META, modern, notification, request

from wirespeed import Context, Server

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


class Seat(msgspec.Struct):
    row: int
    window: bool = False


# What each tool of `add_askers` asks: the key, the method, the params; and what it returns then.
QUESTIONS: dict[str, tuple[str, str, Any, str]] = {
    "form": (
        "elicit-1",
        "elicitation/create",
        {
            "message": "Which seat?",
            "requestedSchema": {
                "type": "object",
                "properties": {
                    "row": {"type": "integer"},
                    "window": {"type": "boolean", "default": False},
                },
                "required": ["row"],
            },
        },
        "accept Seat(row=5, window=False)",
    ),
    "url": (
        "elicit-1",
        "elicitation/create",
        {"message": "Go there", "mode": "url", "url": "https://a.example/pay"},
        "accept",
    ),
    "sample": (
        "sample-1",
        "sampling/createMessage",
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "Capital?"}}],
            "maxTokens": 10,
            "systemPrompt": "Be short.",
        },
        "assistant Paris m-1 endTurn",
    ),
    "sample_tools": (
        "sample-1",
        "sampling/createMessage",
        {
            "messages": [{"role": "user", "content": {"type": "text", "text": "?"}}],
            "maxTokens": 10,
            "tools": [{"name": "t", "inputSchema": {"type": "object"}}],
            "toolChoice": {"mode": "auto"},
        },
        "Paris",
    ),
    "roots": ("roots-1", "roots/list", {}, "file:///a A, file:///b None"),
}


def add_askers(server: Server) -> Server:
    """Tools that ask one thing each."""

    @server.tool
    async def form(ctx: Context) -> str:
        answer = await ctx.elicit("Which seat?", Seat)
        return f"{answer.action} {answer.content}"

    @server.tool
    async def url(ctx: Context) -> str:
        return (await ctx.elicit_url("Go there", "https://a.example/pay")).action

    @server.tool
    async def sample(ctx: Context) -> str:
        answer = await ctx.sample("Capital?", max_tokens=10, system="Be short.")
        return f"{answer.role} {answer.text} {answer.model} {answer.stop_reason}"

    @server.tool
    async def sample_tools(ctx: Context) -> str:
        tools = [{"name": "t", "inputSchema": {"type": "object"}}]
        return (await ctx.sample("?", max_tokens=10, tools=tools, tool_choice="auto")).text

    @server.tool
    async def roots(ctx: Context) -> str:
        return ", ".join(f"{root.uri} {root.name}" for root in await ctx.roots())

    return server


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


class Asked:
    """A modern request, by its tool or as it is, that was answered with questions."""

    def __init__(self, peer: Any, request: Any, arguments: Any = None) -> None:
        self.peer = peer
        self.message = request
        if isinstance(request, str):
            self.message = tool_request(1, request, arguments)
        self.first = peer.result(self.message)
        assert self.first["resultType"] == "input_required"

    def retry(self, responses: Any = ..., **params: Any) -> Any:
        """The request again, with these answers; by default with one to each question."""
        answers = answers_to(self.first) if responses is ... else responses
        message = again(2, self.message, self.first, answers)
        return {**message, "params": {**message["params"], **params}}

    def result(self, responses: Any = ..., **params: Any) -> Any:
        return self.peer.result(self.retry(responses, **params))

    def error(self, responses: Any = ..., **params: Any) -> tuple[int, str]:
        error: tuple[int, str] = self.peer.error(self.retry(responses, **params))
        return error


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


def served(peer: Any, message: Any, answer: Any = None) -> tuple[Any, Any]:
    """Send a legacy request whose handler asks once: the question, and the result."""
    question = peer.ask(message)
    assert "method" in question, question
    peer.send(reply(question, ANSWERS[question["method"]] if answer is None else answer))
    last = peer.recv()
    assert last["id"] == message["id"]
    return question, last["result"]
