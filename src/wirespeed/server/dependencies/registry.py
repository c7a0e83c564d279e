"""Dependency injection by annotation: what is provided, by whom, for how long, and who takes it.

::

    @server.provide(scope="server")
    async def database() -> AsyncIterator[Database]:
        async with connect() as db:
            yield db

    @server.tool
    async def rows(table: str, db: Database) -> int: ...

A parameter whose annotation is a provided type, or that has a `Depends` as its default or in its
annotation (``Annotated[T, Depends(function)]``), is not an argument of the tool (prompt, resource,
completion): clients neither see nor set it.
Providers are registered before the functions that use them. Errors of providers (a type without a
provider, a cycle, a wider scope that takes from a narrower one) are raised at registration; for
providers that nothing uses, at the start of the server.

* A provider is a coroutine function, a plain function or class (called in a worker thread, unless
  ``inline=True``), or a generator of one value, async or not: what follows its ``yield`` is the
  teardown. ``@contextmanager`` and ``@asynccontextmanager`` may be on it. It has no arguments but
  what is injected: provided types, `Depends`, the `Server`, in scope "request" the `Context`, and
  what has a default.
* ``scope="request"``: made for a request before its handler, once, and torn down in the same task
  behind the handler, before the answer. What the handler raised is raised at the ``yield`` and
  cannot be swallowed there. A teardown that fails is the request's failure, unless it failed
  already: then it is logged.
* ``scope="connection"``: made once for a link, in every era, and torn down when the link and its
  handlers have ended. ``scope="server"``: made once for a server, torn down when it is not
  served any longer. Both are made when first wanted, in tasks of their own; a failure
  is not kept. Errors of their teardown are logged.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypedDict

from wirespeed.errors import ConnectionClosed, DependencyError, SignatureError
from wirespeed.server.dependencies.provider import (
    Dependency,
    Provider,
    ScopeName,
    Source,
    dependency_of,
    scope_of,
    type_name,
)
from wirespeed.server.dependencies.scope import LAST_WAIT, MISSING, Exits, Given, Scope, Shared
from wirespeed.server.requests import launchers
from wirespeed.server.requests.call import context_class

if TYPE_CHECKING:
    from wirespeed.server.requests.call import Serving
    from wirespeed.server.requests.launchers import InspectedFunction
    from wirespeed.server.requests.operation import HandlerContext
    from wirespeed.server.tools.catalog import ToolCatalog

logger = logging.getLogger("wirespeed.server")

# What JSON decodes to: parameters of these types are arguments.
_PLAIN = (str, int, float, complex, bool, bytes, bytearray, list, dict, tuple, set, frozenset)
_PLAIN_TYPES = {*_PLAIN, object, None, type(None), Any}


class ProviderOptions(TypedDict, total=False):
    """Options of a provider; `Server.provide` describes them."""

    scope: ScopeName
    provides: Any
    inline: bool


class _Life(Protocol):
    """A life of the server (`wirespeed.server.lifespan.Life`)."""

    @property
    def context(self) -> contextvars.Context: ...

    @property
    def shared(self) -> Shared: ...


class _Provisioned(Protocol):
    """The server whose functions take dependencies (`wirespeed.server.service.McpService`)."""

    @property
    def server(self) -> object: ...

    @property
    def life(self) -> _Life | None: ...

    @property
    def shutdown_grace(self) -> float: ...

    @property
    def threads(self) -> launchers.Threads: ...

    @property
    def tools(self) -> ToolCatalog: ...


class Dependencies:
    """The values that one server provides to its own functions."""

    def __init__(self, service: _Provisioned) -> None:
        self.service = service
        self._server_classes = type(service.server).__mro__[:-1]  # without `object`
        self._by_type: dict[Any, Provider] = {}
        self._by_function: dict[tuple[Any, Scope | None], Provider] = {}
        self.state: Provider | None = None  # what the lifespan yields
        self._connections: dict[Serving, Shared] = {}
        self.endings: set[asyncio.Task[None]] = set()

    # -- registration ----------------------------------------------------------------------------

    def provide(
        self,
        function: Callable[..., Any],
        *,
        scope: ScopeName = "request",
        provides: Any = None,
        inline: bool = False,
    ) -> Provider:
        """Register a provider; see `Server.provide`."""
        provider = Provider(function, scope_of(scope), inline, self.service.threads)
        tp = _bare(provider.provided_type() if provides is None else provides)
        self._check_type(tp, provider)
        if (other := self._by_type.get(tp)) is not None:
            raise DependencyError(f"{provider}: {other} provides {type_name(tp)} already")
        if (function, None) in self._by_function:
            raise DependencyError(f"{provider}: it was taken already by Depends, before this")
        for name, argument in self.service.tools.arguments():
            if _bare(argument) == tp:
                raise DependencyError(
                    f"{provider}: {name} takes {type_name(tp)} as an argument, because it was "
                    "registered before; providers come first"
                )
        self._by_type[tp] = self._by_function[function, None] = provider
        return provider

    def provide_state(self, lifespan: Callable[..., Any]) -> None:
        """Let the state of the lifespan be taken by its type, if the function names a type of its
        own that it yields."""
        try:
            provider = Provider(lifespan, Scope.SERVER, True, self.service.threads)
            tp = _bare(provider.provided_type())
            self._check_type(tp, provider)
        except SignatureError:  # without a readable annotation only `lifespan_state` has it
            return
        provider.needs = ()
        self._by_type[tp] = self.state = provider

    def _check_type(self, tp: Any, provider: Provider) -> None:
        why = None
        if tp in self._server_classes or (isinstance(tp, type) and issubclass(tp, context_class())):
            why = "every function can take that anyway"
        elif tp in _PLAIN_TYPES or typing.get_origin(tp) in _PLAIN:
            why = "that is an argument's type: give it a type of its own, or take it by Depends"
        elif typing.get_origin(tp) in (typing.Union, types.UnionType):
            why = "one of several types would not be found by the parameters"
        if why is not None:
            raise DependencyError(f"{provider} cannot provide {type_name(tp)}: {why}")

    def find(self, annotation: Any, parameter: inspect.Parameter, where: str) -> Provider | None:
        """The provider of what a parameter takes; None for an argument.

        DependencyError: it cannot be provided.
        """
        provider = self._found(annotation, parameter, where)
        if provider is not None:
            try:
                self._link(provider, ())
            except DependencyError as exc:
                raise DependencyError(f"{where}: {exc}") from None
        return provider

    def check(self) -> None:
        """Check all providers, also unused ones. DependencyError: one cannot be provided."""
        for provider in list(self._by_type.values()):
            self._link(provider, ())

    def _found(self, annotation: Any, parameter: inspect.Parameter, where: str) -> Provider | None:
        mark = dependency_of(annotation, parameter, where)
        if mark is not None:
            return self._provider_of(mark)
        return self._of_type(_bare(annotation))

    def _of_type(self, annotation: Any) -> Provider | None:
        try:
            provider = self._by_type.get(annotation)
        except TypeError:  # it cannot be hashed
            return None
        if provider is None and typing.get_origin(annotation) in (typing.Union, types.UnionType):
            members = [tp for tp in typing.get_args(annotation) if tp is not type(None)]
            if len(members) == 1:
                return self._of_type(_bare(members[0]))
        return provider

    def _provider_of(self, mark: Dependency) -> Provider:
        for key in ((mark.function, mark.scope), (mark.function, None)):
            provider = self._by_function.get(key)
            if provider is not None and mark.scope in (None, provider.scope):
                return provider
        scope = Scope.REQUEST if mark.scope is None else mark.scope
        provider = Provider(mark.function, scope, mark.inline, self.service.threads)
        self._by_function[mark.function, mark.scope] = provider
        return provider

    def _link(self, provider: Provider, above: tuple[Provider, ...]) -> None:
        """Find the sources of a provider, and of its sources. ``above``: the providers that use
        it."""
        if provider in above:
            circle = [*above[above.index(provider) :], provider]
            raise DependencyError(f"a cycle: {' takes from '.join(map(str, circle))}")
        if provider.needs is None:

            def find(tp: Any, parameter: inspect.Parameter, where: str) -> Source | None:
                if tp in self._server_classes:
                    return Given.SERVER
                found = self._found(tp, parameter, where)
                if found is not None:
                    self._link(found, (*above, provider))
                return found

            provider.link(find)

    # -- functions that take something -------------------------------------------------------------

    def bind(self, spec: InspectedFunction, injected: Mapping[int, Provider]) -> Injection:
        """Turn a function's spec into that of a coroutine function which takes the arguments and,
        last, the context. ``injected``: the providers of its parameters, by their index."""
        injection = Injection(self, spec, injected)
        injection.take_over(spec)
        return injection

    # -- what lives longer than a request ----------------------------------------------------------

    def server_scope(self) -> Shared:
        """The values of the server. RuntimeError: the server is not served."""
        life = self.service.life
        if life is None:
            raise RuntimeError(
                f"{self.service!r} is not served, so it has no values of scope 'server': "
                "serve it, or enter `server.running()`"
            )
        return life.shared

    def connection_scope(self, connection: Serving) -> Shared:
        """The values of a connection; ConnectionClosed when it is over."""
        shared = self._connections.get(connection)
        if shared is None:
            if connection.link is None:
                raise ConnectionClosed("the connection is over")
            life = self.service.life
            context = contextvars.Context() if life is None else life.context
            shared = self._connections[connection] = Shared(
                Scope.CONNECTION,
                self.service.server,
                self.server_scope,
                context,
                self.service.shutdown_grace,
            )
            connection.closed.add_done_callback(
                functools.partial(self._connection_over, connection), context=context
            )
        return shared

    def _connection_over(self, connection: Serving, closed: asyncio.Future[None]) -> None:
        shared = self._connections.pop(connection)
        task = connection.loop.create_task(shared.aclose(), name="wirespeed connection's end")
        self.endings.add(task)
        task.add_done_callback(self.endings.discard)

    async def connections_over(self) -> None:
        """Wait until the values of all connections are torn down."""
        await asyncio.sleep(0)  # let connections that were lost in this turn begin their end
        if self.endings:
            timeout = self.service.shutdown_grace + LAST_WAIT
            _, late = await asyncio.wait(list(self.endings), timeout=timeout)
            for task in late:
                task.cancel()
            if late:
                logger.error("the values of %d connections were not torn down in time", len(late))
                await asyncio.wait(late, timeout=LAST_WAIT)


class Injection:
    """A function with the dependencies that it takes besides its arguments.

    ``inline``: whether a plain function runs on the loop's thread.
    """

    __slots__ = ("_dependencies", "_function", "_launch", "_layout", "_names", "_order", "_plain")

    def __init__(
        self, dependencies: Dependencies, spec: InspectedFunction, injected: Mapping[int, Provider]
    ) -> None:
        self._dependencies = dependencies
        self._function = spec.function
        self._names = spec.kwnames
        self._launch = launchers.launcher_of(spec)
        self._plain = self._launch == spec.threads.in_thread
        # what goes where: a provider, the context, or the index among the arguments
        n_arguments = len(spec.fields)
        arguments = iter(range(n_arguments))
        n = n_arguments + len(injected) + (spec.context_index >= 0)
        self._layout: list[tuple[bool, Any]] = []
        for index in range(n):
            if index in injected:
                self._layout.append((True, injected[index]))
            elif index == spec.context_index:
                self._layout.append((True, Given.CONTEXT))
            else:
                self._layout.append((False, next(arguments)))
        self._order = _in_order(injected.values())

    def take_over(self, spec: InspectedFunction) -> None:
        """Let the spec be that of a coroutine function of its arguments and the context."""
        call = self.call

        async def injected(*values: Any) -> Any:
            return await call(values)

        spec.replace_function(injected)
        spec.positional, spec.kwnames = spec.fields, ()
        spec.context_param, spec.context_index = "context", len(spec.fields)

    def run_inline(self) -> bool:
        """Call it on the loop's thread; False if it is not a plain function."""
        if self._plain:
            self._launch = launchers.at_once
        return self._plain

    async def call(self, values: tuple[Any, ...]) -> Any:
        """Make what is injected, call, and tear down what ends with the request."""
        context: HandlerContext = values[-1]
        exits = Exits(context._call)
        try:
            try:
                result = await self._work(values, context, exits)
            except GeneratorExit:
                raise  # nothing can be awaited now
            except BaseException as exc:
                await exits.unwind(exc)
                raise
            if exits.entered:
                await exits.unwind(None)
            return result
        finally:
            exits.leave_shared()

    async def _work(self, values: tuple[Any, ...], context: HandlerContext, exits: Exits) -> Any:
        got: dict[Any, Any] = {
            Given.CONTEXT: context,
            Given.SERVER: self._dependencies.service.server,
        }
        for provider in self._order:
            if provider.scope is not Scope.REQUEST:
                shared = self._scope_of(provider, context._call.connection, exits)
                value = shared.values.get(provider, MISSING)
                got[provider] = await shared.get(provider) if value is MISSING else value
                continue
            taken = [got[source] for _, source in provider.needs or ()]
            if provider.is_resource:
                got[provider] = await exits.enter(provider, taken)
            else:
                got[provider] = await provider.call(taken)
        vector = [got[what] if given else values[what] for given, what in self._layout]
        return await self._launch(self._function, vector, self._names)

    def _scope_of(self, provider: Provider, connection: Any, exits: Exits) -> Shared:
        if provider.scope is Scope.SERVER:
            return self._dependencies.server_scope()
        shared = self._dependencies.connection_scope(connection)
        exits.use(shared)
        return shared


def _in_order(providers: Iterable[Provider]) -> tuple[Provider, ...]:
    """The providers of a request, each after the providers that it uses."""
    order: dict[Provider, None] = {}

    def visit(provider: Provider) -> None:
        if provider not in order:
            for _, source in provider.needs or ():
                # values of wider scopes are made in their scope
                if isinstance(source, Provider) and provider.scope is Scope.REQUEST:
                    visit(source)
            order[provider] = None

    for provider in providers:
        visit(provider)
    return tuple(order)


def _bare(annotation: Any) -> Any:
    """A type without its `Annotated` metadata."""
    return annotation.__origin__ if typing.get_origin(annotation) is Annotated else annotation
