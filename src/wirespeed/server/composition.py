"""What a server is made of beside its own features: dependencies, a lifespan, other servers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

import msgspec

from wirespeed.server.part import Part

if TYPE_CHECKING:
    from wirespeed.server.dependencies import Dependencies
    from wirespeed.server.lifespan import Life, Lifespan
    from wirespeed.server.mount import Mount
    from wirespeed.server.registry import Registry
    from wirespeed.server.server import Server
    from wirespeed.server.tool import Tool

F = TypeVar("F", bound=Callable[..., Any])

_PROVIDERS = "wirespeed.server.providers"


class Composition(Part):
    """What a server has for dependencies, its lifespan, and servers mounted on it."""

    _dependencies: Dependencies | None  # None until something is provided or taken
    _lifespan: Lifespan | None
    _lives: dict[asyncio.AbstractEventLoop, Life]
    _mounts: list[Mount]
    _tools: Registry[Tool]

    def _setup_composition(self, lifespan: Lifespan | None) -> None:
        self._dependencies = None
        self._lives = {}
        self._mounts = []
        self._lifespan = lifespan
        if lifespan is not None:
            if not callable(lifespan):
                raise TypeError(f"a lifespan is a function of the server, not {lifespan!r}")
            self._made_dependencies().provide_state(lifespan)

    # -- dependencies ----------------------------------------------------------------------------

    @overload
    def provide(self, function: F, /) -> F: ...

    @overload
    def provide(
        self,
        function: None = None,
        /,
        *,
        scope: Literal["request", "connection", "server"] = "request",
        provides: Any = None,
        inline: bool = False,
    ) -> Callable[[F], F]: ...

    def provide(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Make a function the provider of the type that it returns or yields.

        ::

            @server.provide(scope="server")
            async def database() -> AsyncIterator[Database]:
                async with connect() as db:
                    yield db

        Tools, prompts, resources and completions that are registered later get the value by
        annotating a parameter with the type. The rules are those of
        `wirespeed.server.dependencies`.

        Args:
            scope: How long a value lives and who shares it: ``"request"``, ``"connection"`` or
                ``"server"``.
            provides: The type, instead of what the function's annotation says.
            inline: Call what is not async on the event loop's thread instead of a worker thread.
                Nothing else happens meanwhile: for functions of microseconds.

        Raises:
            DependencyError: It cannot be a provider; the text says why.
        """
        if function is not None:
            self._provide(function)
            return function

        def decorate(function: F) -> F:
            self._provide(function, **options)
            return function

        return decorate

    def _provide(self, function: Callable[..., Any], **options: Any) -> None:
        taken = [
            (f"tool {tool.name!r}", field.type)
            for tool in self._tools.items.values()
            if tool.spec is not None and tool.owner is self
            for field in msgspec.structs.fields(tool.spec.struct)
        ]
        self._made_dependencies().provide(function, taken=taken, **options)

    def _made_dependencies(self) -> Dependencies:
        if self._dependencies is None:
            from wirespeed.server.dependencies import Dependencies

            self._dependencies = Dependencies(cast("Server", self))
        return self._dependencies

    def _injecting(self) -> Dependencies | None:
        """What knows the dependencies of functions; None while there cannot be any, for whoever
        annotates with `Depends` has loaded its module."""
        if self._dependencies is None and _PROVIDERS in sys.modules:
            return self._made_dependencies()
        return self._dependencies

    # -- lifespan --------------------------------------------------------------------------------

    def running(self) -> AbstractAsyncContextManager[Any]:
        """Hold the server alive on the running loop, as everything that serves it does: its
        lifespan is entered for the first that holds it and left for the last.

        >>> async with server.running() as state: ...

        gives what the lifespan yielded. For those who `connect` links of their own, or who want a
        server to outlive its clients in this process.

        Raises:
            StartupError: The lifespan failed, or a dependency cannot be provided.
        """
        from wirespeed.server.lifespan import running

        return running(cast("Server", self))

    # -- mounting --------------------------------------------------------------------------------

    def mount(
        self, prefix: str, other: Server, *, separator: str = "_", uri_prefix: str = ""
    ) -> None:
        """Show what another server offers, under a prefix.

        >>> server.mount("calc", calculator)        # its tool "add" is "calc_add" here

        Its tools, prompts, resources, templates and completions show as long as they show there,
        and those that are registered later, too; clients are told of changes. It may have mounted
        servers itself, and clients of its own. Its functions keep its dependencies, lifespan and
        limits, and requests for them pass its middleware behind that of this server. Instructions,
        extensions and settings are this server's.

        Args:
            prefix: Stands before the names of tools and prompts; "" for none.
            other: The server.
            separator: Stands between prefix and name.
            uri_prefix: Stands before the URIs of resources and templates, such as ``"calc+"``,
                which makes ``config://app`` ``calc+config://app``. By default they stay as they
                are.

        Raises:
            ValueError: A name or a URI is taken; then nothing is mounted. The same is raised, at
                ``other``, for what is registered there later.
        """
        from wirespeed.server.mount import Mount
        from wirespeed.server.mounted import has_middleware

        parent = cast("Server", self)
        mount = Mount(parent, other, prefix, separator, uri_prefix)
        self._mounts.append(mount)
        other._mounted_on = (*other._mounted_on, mount)
        for kind in ("tools", "prompts", "resources"):
            mount.sync(kind)
        if has_middleware(other):
            parent._chain_changed(for_all=True)
        for life in list(self._lives.values()):
            life.adopt_soon(other)

    def unmount(self, other: Server) -> None:
        """Show nothing of a mounted server any more; calls under way go on. ValueError: it is not
        mounted here."""
        ended = [mount for mount in self._mounts if mount.other is other]
        from wirespeed.server.mounted import has_middleware

        if not ended:
            raise ValueError(f"{other!r} is not mounted on {self!r}")
        for mount in ended:
            self._mounts.remove(mount)
            other._mounted_on = tuple(m for m in other._mounted_on if m is not mount)
            mount.end()
        if has_middleware(other):
            cast("Server", self)._chain_changed(for_all=True)
        for life in list(self._lives.values()):
            life.disown_soon(other)

    def _mounted(self) -> list[Server]:
        return list(dict.fromkeys(mount.other for mount in self._mounts))
