"""Skills of several servers as one list (``io.modelcontextprotocol/skills``).

URIs have the name of the server before their path (`wirespeed.proxy.merge.skill_uris`): in entries,
in their files, in folders and in contents. The last segment stays the name of the skill, digests
stay those of the files, and relative references resolve as before; absolute URIs within the text of
a file do not.

A server that fails costs its own skills. An entry that is not valid is left out.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError, WirespeedError, shortened
from wirespeed.protocol import codes
from wirespeed.proxy.merge.lists import modern as modern_rest
from wirespeed.proxy.merge.lists import ttl_of
from wirespeed.proxy.merge.member import text_of
from wirespeed.proxy.merge.skill_uris import merged_settings, settings_of, shown_entry, shown_uri
from wirespeed.proxy.own_requests import pages, params_of
from wirespeed.proxy.upstream import ServerLost
from wirespeed.server.catalog import page_of
from wirespeed.skills.model import (
    DIRECTORY_READ,
    GET,
    LIST,
    READ_DIRECTORY,
)

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.merge.catalog import MergedCatalog
    from wirespeed.proxy.merge.client import MergedClient, Params
    from wirespeed.proxy.merge.member import Hello, Offer

PAGE = 100  # entries, where pages of other lists are larger

_encode = msgspec.json.Encoder().encode
_members = msgspec.json.Decoder(dict[str, Raw]).decode
_dict = msgspec.json.Decoder(dict[str, Any]).decode
_dicts = msgspec.json.Decoder(list[dict[str, Any]]).decode


class SkillListing(NamedTuple):
    """The skills of one server: their entries as clients see them, by URI; what the server says
    of keeping them, and until when they are kept."""

    entries: dict[str, Raw]
    hints: dict[str, Any]
    until: float


class MergedSkills:
    """The requests of one client for skills and their files."""

    def __init__(self, client: MergedClient) -> None:
        self._client = client
        self._kept: dict[str, SkillListing] = {}  # where the client is alone on its connection

    def forget(self) -> None:
        """The configuration has changed: servers are asked again."""
        self._kept.clear()

    def may_have(self, uri: str | None) -> bool:
        """Whether a URI begins with the name of a server, as those of skills do."""
        return uri is not None and self._place(uri) is not None

    def _place(self, uri: str) -> tuple[Offer, str] | None:
        """The server that a URI names, and the URI as the server knows it."""
        scheme, slashes, rest = uri.partition("://")
        name, _, path = rest.partition("/")
        if not slashes or not path:
            return None
        for offer in self._client.offers:
            if offer.service.name == name:
                return offer, f"{scheme}://{path}"
        return None

    # -- skills/list -------------------------------------------------------------------------------

    async def listed(self, message: Message, params: Params, modern: bool) -> bytes:
        """Answer with one page of the skills of all servers that the client may use."""
        client = self._client
        cursor = params.get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            raise ProtocolError(codes.INVALID_PARAMS, "cursor must be a string")
        catalog = client.catalog_of(message, modern)
        hellos = await client.meet(catalog)
        offers = [one for one in client.offers if _settings(hellos, one) is not None]
        if not offers:
            raise ProtocolError(codes.METHOD_NOT_FOUND, f"Method not found: {LIST}")
        found = await asyncio.gather(*(self._listing(one, catalog, modern) for one in offers))
        entries: dict[str, Raw] = {}
        parts: list[dict[str, Any]] = []
        for listing in found:
            parts.append({} if listing is None else listing.hints)
            if listing is not None:
                entries |= listing.entries
        if len(hellos) < len(client.offers):
            parts.append({})
        page = page_of(list(entries.items()), cursor, min(client.merged.page_size, PAGE))
        result: dict[str, Any] = {"skills": page.entries}
        if page.next_cursor is not None:
            result["nextCursor"] = page.next_cursor
        if modern:
            result |= modern_rest(parts)
            if client.merged.access is not None:
                result["cacheScope"] = "private"
        return _encode(result)

    async def _listing(
        self, offer: Offer, catalog: MergedCatalog, modern: bool
    ) -> SkillListing | None:
        """What a server lists; None: it does not now, which is logged once."""
        client, name = self._client, offer.service.name
        now = client.downstream.loop.time()
        for kept in (self._kept, catalog.skills):
            listing = kept.get(name)
            if listing is not None and now < listing.until:
                return listing
        try:
            member = client.member(offer)
            if not modern:
                member = await client.ready(member)
            params = {"_meta": catalog.envelope} if modern else {}
            most = client.downstream.service.limits.max_message
            found = await pages(member.ask, LIST, params, most)
        except WirespeedError as exc:
            client.merged.complain(name, "skills", text_of(exc))
            return None
        client.merged.complain(name, "skills", None)
        listing = self._taken(name, found, now)
        if listing.hints["cacheScope"] == "public":
            catalog.skills[name] = listing
        elif not client.downstream.shared:
            self._kept[name] = listing
        return listing

    def _taken(self, name: str, found: list[dict[str, Any]], now: float) -> SkillListing:
        """The valid entries of all pages."""
        entries: dict[str, Raw] = {}
        faults: dict[str, str] = {}
        for page in found:
            listed = page.get("skills")
            for entry in listed if isinstance(listed, list) else ():
                try:
                    shown = shown_entry(name, entry)
                except ValueError as exc:
                    uri = entry.get("uri") if isinstance(entry, dict) else None
                    faults[repr(uri)[:100]] = str(exc)
                else:
                    entries.setdefault(shown["uri"], Raw(_encode(shown)))
        self._client.merged.leave_out(name, "skills", faults)
        ttl = min(map(ttl_of, found), default=0)
        public = bool(found) and all(page.get("cacheScope") == "public" for page in found)
        hints = {"ttlMs": ttl, "cacheScope": "public" if public else "private"}
        return SkillListing(entries, hints, now + ttl / 1000)

    # -- skills/get, resources/directory/read, resources/read --------------------------------------

    async def pass_on(self, message: Message, modern: bool) -> None:
        """Pass a request on to the server that its URI names, by the server's own URI."""
        client, method = self._client, message.method or ""
        uri = message.text("params.uri")
        if uri is None:
            raise ProtocolError(codes.INVALID_PARAMS, "params.uri must be a string")
        hellos = await client.meet(client.catalog_of(message, modern))
        declared = merged_settings(hello["capabilities"] for hello in hellos.values())
        if method != "resources/read" and (
            declared is None or (method == READ_DIRECTORY and DIRECTORY_READ not in declared)
        ):
            raise ProtocolError(codes.METHOD_NOT_FOUND, f"Method not found: {method}")
        found = self._place(uri)
        if found is None:
            raise ProtocolError(codes.INVALID_PARAMS, f"No skill is served at {shortened(uri)}")
        offer, real = found
        name = offer.service.name
        if name not in hellos:
            raise ServerLost(f"the server {name} is not there")
        if _settings(hellos, offer) is None:
            if method == "resources/read":  # it is a resource of a server after all
                await client.read_any(message, uri, modern)
                return
            raise ProtocolError(codes.INVALID_PARAMS, f"No skill is served at {shortened(uri)}")
        _, upstream = await client.joined_to(offer, modern)
        params = {**params_of(message), "uri": real}
        text = {"jsonrpc": "2.0", "id": 0, "method": method, "params": params}
        client.downstream.pass_request(
            message, upstream, text=_encode(text), after=partial(_shown, name, method)
        )


def _settings(hellos: dict[str, Hello], offer: Offer) -> dict[str, Any] | None:
    hello = hellos.get(offer.service.name)
    return None if hello is None else settings_of(hello["capabilities"])


def _shown(server: str, method: str, answer: Message) -> Any:
    """The answer of a server with the URIs that clients know. ProtocolError: it is not valid."""
    if answer.result is None:
        return answer
    try:
        members = _members(answer.result)
        if method == GET:
            skill = shown_entry(server, _dict(members["skill"]))
            members["skill"] = Raw(_encode(skill))
        else:
            key = "contents" if method == "resources/read" else "resources"
            shown = [{**one, "uri": shown_uri(server, one["uri"])} for one in _dicts(members[key])]
            members[key] = Raw(_encode(shown))
    except (KeyError, ValueError, msgspec.DecodeError, AttributeError) as exc:
        text = f"the answer of the server {server} to {method} is not valid: {exc}"
        raise ProtocolError(codes.INTERNAL_ERROR, text) from exc
    return _encode(members)
