"""The two tools of a search in place of a list (`ToolSearch`) at one endpoint of the proxy.

A call by ``call_tool`` becomes the call of the tool that it names, before any check. A search
becomes ``tools/list`` in the same way, so it finds only tools that the client may see.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.revisions import META_SERVER_INFO
from wirespeed.proxy.own_requests import MAX_PAGES, modern_version, own_info, params_of
from wirespeed.tool_search import ToolIndex, text_of
from wirespeed.transport.rate_limited_log import RateLimitedLog

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.tool_search import ToolSearch

quiet = RateLimitedLog(logging.getLogger("wirespeed.proxy"))

# Indexes that are kept, one for each different list of tools.
MAX_INDEXES = 16

_members = msgspec.json.Decoder(dict[str, Raw]).decode
_entries = msgspec.json.Decoder(list[Raw]).decode


class _Named(msgspec.Struct):
    name: str


_named = msgspec.json.Decoder(_Named).decode


class MetaTools:
    """The two tools at one endpoint, for all its clients.

    Attributes:
        config: Their names, and the tools that lists show besides.
        names: Their names as JSON text.
        n_searches: The number of searches.
        n_calls: The number of calls by ``call_tool``.
    """

    def __init__(self, config: ToolSearch) -> None:
        self.config = config
        self.names = frozenset(
            msgspec.json.encode(name) for name in (config.search_name, config.call_name)
        )
        self.n_searches = 0
        self.n_calls = 0
        self._own = [Raw(msgspec.json.encode(one)) for one in config.entries()]
        self._indexes: list[tuple[list[bytes], ToolIndex]] = []  # the last used is the first

    @property
    def counts(self) -> dict[str, int]:
        """The counts so far, for the status."""
        return {"searches": self.n_searches, "calls": self.n_calls}

    def expanded(self, downstream: Downstream, message: Message) -> Message | None:
        """Return the request that takes the place of a call; None: the call was answered. A call
        of any other tool is returned as it is."""
        name = message.text("params.name")
        if name == self.config.call_name:
            try:
                params = self.config.called(message.params or b"{}")
            except ProtocolError as exc:
                downstream.refuse(message, exc.code, exc.message)
                return None
            self.n_calls += 1
            return downstream.instead(message, "tools/call", params)
        if name != self.config.search_name:
            return message
        began = time.monotonic()
        try:
            query, limit = self.config.asked(message.lease("params.arguments"))
        except ValueError as exc:
            answer_search(downstream, message, str(exc), began, is_error=True)
            return None
        self.n_searches += 1
        search = _Search(self, message, query, limit, began)
        downstream.give_result_to(message, search)
        return search.page(downstream, message.ref)

    def filter(
        self, inner: Callable[[Any], bytes] | None, message: Message
    ) -> Callable[[Any], bytes]:
        """Return the filter for a page of the list. ``inner``: The filter that leaves out tools
        which this client may not see; None: it may see all. ``message``: The request for the
        page."""
        return partial(self._shown, inner, params_of(message).get("cursor") is None)

    def _shown(self, inner: Callable[[Any], bytes] | None, is_first: bool, text: Any) -> bytes:
        result = _page(text if inner is None else inner(text))
        kept = list(self._own) if is_first else []
        for entry, name in entries_of(result):
            if self.config.shows(name) and not self.config.is_own(name):
                kept.append(entry)
        result.pop("digest", None)  # that of the server's list
        return msgspec.json.encode({**result, "tools": kept})

    def index(self, pages: list[Raw]) -> ToolIndex:
        """Return the index of a list. It is made once for equal lists."""
        texts = [bytes(page) for page in pages]  # compared faster than a digest is made
        places = (place for place, (kept, _) in enumerate(self._indexes) if kept == texts)
        place = next(places, None)
        if place is not None:
            _, found = self._indexes.pop(place)
        else:
            tools = [
                msgspec.json.decode(entry)
                for page in pages
                for entry, name in entries_of({"tools": page})
                if not self.config.is_own(name)
            ]
            found = ToolIndex(tools)
        self._indexes.insert(0, (texts, found))
        del self._indexes[MAX_INDEXES:]
        return found


def _page(text: Any) -> dict[str, Raw]:
    """Decode a page of a server's list. ProtocolError: it is not valid, which is logged."""
    try:
        return _members(text)
    except msgspec.DecodeError as exc:
        quiet.log(logging.WARNING, "the list of tools of a server is not valid: %s", exc)
        text = "the list of tools of the server is not valid"
        raise ProtocolError(codes.INTERNAL_ERROR, text) from None


def entries_of(result: dict[str, Raw]) -> list[tuple[Raw, str]]:
    """Return the tools of a page and their names. Entries without a name are left out: they cannot
    be called."""
    found = []
    try:
        for entry in _entries(result.get("tools", Raw(b"[]"))):
            try:
                found.append((entry, _named(entry).name))
            except msgspec.ValidationError:
                continue
    except msgspec.ValidationError:
        pass  # not a list
    return found


class _Search:
    """A search: it takes the pages of the list, in place of the client."""

    def __init__(
        self, tools: MetaTools, message: Message, query: str, limit: int, began: float
    ) -> None:
        self._tools = tools
        self._message = message
        self._query = query
        self._limit = limit
        self._began = began
        self._pages: list[Raw] = []
        self._cursors: list[str | None] = [None]
        self._n_bytes = 0

    def page(self, downstream: Downstream, ref: int) -> Message:
        """Return the request for the next page."""
        meta = _members(self._message.params or b"{}").get("_meta")
        params: dict[str, Any] = {} if meta is None else {"_meta": meta}
        if self._cursors[-1] is not None:
            params["cursor"] = self._cursors[-1]
        text = msgspec.json.encode(params)
        return downstream.instead(self._message, "tools/list", text, ref)

    def take(self, downstream: Downstream, ref: int, text: Any) -> None:
        """Take a page."""
        assert downstream.takers is not None
        del downstream.takers[ref]
        result = _page(text)
        self._pages.append(result.get("tools", Raw(b"[]")))
        self._n_bytes += len(text)
        cursor: Any = msgspec.json.decode(result.get("nextCursor", b"null"))
        if (
            isinstance(cursor, str)
            and cursor
            and cursor not in self._cursors
            and len(self._cursors) < MAX_PAGES
        ):
            if self._n_bytes > downstream.service.limits.max_message:
                downstream.refuse(self._message, codes.OVERLOADED, "the list of tools is too long")
                return
            self._cursors.append(cursor)
            message = self.page(downstream, ref)
            downstream.give_result_to(message, self)
            downstream.forward(message)
            return
        found = self._tools.index(self._pages).search(self._query, self._limit)
        answer_search(downstream, self._message, text_of(found), self._began)


def answer_search(
    downstream: Downstream, message: Message, text: str, began: float, *, is_error: bool = False
) -> None:
    """Answer a search with a text, and note it as a call that the proxy has answered."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": text}]}
    if is_error:
        result["isError"] = True
    if modern_version(message) is not None:
        result |= {"resultType": "complete", "_meta": {META_SERVER_INFO: own_info()}}
    body = msgspec.json.encode(result)
    if downstream.audit is not None:
        downstream.audit.answer(downstream, message, len(body), time.monotonic() - began)
    downstream.answer(message, body)
