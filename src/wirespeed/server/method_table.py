"""Which handler each method has, but for ``tools/call``: loaded when the method is first called."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

from wirespeed.errors import ProtocolError, shortened
from wirespeed.protocol import codes

if TYPE_CHECKING:
    from wirespeed.server.discovery import Discovery
    from wirespeed.server.requests.methods import Handler

# Where each method's handler is: loaded when it is first asked for.
HANDLERS: dict[str, str] = {
    "initialize": "wirespeed.server.requests.methods:initialize",
    "server/discover": "wirespeed.server.requests.methods:discover",
    "ping": "wirespeed.server.requests.methods:ping",
    "tools/list": "wirespeed.server.requests.methods:tools_list",
    "prompts/list": "wirespeed.server.prompts.prompt:list_prompts",
    "prompts/get": "wirespeed.server.prompts.prompt:get",
    "resources/list": "wirespeed.server.resources.resource:list_resources",
    "resources/templates/list": "wirespeed.server.resources.resource:list_templates",
    "resources/read": "wirespeed.server.resources.resource:read",
    "completion/complete": "wirespeed.server.completion.completer:complete",
    "logging/setLevel": "wirespeed.server.requests.methods:set_level",
    "subscriptions/listen": "wirespeed.server.subscriptions.subscription:listen",
    "resources/subscribe": "wirespeed.server.subscriptions.subscription:subscribe",
    "resources/unsubscribe": "wirespeed.server.subscriptions.subscription:unsubscribe",
    "tasks/get": "wirespeed.server.tasks.legacy:get",
    "tasks/result": "wirespeed.server.tasks.legacy:result",
    "tasks/list": "wirespeed.server.tasks.legacy:list_page",
    "tasks/cancel": "wirespeed.server.tasks.legacy:cancel",
}

# What a server must offer, so that it has a method: others are not found (JSON-RPC 2.0 section 5.1,
# and the note at MethodNotFoundError in the schema of 2026-07-28).
NEEDS: dict[str, str] = {
    "prompts/list": "prompts",
    "prompts/get": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "resources/read": "resources",
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
    "completion/complete": "completions",
    "tasks/get": "tasks",
    "tasks/result": "tasks",
    "tasks/list": "tasks",
    "tasks/cancel": "tasks",
}


@functools.cache
def handler_of(method: str) -> Handler:
    """The handler of a method. ProtocolError -32601: there is none."""
    place = HANDLERS.get(method)
    if place is None:
        raise ProtocolError(codes.METHOD_NOT_FOUND, f"Method not found: {shortened(method)}")
    module, _, name = place.partition(":")
    handler: Handler = getattr(importlib.import_module(module), name)
    return handler


def check_offered(discovery: Discovery, method: str) -> None:
    """ProtocolError -32601 for a method of a feature that the server does not have."""
    need = NEEDS.get(method)
    if need is not None and not discovery.offered(need):
        raise ProtocolError(codes.METHOD_NOT_FOUND, f"This server has no {need}: {method}")
