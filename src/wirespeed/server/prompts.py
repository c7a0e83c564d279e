"""The prompts of a server: registered, listed, taken away (server/prompts).

What they are is in `wirespeed.server.prompt`, loaded when there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

from wirespeed.protocol import shapes
from wirespeed.server.part import Part

if TYPE_CHECKING:
    from wirespeed.protocol.blocks import Icon
    from wirespeed.server.dependencies import Dependencies
    from wirespeed.server.prompt import Prompt
    from wirespeed.server.registry import Registry

__all__ = ["Prompts"]

F = TypeVar("F", bound=Callable[..., Any])


class Prompts(Part):
    """What a server has for prompts."""

    _prompts: Registry[Prompt]
    _has_prompts: bool
    _injecting: Callable[[], Dependencies | None]

    def _setup_prompts(self) -> None:
        self._prompts = self._registry(
            "prompts", "prompts", lambda entry, version: shapes.fit("Prompt", entry, version)
        )
        self._has_prompts = False
        self._offers["prompts"] = lambda: {"listChanged": True} if self._has_prompts else None

    def enable_prompts(self) -> None:
        """Offer prompts although there is none yet: a client of the legacy revisions is told what
        a server has once, when it connects. What was offered stays so."""
        if not self._has_prompts:
            self._has_prompts = True
            self._answers = {}
            for mount in self._mounted_on:
                mount.parent.enable_prompts()

    @overload
    def prompt(self, function: F, /) -> F: ...

    @overload
    def prompt(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        queue: int | None = None,
    ) -> Callable[[F], F]: ...

    def prompt(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Make a function a prompt; as ``@server.prompt`` or ``@server.prompt(title=…)``::

            @server.prompt
            def review(code: str, language: Literal["c", "python"] = "python") -> str:
                return f"Please review this {language} code: {code}"

        Its name, docstring and parameters become the prompt's name, description and arguments.
        Options are those of `add_prompt`.
        """
        if function is not None:
            self.add_prompt(function)
            return function

        def decorate(function: F) -> F:
            self.add_prompt(function, **options)
            return function

        return decorate

    def add_prompt(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        max_concurrency: int | None = None,
        queue: int | None = None,
    ) -> Prompt:
        """Register a function as a prompt, now or while the server runs (clients are told).

        Args:
            function: A coroutine function, or a plain one, which runs in a worker thread. Without
                a default, a parameter is a required argument.
            name, title, description: Instead of what the function says itself.
            icons, meta: For prompts/list.
            timeout: Seconds after which a call is given up, waiting for other calls included.
            max_concurrency, queue: Calls that run at a time, and that wait beyond these (100 by
                default); more get error -31000. See `wirespeed.server.limiter`.

        Raises:
            SignatureError: The signature cannot be a prompt's; the text says why.
            ValueError: There is a prompt of this name.
        """
        from wirespeed.server.prompt import make_prompt

        prompt = make_prompt(
            self,
            function,
            name=name,
            title=title,
            description=description,
            icons=icons,
            meta=meta,
            timeout=timeout,
            max_concurrency=max_concurrency,
            queue=queue,
        )
        self._prompts.add(prompt.key, prompt.entry, prompt)
        self.enable_prompts()
        prompt.registered(self)
        return prompt

    def remove_prompt(self, name: str) -> None:
        """Take a prompt away; calls under way go on. KeyError if there is none of this name."""
        self._prompts.remove(name)

    @property
    def prompts(self) -> Mapping[str, Prompt]:
        """The prompts by name."""
        return dict(self._prompts.items)
