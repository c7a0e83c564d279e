"""Functions that provide values: read once, at registration."""

from __future__ import annotations

import collections.abc
import contextlib
import inspect
import sys
import types
import typing
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, TypeVar, overload

from wirespeed._exports import set_public_home
from wirespeed.errors import DependencyError
from wirespeed.server.dependencies.scope import AtOnce, Given, InThread, Scope
from wirespeed.server.requests import launchers
from wirespeed.server.requests.call import context_class
from wirespeed.server.tools.callables import (
    AnnotationScope,
    code_flags,
    label_of,
    layers_of,
    signature_of,
)

ScopeName: TypeAlias = Literal["request", "connection", "server"]
Source: TypeAlias = "Provider | Given"
Find: TypeAlias = "Callable[[Any, inspect.Parameter, str], Source | None]"

if TYPE_CHECKING:
    T = TypeVar("T")
    # What a function returns that provides a T, besides a T itself.
    Providing: TypeAlias = (
        Coroutine[Any, Any, T]
        | AsyncIterator[T]
        | Generator[T, Any, Any]
        | contextlib._AsyncGeneratorContextManager[T]
        | contextlib._GeneratorContextManager[T]
    )

_SCOPES = {scope.name.lower(): scope for scope in Scope}
_GENERATORS = inspect.CO_GENERATOR | inspect.CO_ASYNC_GENERATOR
_ITERATORS = ("Iterator", "Iterable", "Generator")
_AWAITABLES = (collections.abc.Awaitable, collections.abc.Coroutine)
_MANAGERS = (contextlib.AbstractContextManager, contextlib.AbstractAsyncContextManager)


class Dependency:
    """The mark of a parameter that gets what a function returns; `Depends` makes it."""

    __slots__ = ("function", "inline", "scope")

    def __init__(self, function: Callable[..., Any], scope: Scope | None, inline: bool) -> None:
        self.function = function
        self.scope = scope
        self.inline = inline

    def __repr__(self) -> str:
        return f"Depends({label_of(self.function)})"


@overload
def Depends(
    function: Callable[..., Providing[T]], *, scope: ScopeName | None = None, inline: bool = False
) -> T: ...


@overload  # a generator, or a value that is an iterator, such as an open file
def Depends(
    function: Callable[..., Iterator[Any]], *, scope: ScopeName | None = None, inline: bool = False
) -> Any: ...


@overload
def Depends(
    function: Callable[..., T], *, scope: ScopeName | None = None, inline: bool = False
) -> T: ...


def Depends(  # noqa: N802 - it stands in annotations
    function: Callable[..., Any], *, scope: ScopeName | None = None, inline: bool = False
) -> Any:
    """Mark a parameter that gets what a function returns, as its default or in its annotation::

        db: Database = Depends(get_db)
        db: Annotated[Database, Depends(get_db)]
        db: Depends(get_db)  # type checkers do not take this form

    The function is a provider as for `Server.provide` and need not be registered. Of one function
    and scope there is one value, however many parameters take it.

    Args:
        function: Returns the value.
        scope: How long the value lives: by default as the function was registered with
            `Server.provide`, else "request".
        inline: Call a plain function on the event loop's thread.

    Raises:
        DependencyError: There is no such scope.
    """
    return Dependency(function, None if scope is None else scope_of(scope), inline)


def dependency_of(annotation: Any, parameter: inspect.Parameter, where: str) -> Dependency | None:
    """The mark in a parameter's annotation or default, or None. DependencyError: there are
    several, or it is without its function."""
    marks = [parameter.default, annotation]
    if annotation is Depends:
        raise DependencyError(f"{where}: write {parameter.name}: T = Depends(f)")
    if typing.get_origin(annotation) is Annotated:
        marks += annotation.__metadata__
    marks = [mark for mark in marks if isinstance(mark, Dependency)]
    if len(marks) > 1:
        raise DependencyError(f"{where}: more than one Depends")
    return marks[0] if marks else None


def scope_of(name: str) -> Scope:
    """The scope of this name. DependencyError: there is none."""
    scope = _SCOPES.get(name)
    if scope is None:
        raise DependencyError(f"a scope is one of {', '.join(_SCOPES)}, not {name!r}")
    return scope


def type_name(annotation: Any) -> str:
    """A type as its author wrote it, or nearly."""
    return annotation.__qualname__ if isinstance(annotation, type) else repr(annotation)


class Provider:
    """A function that provides a value, and what it takes itself.

    Args:
        function: A coroutine function, a plain function or class, a generator function, or one
            that returns a context manager.
        scope: How long its values live.
        inline: Whether a plain function runs on the loop's thread.
        threads: The threads that plain functions run in.
    """

    def __init__(
        self, function: Callable[..., Any], scope: Scope, inline: bool, threads: launchers.Threads
    ) -> None:
        if not callable(function):
            raise DependencyError(f"{function!r} cannot be called: it provides nothing")
        self.function = function
        self.scope = scope
        self.inline = inline
        self._threads = threads
        self.needs: tuple[tuple[str | None, Source], ...] | None = None  # (keyword, source)
        owner: Any = layers_of(function, wrapped=True)[-1]
        called = layers_of(function, wrapped=False)[-1]
        self.name = label_of(called)
        names: dict[str, Any] = {}
        if isinstance(owner, type):  # its __init__ may be generated, without a module
            names = vars(sys.modules.get(owner.__module__, types))
            owner = vars(owner).get("__init__", owner)
        self._hints = AnnotationScope(owner, names, context_class())
        self._signature = signature_of(function, str(self))
        annotation: Any = self._signature.return_annotation
        if isinstance(function, type):
            annotation = function
        elif annotation is not inspect.Signature.empty:
            annotation = self._hints.resolve(annotation, f"{self}: return value")
        self._returns = annotation
        flags = code_flags(called) | code_flags(owner)
        self.is_async = bool(flags & inspect.CO_COROUTINE)
        self._generates = not self.is_async and bool(flags & _GENERATORS)
        self.is_resource = self._generates or (
            not self.is_async and typing.get_origin(annotation) in _MANAGERS
        )
        if self.is_async or typing.get_origin(annotation) in _AWAITABLES:
            self._launch = launchers.awaitable
        else:
            self._launch = launchers.at_once if inline else threads.in_thread

    def __str__(self) -> str:
        return f"provider {self.name}"

    __repr__ = __str__

    def provided_type(self) -> Any:
        """The type that it provides, by its annotation. DependencyError: there is no annotation."""
        annotation = self._returns
        if annotation is inspect.Signature.empty:
            raise DependencyError(
                f"{self}: what it provides is not known; annotate its result, or write provides=…"
            )
        origin, parts = typing.get_origin(annotation), typing.get_args(annotation)
        if origin in _AWAITABLES:
            return parts[-1]
        if not self.is_resource:
            return annotation
        name = getattr(origin, "__name__", "").removeprefix("Async")
        if origin in _MANAGERS or name in _ITERATORS:
            return parts[0]
        raise DependencyError(
            f"{self}: a generator returns an Iterator, not {type_name(annotation)}"
        )

    # -- what it takes ---------------------------------------------------------------------------

    def link(self, find: Find) -> None:
        """Find the source of each parameter. DependencyError: a parameter has none."""
        needs: list[tuple[str | None, Source]] = []
        gap = False
        for parameter in self._signature.parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                continue
            where = f"{self}: parameter '{parameter.name}'"
            source = self._source(parameter, find, where)
            if source is None:
                gap = True
                continue
            self._check_scope(source, where)
            positional = parameter.kind is parameter.POSITIONAL_ONLY
            if positional and gap:
                raise DependencyError(f"{where}: it is positional only, behind one with a default")
            needs.append((None if positional else parameter.name, source))
        self.keywords = tuple(name for name, _ in needs if name is not None)
        self.needs = tuple(needs)

    def _source(self, parameter: inspect.Parameter, find: Find, where: str) -> Source | None:
        annotation: Any = Any
        what = "it has no annotation"
        if parameter.annotation is not parameter.empty:
            annotation = self._hints.resolve(parameter.annotation, where)
            what = f"nothing provides {type_name(annotation)}"
        source = find(annotation, parameter, where)
        if source is not None:
            return source
        if self._hints.is_context(annotation):
            return Given.CONTEXT
        if parameter.default is parameter.empty:
            raise DependencyError(f"{where}: {what}, and it has no default")
        return None

    def _check_scope(self, source: Source, where: str) -> None:
        if source is Given.SERVER:
            return
        scope = source.scope if isinstance(source, Provider) else Scope.REQUEST
        if scope < self.scope:
            what = source if isinstance(source, Provider) else "the context of a request"
            raise DependencyError(
                f"{where}: a value of scope {self.scope.word} cannot use one of scope "
                f"{scope.word} ({what})"
            )

    # -- its values ------------------------------------------------------------------------------

    async def arguments(self, take: Callable[[Source], Awaitable[Any]]) -> list[Any]:
        """The arguments of a call, each from ``take(source)``."""
        assert self.needs is not None
        return [await take(source) for _, source in self.needs]

    def call(self, values: list[Any]) -> Awaitable[Any]:
        """An awaitable of the value, for a provider that is not a resource."""
        return self._launch(self.function, values, self.keywords)

    async def manager(self, values: list[Any]) -> Any:
        """The async context manager of a resource."""
        made: Any
        if self._generates:  # nothing of it runs yet
            made = launchers.call(self.function, values, self.keywords)
        else:
            made = await self.call(values)
        if isinstance(made, types.AsyncGeneratorType):
            return contextlib.asynccontextmanager(lambda: made)()
        if isinstance(made, types.GeneratorType):
            manager: Any = contextlib.contextmanager(lambda: made)()
        elif hasattr(made, "__aenter__"):
            return made
        elif hasattr(made, "__enter__"):
            manager = made
        else:
            raise TypeError(
                f"{self} returned {type(made).__name__}: neither a generator nor a context manager"
            )
        return AtOnce(manager) if self.inline else InThread(manager, self._threads)


set_public_home(globals())
