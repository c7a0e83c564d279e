"""The prompts of a server: registered, listed, removed (server/prompts).

What a prompt is stands in `wirespeed.server.prompts.prompt`, loaded with the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from wirespeed.protocol import shapes
from wirespeed.server.catalog import Catalog, LimitOptions, check_options
from wirespeed.server.requests.methods import unknown

if TYPE_CHECKING:
    from wirespeed.protocol.blocks import Icon
    from wirespeed.protocol.results import GetPromptResult
    from wirespeed.server.context import Context
    from wirespeed.server.prompts.prompt import Prompt
    from wirespeed.server.service import McpService


class PromptOptions(LimitOptions, total=False):
    """The options of `Server.prompt`; `Server.add_prompt` describes them."""

    name: str | None
    title: str | None
    description: str | None
    icons: Iterable[Icon] | None
    meta: Mapping[str, Any] | None
    scopes: Iterable[str]


class PromptCatalog(Catalog["Prompt"]):
    """The prompts by name. ``enabled``: whether the server offers prompts."""

    def __init__(self, service: McpService) -> None:
        super().__init__(
            "prompt",
            "prompts",
            lambda entry, version: shapes.fit("Prompt", entry, version),
            discovery=service.discovery,
            page_size=service.page_size,
            changed=lambda: service.list_changed("prompts"),
        )
        self._service = service
        self.enabled = False
        service.discovery.offers["prompts"] = lambda: (
            {"listChanged": True} if self.enabled else None
        )

    def enable(self) -> None:
        """Offer prompts from now on."""
        if not self.enabled:
            self.enabled = True
            self._service.discovery.forget()
            for mount in self._service.mounts.elsewhere:
                mount.outer.prompts.enable()

    async def fetch(
        self, name: str, arguments: Mapping[str, Any], context: Context
    ) -> GetPromptResult:
        """What `Context.get_prompt` returns."""
        prompt = self.get(name)
        if prompt is None:
            raise unknown("prompt", name, self.items)
        return await prompt.fetch(context, arguments)

    def register(self, function: Callable[..., Any], **options: Unpack[PromptOptions]) -> Prompt:
        """See `Server.add_prompt`."""
        check_options("add_prompt()", options, PromptOptions)
        from wirespeed.server.prompts.prompt import make_prompt

        prompt = make_prompt(self._service, function, options)
        self.add(prompt.key, prompt.entry, prompt)
        self.enable()
        prompt.registered(self._service)
        return prompt
