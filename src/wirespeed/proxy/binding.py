"""The binding of a connection: where its requests go. Only `Side.bind` sets it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.side import AdmissionControl, Choice, Side, Translation

Functions: TypeAlias = "dict[str, Callable[[Any, Message], None]]"

_NONE: Functions = {}


class Binding(NamedTuple):
    """A state of a connection. It never changes: the connection gets another one.

    The functions below that begin with ``to_`` name the states of a client. Each makes the whole
    state, so nothing is left of the one before.

    Attributes:
        router: What is shown each request that does not go on at once (`Router`); None: the owner
            of the server.
        across: The side that requests are passed to; None: they are refused.
        admits_legacy, admits_modern: Whether requests of these eras go to `across` at once.
        requests: Functions by method, for the requests of legacy eras that the proxy answers
            itself. Each gets the side and the message.
        choice: What chooses between servers before the router does, for requests of 2026-07-28.
        translation: What edits requests and answers; None: nothing does.
        admission: What decides when requests are passed on; None: at once.
        refusal: The code and text of the error that all requests get; None: they are read.
        on_drain: Called before the proxy waits for the last requests; None: nothing is called.
    """

    router: Any = None
    across: Side | None = None
    admits_legacy: bool = False
    admits_modern: bool = False
    requests: Functions = _NONE
    choice: Choice | None = None
    translation: Translation | None = None
    admission: AdmissionControl | None = None
    refusal: tuple[int, str] | None = None
    on_drain: Callable[[], None] | None = None

    # -- of a client -----------------------------------------------------------------------------

    @classmethod
    def to_router(
        cls, router: Any, admission: AdmissionControl | None, refusal: tuple[int, str] | None = None
    ) -> Binding:
        """Return the state without a server, in which the router is shown each request: it refuses
        the request, lets it wait, answers it or finds a server.

        ``refusal``: What requests get instead.
        """
        return cls(router, admission=admission, refusal=refusal)

    @classmethod
    def to_pool(
        cls,
        router: Any,
        admission: AdmissionControl | None,
        requests: Functions,
        choice: Choice | None,
    ) -> Binding:
        """Return the state of a client of a pool before it says ``initialize``: a server is chosen
        for each request."""
        return cls(router, requests=requests, choice=choice, admission=admission)

    @classmethod
    def to_modern(
        cls,
        router: Any,
        admission: AdmissionControl | None,
        requests: Functions,
        across: Side | None,
        translation: Translation | None,
        *,
        passes: bool,
    ) -> Binding:
        """Return the state of a client of 2026-07-28 whose pool has one server.

        ``passes``: Whether requests go on at once.
        """
        return cls(
            router,
            across,
            admits_modern=passes,
            requests=requests,
            translation=translation,
            admission=admission,
        )

    @classmethod
    def to_legacy(
        cls,
        router: Any,
        admission: AdmissionControl | None,
        requests: Functions,
        across: Side | None,
        translation: Translation | None,
        refusal: tuple[int, str] | None,
        *,
        passes: bool,
    ) -> Binding:
        """Return the state of a client of a legacy era that has one server of a pool for good.

        ``passes``: Whether requests go on at once.
        """
        return cls(
            router,
            across,
            passes,
            requests=requests,
            translation=translation,
            admission=admission,
            refusal=refusal,
        )

    @classmethod
    def to_own(
        cls,
        router: Any,
        admission: AdmissionControl | None,
        requests: Functions,
        *,
        legacy: bool,
        modern: bool,
    ) -> Binding:
        """Return the state of a client that waits for a server of its own (`joined_to`).

        ``legacy``, ``modern``: Whether requests of these eras go on at once then.
        """
        return cls(router, None, legacy, modern, requests, admission=admission)

    @classmethod
    def to_translator(
        cls,
        router: Any,
        admission: AdmissionControl | None,
        requests: Functions,
        on_drain: Callable[[], None],
    ) -> Binding:
        """Return the state of a client of an era that its server does not speak. The translator is
        the router."""
        return cls(router, requests=requests, admission=admission, on_drain=on_drain)

    @classmethod
    def to_merged(cls, router: Any, on_drain: Callable[[], None]) -> Binding:
        """Return the state of a client of several servers that has subscriptions."""
        return cls(router, on_drain=on_drain)

    # -- of a server -----------------------------------------------------------------------------

    @classmethod
    def to_client(cls, client: Side | None) -> Binding:
        """Return the state of a server of one client: the client is asked. None: it has not come
        yet, and what the server asks is refused."""
        return cls(across=client, admits_legacy=True, admits_modern=True)

    # -- what follows ----------------------------------------------------------------------------

    def joined_to(self, across: Side) -> Binding:
        """Return the state in which requests go to a side."""
        return self._replace(across=across)

    def lost(self) -> Binding:
        """Return the state in which the side across is gone."""
        return self._replace(across=None)

    def admitting(self, *, legacy: bool | None = None, modern: bool | None = None) -> Binding:
        """Return the state in which requests of an era go on at once, or do not; None: as now."""
        return self._replace(
            admits_legacy=self.admits_legacy if legacy is None else legacy,
            admits_modern=self.admits_modern if modern is None else modern,
        )

    def translated(self, translation: Translation | None) -> Binding:
        """Return the state in which requests are edited in another way."""
        return self._replace(translation=translation)


# That of a server of many clients, and of one without any: its owner is shown what it asks.
UNBOUND = Binding()
