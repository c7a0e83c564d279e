"""Rival: a bare ASGI application on uvicorn with uvloop and httptools: msgspec, a JSON answer.

It checks nothing: no path, no Origin or Host, no header field, no version, no session.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from _bare import (
    CallResult,
    Response,
    Text,
    answer_other,
    decode_params,
    decode_request,
    encode,
)
from _uvicorn import serve

Send = Callable[[dict[str, Any]], Awaitable[None]]


async def echo(text: str) -> str:
    return text


async def app(scope: Any, receive: Callable[[], Awaitable[Any]], send: Send) -> None:
    if scope["type"] == "lifespan":
        return
    event = await receive()
    body = event["body"]
    while event.get("more_body"):
        event = await receive()
        body += event["body"]
    request = decode_request(body)
    if request.method == "tools/call":
        text = await echo(decode_params(request.params).arguments.text)
        answer = encode(Response(request.id, CallResult([Text(text)])))
    else:
        answer = answer_other(request) or b""
    fields = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    status = 200 if answer else 202
    await send({"type": "http.response.start", "status": status, "headers": fields})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    serve(app)
