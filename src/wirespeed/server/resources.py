"""The resources of a server: registered, listed, taken away (server/resources).

What they are is in `wirespeed.server.resource`, loaded when there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from wirespeed.protocol import shapes
from wirespeed.server.part import Part

if TYPE_CHECKING:
    import os

    from wirespeed.protocol.blocks import Annotations, Icon
    from wirespeed.server.dependencies import Dependencies
    from wirespeed.server.registry import Registry
    from wirespeed.server.resource import Resource, ResourceTemplate

__all__ = ["Resources"]

F = TypeVar("F", bound=Callable[..., Any])


class Resources(Part):
    """What a server has for resources."""

    _resources: Registry[Resource]
    _templates: Registry[ResourceTemplate]
    _has_resources: bool
    versions: tuple[str, ...]
    _injecting: Callable[[], Dependencies | None]
    _resource_updated: Callable[[str], None]

    def _setup_resources(self) -> None:
        self._resources = self._registry(
            "resources", "resources", lambda entry, version: shapes.fit("Resource", entry, version)
        )
        self._templates = self._registry(
            "resources",
            "resourceTemplates",
            lambda entry, version: shapes.fit("ResourceTemplate", entry, version),
        )
        self._has_resources = False
        self._offers["resources"] = lambda: (
            {"subscribe": True, "listChanged": True} if self._has_resources else None
        )

    def enable_resources(self) -> None:
        """Offer resources although there is none yet: a client of the legacy revisions is told
        what a server has once, when it connects. What was offered stays so."""
        if not self._has_resources:
            self._has_resources = True
            self._answers = {}
            for mount in self._mounted_on:
                mount.parent.enable_resources()

    def resource(
        self,
        uri: str,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        ttl_ms: int | None = None,
        cache_scope: str | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        queue: int | None = None,
        safe: bool = True,
    ) -> Callable[[F], F]:
        """Make what a function gives a resource, or, for a URI with variables, a template::

            @server.resource("config://app", mime_type="application/json")
            def config() -> dict[str, str]: ...

            @server.resource("users://{user_id}/avatar")
            async def avatar(user_id: int, ctx: Context) -> bytes: ...

        Arguments are those of `add_resource`.
        """
        if not isinstance(uri, str):
            raise TypeError(
                '@server.resource needs the URI of the resource: @server.resource("config://app")'
            )

        def decorate(function: F) -> F:
            self.add_resource(
                uri,
                function,
                name=name,
                title=title,
                description=description,
                mime_type=mime_type,
                size=size,
                annotations=annotations,
                icons=icons,
                meta=meta,
                ttl_ms=ttl_ms,
                cache_scope=cache_scope,
                timeout=timeout,
                max_concurrency=max_concurrency,
                queue=queue,
                safe=safe,
            )
            return function

        return decorate

    def add_resource(
        self,
        uri: str,
        content: Any,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        mime_type: str | None = None,
        size: int | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        ttl_ms: int | None = None,
        cache_scope: str | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        queue: int | None = None,
        safe: bool = True,
    ) -> Resource | ResourceTemplate:
        """Register a resource or a template, now or while the server runs (clients are told).

        A URI is looked for among the resources first, then matched with the templates in the order
        of their registration.

        Args:
            uri: A URI (RFC 3986), or a template of level 1 or 2 (RFC 6570: ``{var}``, ``{+var}``,
                and at the end ``{#var}``) whose variables are parameters of the function. Values
                that do not fit a parameter's type mean that there is no such resource.
            content: What the resource says (`wirespeed.server.contents` has the kinds), or a
                function that gives it whenever it is read; a plain function runs in a worker
                thread. A function that gives None, or raises `ResourceNotFound`, means that there
                is no such resource.
            name, title, description: Instead of what function or URI say themselves.
            mime_type: The media type; left out, that of the kind of value.
            size: Bytes, before encoding, for resources/list; known for fixed text and bytes.
            annotations, icons, meta: For the list.
            ttl_ms, cache_scope: How long a result may be kept, and by whom (2026-07-28
                server/utilities/caching), instead of the server's.
            timeout: Seconds after which reading is given up, waiting for others included.
            max_concurrency, queue: Requests whose function runs at a time, and that wait beyond
                these (100 by default); more get error -31000. See `wirespeed.server.limiter`.
            safe: Whether a template's values that could lead a path out of its folder (``..``, a
                slash in front) mean that there is no such resource. Turn it off only where no
                value becomes part of a path.

        Raises:
            SignatureError: The function's parameters are not the template's variables.
            ValueError: The URI is none, the template cannot be matched, or there is such a
                resource already.
        """
        from wirespeed.server.resource import ResourceTemplate, make_resource

        made = make_resource(
            self,
            uri,
            content,
            name=name,
            title=title,
            description=description,
            mime_type=mime_type,
            size=size,
            annotations=annotations,
            icons=icons,
            meta=meta,
            ttl_ms=ttl_ms,
            cache_scope=cache_scope,
            timeout=timeout,
            max_concurrency=max_concurrency,
            queue=queue,
            safe=safe,
        )
        if isinstance(made, ResourceTemplate):
            self._templates.add(made.key, made.entry, made)
            made.registered(self)
        else:
            self._resources.add(made.uri, made.entry, made)
        self.enable_resources()
        return made

    def add_folder(
        self,
        uri_prefix: str,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        annotations: Annotations | Mapping[str, Any] | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        ttl_ms: int | None = None,
        cache_scope: str | None = None,
        timeout: float | None = None,
        hidden: bool = False,
        max_size: int = 16 << 20,
    ) -> ResourceTemplate:
        """Serve the files below a folder, as the template ``{uri_prefix}/{+path}``.

        >>> server.add_folder("docs://", "/srv/docs")        # docs://guide/start.md

        Nothing outside the folder is read: ``..``, absolute paths, backslashes, NUL and links that
        lead out mean that there is no such resource, and so do files that are no regular files.
        The media type follows from the file's name; UTF-8 text goes out as text, anything else as
        a blob. ``path`` completes, one level at a time.

        Args:
            uri_prefix: What the URIs begin with, such as ``file:///srv/docs`` or ``docs://``.
            path: The folder.
            hidden: Whether files and folders whose names begin with a dot are served.
            max_size: Bytes of the longest file, 16 MiB by default; a longer one is an error.
            name, title, description, annotations, icons, meta, ttl_ms, cache_scope, timeout: As
                for `add_resource`.

        Raises:
            NotADirectoryError: There is no such folder.
            ValueError: The prefix is no URI, or is taken.
        """
        from wirespeed.server.resource import ResourceTemplate, folder_template

        template, own_name, read, complete = folder_template(
            uri_prefix, path, hidden=hidden, max_size=max_size
        )
        made = self.add_resource(
            template,
            read,
            name=name or own_name,
            title=title,
            description=description,
            annotations=annotations,
            icons=icons,
            meta=meta,
            ttl_ms=ttl_ms,
            cache_scope=cache_scope,
            timeout=timeout,
        )
        assert isinstance(made, ResourceTemplate)
        made.complete("path")(complete)
        return made

    def remove_resource(self, uri: str) -> None:
        """Take a resource or a template away; what is being read is read to its end. KeyError if
        there is none."""
        if uri in self._templates:
            self._templates.remove(uri)
        else:
            self._resources.remove(uri)

    @property
    def resources(self) -> Mapping[str, Resource]:
        """The resources by URI."""
        return dict(self._resources.items)

    @property
    def resource_templates(self) -> Mapping[str, ResourceTemplate]:
        """The templates, by themselves."""
        return dict(self._templates.items)

    def resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to a resource that it says something else now. From any
        thread. Clients that subscribed to what it is a part of (``a://b`` of ``a://b/c``) are told
        as well."""
        self._resource_updated(uri)

    def _template_of(self, uri: str) -> ResourceTemplate | None:
        """The first template that a URI fits."""
        for template in list(self._templates.items.values()):
            if template.match(uri) is not None:
                return template
        return None
