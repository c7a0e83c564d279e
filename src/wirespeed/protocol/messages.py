"""Typed parameters and results of MCP's methods, for msgspec.

Only what the engine itself looks at has a field; unknown members are ignored. `!` of the
specification (required) is a field without a default.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

Members: TypeAlias = dict[str, Any] | tuple[()]
"""An object. An encoder without a type for objects writes an empty one as ``[]``."""


class Implementation(msgspec.Struct, omit_defaults=True):
    """The name and version of a client or server: `Implementation` of the schemas. ``title`` from
    2025-06-18 on, ``description``, ``websiteUrl`` and ``icons`` from 2025-11-25 on."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    websiteUrl: str | None = None  # noqa: N815
    icons: list[dict[str, Any]] | None = None


class InitializeParams(msgspec.Struct):
    """initialize, 2024-11-05 to 2025-11-25."""

    protocolVersion: str  # noqa: N815
    capabilities: Members
    clientInfo: dict[str, Any]  # noqa: N815


class InitializeResult(msgspec.Struct, omit_defaults=True):
    """The result of initialize."""

    protocolVersion: str  # noqa: N815
    capabilities: Members
    serverInfo: dict[str, Any]  # noqa: N815
    instructions: str | None = None


class DiscoverParams(msgspec.Struct):
    """server/discover, 2026-07-28: nothing but ``_meta``."""


class DiscoverResult(msgspec.Struct):
    """The result of server/discover."""

    supportedVersions: list[str]  # noqa: N815
    capabilities: Members | None = None
    instructions: str | None = None
    meta: Members | None = msgspec.field(name="_meta", default=None)


class ListParams(msgspec.Struct):
    """tools/list and the other lists. ``""`` is a cursor like any other."""

    cursor: str | None = None


class SetLevelParams(msgspec.Struct):
    """logging/setLevel, 2024-11-05 to 2025-11-25."""

    level: str


class ListenParams(msgspec.Struct):
    """subscriptions/listen, 2026-07-28."""

    notifications: Members


class ResourceParams(msgspec.Struct):
    """resources/subscribe and resources/unsubscribe, 2024-11-05 to 2025-11-25."""

    uri: str


class GetPromptParams(msgspec.Struct):
    """prompts/get."""

    name: str
    arguments: dict[str, str | None] | tuple[()] | None = None


class PromptReference(msgspec.Struct, tag_field="type", tag="ref/prompt"):
    """A prompt, whose argument is completed."""

    name: str


class ResourceReference(msgspec.Struct, tag_field="type", tag="ref/resource"):
    """A resource template, whose variable is completed; ``uri`` is the template or a URI."""

    uri: str


class CompleteArgument(msgspec.Struct):
    """The argument that is completed, and what of it is there already."""

    name: str
    value: str


class CompleteParams(msgspec.Struct):
    """completion/complete; ``context`` from 2025-06-18 on."""

    ref: PromptReference | ResourceReference
    argument: CompleteArgument
    context: msgspec.Raw = msgspec.Raw(b"{}")


class CompleteContext(msgspec.Struct):
    """The arguments that have their values already."""

    arguments: dict[str, str | None] | tuple[()] | None = None


class ErrorObject(msgspec.Struct):
    """The error of a JSON-RPC response (section 5.1)."""

    code: int
    message: str
    data: Any = None


class CallInput(msgspec.Struct):
    """The params of a request beside its own: answers and state of the round before
    (2026-07-28 basic/patterns/mrtr), or the wish for a task (2025-11-25 basic/utilities/tasks).
    """

    inputResponses: dict[str, msgspec.Raw] | None = None  # noqa: N815
    requestState: str | None = None  # noqa: N815
    task: dict[str, Any] | None = None

    @property
    def given(self) -> bool:
        """Whether there is anything."""
        return (
            self.inputResponses is not None
            or self.requestState is not None
            or self.task is not None
        )


class RoundInput(msgspec.Struct):
    """The further params of a request of 2026-07-28; a member ``task`` means nothing there
    (SEP-2663)."""

    inputResponses: dict[str, msgspec.Raw] | tuple[()] | None = None  # noqa: N815
    requestState: str | None = None  # noqa: N815

    def known(self) -> CallInput:
        """The same, as it is looked at."""
        responses = self.inputResponses
        if isinstance(responses, tuple):
            responses = {}
        return CallInput(responses, self.requestState)


class TaskInput(msgspec.Struct):
    """The further params of tools/call of 2025-11-25, which has no rounds."""

    task: Members | None = None

    def known(self) -> CallInput:
        """The same, as it is looked at."""
        return CallInput(task={} if isinstance(self.task, tuple) else self.task)


def given(arguments: dict[str, str | None] | tuple[()] | None) -> dict[str, str]:
    """The arguments of a prompt or of a completion that have a value: a null has none."""
    return {name: value for name, value in dict(arguments or ()).items() if value is not None}
