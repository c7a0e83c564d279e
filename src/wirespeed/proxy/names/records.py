"""The DNS records of a name, by dnspython. This module alone imports dnspython."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import dns.asyncresolver
import dns.exception
import dns.nameserver
import dns.rdatatype
import dns.resolver

from wirespeed.errors import TransportError

MAX_TARGETS = 100  # SRV records whose targets are looked up
_AT_ONCE = 16  # queries
_FAMILIES = ("A", "AAAA")


class Place(NamedTuple):
    """A place where a server listens.

    Attributes:
        ip: Its IP address.
        port: Its port; None: the records do not say.
        priority, weight: As of SRV records (RFC 2782).
    """

    ip: str
    port: int | None = None
    priority: int = 0
    weight: int = 1


class Answer(NamedTuple):
    """The result of a look-up.

    Attributes:
        places: The places; none: the name does not exist, or has no such records.
        ttl: Seconds for which the records may be kept.
    """

    places: tuple[Place, ...]
    ttl: float


class NameRecords:
    """Looks a name up: its A and AAAA records, or its SRV records and the addresses of their
    targets.

    Args:
        name: The name. Without ``nameservers``, a relative one is completed by the search list of
            ``/etc/resolv.conf``.
        is_srv: Whether SRV records are asked for.
        nameservers: The IP addresses and ports of the nameservers; none: those of
            ``/etc/resolv.conf``, which is read for each look-up.
    """

    def __init__(self, name: str, *, is_srv: bool, nameservers: Sequence[tuple[str, int]]) -> None:
        self._name = name
        self._is_srv = is_srv
        self._nameservers = nameservers
        # What each query was answered last. It stands for a query that fails beside others.
        self._last: dict[tuple[str, str], dns.resolver.Answer | None] = {}

    async def look_up(self, timeout: float) -> Answer:
        """Ask once. TransportError: no server gave an answer within ``timeout`` seconds."""
        before, self._last = self._last, {}
        try:
            async with asyncio.timeout(timeout):
                return await self._look_up(_Queries(self._resolver(timeout), before, self._last))
        except TimeoutError:
            reason = f"no answer within {timeout:g} s"
        except dns.exception.DNSException as exc:
            reason = str(exc).rstrip(".") or type(exc).__name__
        except OSError as exc:
            reason = exc.strerror or str(exc)
        self._last = before
        raise TransportError(f"{self._name} cannot be looked up: {reason}")

    def _resolver(self, timeout: float) -> dns.asyncresolver.Resolver:
        resolver = dns.asyncresolver.Resolver(configure=not self._nameservers)
        if self._nameservers:
            resolver.nameservers = [
                dns.nameserver.Do53Nameserver(ip, port) for ip, port in self._nameservers
            ]
        resolver.lifetime = timeout
        return resolver

    async def _look_up(self, queries: _Queries) -> Answer:
        if not self._is_srv:
            return await queries.addresses(self._name, Place(""))
        found = await queries.ask(self._name, "SRV")
        if found is None or found.rrset is None:
            return Answer((), 0.0)
        # A target that is the root says that there is no such service.
        records = sorted(
            (one.priority, one.target.to_text(), one.port, one.weight)
            for one in found.rrset
            if one.target.labels != (b"",)
        )
        targets = [
            (target, Place("", port, priority, weight))
            for priority, target, port, weight in records[:MAX_TARGETS]
        ]
        asked = [queries.addresses(*one) for one in targets]
        results = await asyncio.gather(*asked, return_exceptions=True)
        if results and not any(isinstance(one, Answer) for one in results):
            raise _first_error(results)
        answers = [
            one if isinstance(one, Answer) else queries.last(*target)
            for one, target in zip(results, targets, strict=True)
        ]
        places = tuple(place for one in answers for place in one.places)
        return Answer(places, min([found.rrset.ttl, *(one.ttl for one in answers)]))


class _Queries:
    """The queries of one look-up."""

    def __init__(
        self,
        resolver: dns.asyncresolver.Resolver,
        before: dict[tuple[str, str], dns.resolver.Answer | None],
        now: dict[tuple[str, str], dns.resolver.Answer | None],
    ) -> None:
        self._resolver = resolver
        self._before = before
        self._now = now
        self._places = asyncio.Semaphore(_AT_ONCE)

    async def ask(self, name: str, kind: str) -> dns.resolver.Answer | None:
        """Return the answer; None: there is no such name. DNSException or OSError: no server gave
        one."""
        async with self._places:
            try:
                found = await self._resolver.resolve(
                    name, kind, raise_on_no_answer=False, search=True
                )
            except dns.resolver.NXDOMAIN:
                found = None
        self._now[name, kind] = found
        return found

    async def addresses(self, name: str, place: Place) -> Answer:
        """Return the addresses of a name, each with the port and the weight of ``place``. Where the
        query of one family fails, its last answer counts. DNSException or OSError: those of both
        failed."""
        results = await asyncio.gather(
            *(self.ask(name, kind) for kind in _FAMILIES), return_exceptions=True
        )
        if all(isinstance(one, BaseException) for one in results):
            raise _first_error(results)
        return self.last(name, place)

    def last(self, name: str, place: Place) -> Answer:
        """Return the same by the last answers."""
        ips: list[str] = []
        ttls = []
        for query in ((name, kind) for kind in _FAMILIES):
            found = self._now.setdefault(query, self._before.get(query))
            if found is not None and found.rrset is not None:
                ips += [one.address for one in found.rrset]
                ttls.append(float(found.rrset.ttl))
        return Answer(tuple(place._replace(ip=ip) for ip in ips), min(ttls, default=0.0))


def _first_error(results: Iterable[object]) -> BaseException:
    return next(one for one in results if isinstance(one, BaseException))
