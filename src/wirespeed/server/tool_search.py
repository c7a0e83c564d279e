"""The search of a server in place of the list of its tools: see `Server.use_tool_search`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import ToolError
from wirespeed.protocol.revisions import fit_tool
from wirespeed.server.tools.results import ToolResult
from wirespeed.tool_search import ToolIndex, text_of

if TYPE_CHECKING:
    from wirespeed._core.slab import Lease
    from wirespeed.server.catalog import Shows
    from wirespeed.server.context import Context
    from wirespeed.server.service import McpService
    from wirespeed.tool_search import ToolSearch

MAX_INDEXES = 16  # that are kept, one for each different list of tools


class ServerToolSearch:
    """The search of one server, and its two tools.

    Attributes:
        config: Their names, and the tools that lists show besides.
        names: Their names as JSON text.
    """

    def __init__(self, service: McpService, config: ToolSearch) -> None:
        self.config = config
        self.names = frozenset(
            msgspec.json.encode(name) for name in (config.search_name, config.call_name)
        )
        self._service = service
        self._indexes: dict[tuple[str, ...], ToolIndex] = {}
        self._n_changes = -1  # of the tools at the time of the indexes

    def register(self) -> None:
        """Register the two tools. ValueError: the server has a tool of one of these names."""
        config, tools = self.config, self._service.tools
        handlers = {config.search_name: self._search, config.call_name: self._call}
        for name in handlers:
            if name in tools:
                raise ValueError(f"there is a tool {name!r} already: give ToolSearch another name")
        for entry in config.entries():
            name = entry["name"]
            tools.register_raw(
                name,
                entry["inputSchema"],
                handlers[name],
                title=entry.get("title"),
                description=entry.get("description"),
                annotations=entry.get("annotations"),
                context=True,
            )

    def listed(self, shows: Shows | None) -> Shows:
        """Return the function that tells which tools ``tools/list`` shows, of those that a client
        sees."""
        return lambda key, entry: self.config.shows(key) and (shows is None or shows(key, entry))

    async def _search(self, arguments: Lease, context: Context) -> ToolResult:
        try:
            query, limit = self.config.asked(arguments)
        except ValueError as exc:
            raise ToolError(str(exc)) from None
        shows = self._service.visibility.of("tools", context._call)
        seen = {
            key: entry
            for key, entry in self._service.tools.entries()
            if not self.config.is_own(key) and (shows is None or shows(key, entry))
        }
        found = self._index(seen).search(query, limit)
        version = context.protocol_version
        return ToolResult(content=text_of(fit_tool(dict(one), version) for one in found))

    def _index(self, seen: dict[str, Any]) -> ToolIndex:
        if self._n_changes != self._service.tools.n_changes:
            self._n_changes = self._service.tools.n_changes
            self._indexes.clear()
        key = tuple(seen)
        found = self._indexes.get(key)
        if found is None:
            if len(self._indexes) >= MAX_INDEXES:
                self._indexes.clear()
            found = ToolIndex(msgspec.to_builtins(entry) for entry in seen.values())
            self._indexes[key] = found
        return found

    async def _call(self, arguments: Lease, context: Context) -> ToolResult:
        """Refuse a call from within the server. A client's request becomes the call of the tool
        that it names (`ServerConnection`)."""
        raise ToolError("call the tool by its own name")
