"""A DNS server on this machine, whose answers change."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Literal

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

MAX_UDP = 512


class Nameserver:
    """A nameserver.

    Attributes:
        address: Its IP address and port.
        ttl: Of its answers.
        fault: What it answers in place of records. ``silent``: nothing.
        faulty: The types of records to which ``fault`` applies; empty: all.
        faulty_names: The names to which it applies; empty: all.
        asked: The queries that it had, by type; ``tcp``: those over TCP.
    """

    def __init__(self) -> None:
        self.address = ""
        self.ttl = 0
        self.fault: Literal["", "servfail", "refused", "nxdomain", "silent", "garbage"] = ""
        self.faulty: set[str] = set()
        self.faulty_names: set[str] = set()
        self.asked: Counter[str] = Counter()
        self._records: dict[tuple[str, str], list[str]] = {}

    def have(self, name: str, kind: str, *records: str) -> None:
        """Have these records of a name from now on."""
        self._records[f"{name}.", kind] = list(records)

    def answer(self, query: bytes, *, tcp: bool) -> bytes | None:
        """Return the answer to a query; None: there is none."""
        message = dns.message.from_wire(query)
        question = message.question[0]
        name, kind = question.name, dns.rdatatype.to_text(question.rdtype)
        self.asked[kind] += 1
        self.asked["tcp"] += tcp
        answer = dns.message.make_response(message)
        answer.use_edns(False)
        is_faulty = (
            self.fault
            and (not self.faulty or kind in self.faulty)
            and (not self.faulty_names or name.to_text()[:-1] in self.faulty_names)
        )
        if is_faulty and self.fault == "silent":
            return None
        if is_faulty and self.fault == "garbage":
            return query[:2] + b"\xff" * 40
        known = {one for one, _ in self._records}
        if is_faulty:
            answer.set_rcode(dns.rcode.from_text(self.fault.upper()))
        elif name.to_text() not in known:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif found := self._records.get((name.to_text(), kind)):
            answer.answer.append(dns.rrset.from_text(name, self.ttl, "IN", kind, *found))
        wire = answer.to_wire()
        if len(wire) > MAX_UDP and not tcp:
            answer.answer.clear()
            answer.flags |= dns.flags.TC
            wire = answer.to_wire()
        return wire


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: Nameserver) -> None:
        self._server = server
        self._transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        answer = self._server.answer(data, tcp=False)
        if answer is not None:
            self._transport.sendto(answer, addr)


@contextlib.asynccontextmanager
async def nameserver() -> AsyncIterator[Nameserver]:
    """A nameserver that answers meanwhile."""
    found = Nameserver()
    loop = asyncio.get_running_loop()

    async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, OSError):
            while True:
                size = int.from_bytes(await reader.readexactly(2), "big")
                answer = found.answer(await reader.readexactly(size), tcp=True)
                if answer is not None:
                    writer.write(len(answer).to_bytes(2, "big") + answer)
        writer.close()

    streams = await asyncio.start_server(accepted, "127.0.0.1", 0)
    port = streams.sockets[0].getsockname()[1]
    datagrams, _ = await loop.create_datagram_endpoint(
        lambda: _Datagrams(found), local_addr=("127.0.0.1", port)
    )
    found.address = f"127.0.0.1:{port}"
    try:
        yield found
    finally:
        datagrams.close()
        streams.close()
