"""Catalogs of prompts and resources: registered, listed, removed.

Every server has them. A prompt, a resource and a template stand in `wirespeed.server.prompts` and
`wirespeed.server.resources.resource`, which are loaded with the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Unpack

from wirespeed.errors import ResourceNotFound, shortened
from wirespeed.protocol.revisions import fit
from wirespeed.server.catalog import Catalog, Registrar, check_options
from wirespeed.server.permissions import check_scopes
from wirespeed.server.requests.operation import unknown

if TYPE_CHECKING:
    import os

    from wirespeed.protocol.results import GetPromptResult, ReadResourceResult
    from wirespeed.server.permissions import Visibility
    from wirespeed.server.prompts import Prompt, PromptOptions
    from wirespeed.server.requests.call import Call, Serving
    from wirespeed.server.requests.operation import HandlerContext
    from wirespeed.server.resources.resource import (
        FolderOptions,
        Resource,
        ResourceOptions,
        ResourceTemplate,
    )


# -- prompts ---------------------------------------------------------------------------------------


class PromptCatalog(Catalog["Prompt"]):
    """The prompts by name."""

    def __init__(self, service: Registrar) -> None:
        super().__init__(
            "prompt",
            "prompts",
            lambda entry, version: fit("Prompt", entry, version),
            discovery=service.discovery,
            page_size=service.page_size,
            changed=lambda: service.list_changed("prompts"),
        )
        self._service = service

    async def fetch(
        self, name: str, arguments: Mapping[str, Any], context: HandlerContext
    ) -> GetPromptResult:
        """See `Context.get_prompt`."""
        prompt = self.get(name)
        if prompt is None:
            raise unknown("prompt", name, self.items)
        return await prompt.fetch(context, arguments)

    def register(self, function: Callable[..., Any], **options: Unpack[PromptOptions]) -> Prompt:
        """See `Server.add_prompt`."""
        from wirespeed.server.prompts import PromptOptions, make_prompt

        check_options("add_prompt()", options, PromptOptions)
        prompt = make_prompt(self._service, function, options)
        self.add(prompt.key, prompt.entry, prompt, options.get("tags", ()))
        self._service.enable("prompts")
        prompt.registered(self._service)
        return prompt


# -- resources -------------------------------------------------------------------------------------


class ResourceCatalog:
    """The resources of a server.

    Attributes:
        fixed: Resources by URI.
        templates: Templates of resources, by themselves.
        skill_files: Finds a file of a skill by its URI, for a client; None: there are no skills.
            It is asked first, so that no resource takes the place of a file with a digest.
    """

    def __init__(self, service: Registrar, visibility: Visibility) -> None:
        self._service = service
        self._visibility = visibility
        self.skill_files: Callable[[str, Call | Serving | None], Resource | None] | None = None

        def catalog(kind: str, member: str, row: str) -> Catalog[Any]:
            return Catalog(
                kind,
                member,
                lambda entry, version: fit(row, entry, version),
                discovery=service.discovery,
                page_size=service.page_size,
                changed=lambda: service.list_changed("resources"),
            )

        self.fixed: Catalog[Resource] = catalog("resource", "resources", "Resource")
        self.templates: Catalog[ResourceTemplate] = catalog(
            "resource template", "resourceTemplates", "ResourceTemplate"
        )

    def register(
        self, uri: str, content: Any, **options: Unpack[ResourceOptions]
    ) -> Resource | ResourceTemplate:
        """See `Server.add_resource`."""
        from wirespeed.server.resources.resource import (
            ResourceOptions,
            ResourceTemplate,
            make_resource,
        )

        check_options("add_resource()", options, ResourceOptions)
        made = make_resource(self._service, uri, content, options)
        tags = options.get("tags", ())
        if isinstance(made, ResourceTemplate):
            self.templates.add(made.key, made.entry, made, tags)
            made.registered(self._service)
        else:
            self.fixed.add(made.uri, made.entry, made, tags)
        self._service.enable("resources")
        return made

    def register_folder(
        self,
        uri_prefix: str,
        path: str | os.PathLike[str],
        *,
        hidden: bool,
        max_size: int,
        **options: Unpack[FolderOptions],
    ) -> ResourceTemplate:
        """See `Server.add_folder`."""
        from wirespeed.server.resources.resource import (
            FolderOptions,
            ResourceTemplate,
            folder_template,
        )

        check_options("add_folder()", options, FolderOptions)
        template, own_name, read, complete = folder_template(
            uri_prefix, path, hidden=hidden, max_size=max_size
        )
        options["name"] = options.get("name") or own_name
        made = self.register(template, read, **options)
        assert isinstance(made, ResourceTemplate)
        made.complete("path")(complete)
        return made

    def remove(self, uri: str) -> None:
        """Remove a resource or a template. KeyError: there is none."""
        (self.templates if uri in self.templates else self.fixed).remove(uri)

    def template_of(self, uri: str) -> ResourceTemplate | None:
        """The first template that a URI fits."""
        matched = self._matched(uri, None)
        return None if matched is None else matched[0]

    def find(
        self, uri: str, client: Call | Serving | None = None
    ) -> Resource | tuple[ResourceTemplate, dict[str, Any]] | None:
        """The resource under a URI, or the first template that the URI fits, with the arguments of
        its function; None if there is neither. ``client``: that this client sees."""
        if self.skill_files is not None:
            file = self.skill_files(uri, client)
            if file is not None:
                return file
        resource = self.fixed.get(uri)
        if resource is None or self._hidden("resources", uri, resource, client):
            return self._matched(uri, client)
        return resource

    def find_template(self, uri: str, client: Call | Serving) -> ResourceTemplate | None:
        """The template of this text, or the first that a URI fits, of those that a client sees."""
        template = self.templates.get(uri)
        if template is None or self._hidden("templates", uri, template, client):
            matched = self._matched(uri, client)
            return None if matched is None else matched[0]
        return template

    def hides(self, uri: str, connection: Serving) -> bool:
        """Whether there is a resource under a URI, and the client does not see it."""
        return (
            (self._visibility.limited or connection.state.shown is not None)
            and self.find(uri) is not None
            and self.find(uri, connection) is None
        )

    def _matched(
        self, uri: str, client: Call | Serving | None
    ) -> tuple[ResourceTemplate, dict[str, Any]] | None:
        for key, template in list(self.templates.items.items()):
            values = template.match(uri)
            if values is not None and not self._hidden("templates", key, template, client):
                return template, values
        return None

    def _hidden(self, name: str, key: str, item: Any, client: Call | Serving | None) -> bool:
        return client is not None and self._visibility.hides(name, key, item, client)

    def check_scopes(self, uris: Iterable[str], call: Call) -> None:
        """ProtocolError: the client's token does not permit to read what is under a URI."""
        items: tuple[Resource | ResourceTemplate, ...] = (
            *self.fixed.items.values(),
            *self.templates.items.values(),
        )
        if self.skill_files is None and all(item.scopes is None for item in items):
            return
        for uri in uris:
            found = self.find(uri, call)
            item = found[0] if isinstance(found, tuple) else found
            if item is not None and item.scopes is not None:
                check_scopes(call, item.scopes, f"the resource {shortened(uri)}")

    async def fetch(self, uri: str, context: HandlerContext) -> ReadResourceResult:
        """See `Context.read_resource`."""
        found = self.find(uri)
        if found is None:
            raise ResourceNotFound(uri)
        if isinstance(found, tuple):
            template, values = found
            return await template.fetch(context, uri, values)
        return await found.fetch(context)
