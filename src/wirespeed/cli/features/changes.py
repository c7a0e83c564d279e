"""``wirespeed subscribe``: changes of a server, a line each."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from wirespeed.cli.failures import Exit, Failure, complain, print_json, printable, usage
from wirespeed.cli.features.media import write_text
from wirespeed.cli.session import Options, connected, run

if TYPE_CHECKING:
    from wirespeed import Client
    from wirespeed.types import SubscriptionFilter

_LISTS = ("tools", "prompts", "resources")


def subscribe(
    options: Options,
    uris: Sequence[str],
    lists: Sequence[str],
    *,
    count: int | None,
    read: bool,
    as_json: bool,
) -> int:
    """Print changes until a signal, or until ``count`` changes.

    read: Print the contents of a resource that changed.
    """
    if read and not uris:
        raise usage("--read is for the changes of a resource: give its URI")
    return run(_subscribe(options, uris, lists, count, read, as_json))


async def _subscribe(
    options: Options,
    uris: Sequence[str],
    lists: Sequence[str],
    count: int | None,
    read: bool,
    as_json: bool,
) -> int:
    async with connected(options) as client:
        if not uris and not lists:
            lists = [name for name in _LISTS if _reports(client, name)]
            if not lists:
                raise Failure(
                    "the server reports no changes of lists; give the URI of a resource",
                    Exit.REMOTE,
                    "Unsupported",
                )
        wanted: Any = dict.fromkeys(lists, True)
        async with client.subscribe(**wanted, uris=uris) as events:
            _introduce(events.wanted, events.honoured)
            number = 0
            async for event in events:
                number += 1
                _print(event, as_json)
                uri = getattr(event, "uri", None)
                if read and uri is not None:
                    write_text((await client.read_resource(uri)).text)
                sys.stdout.flush()
                if number == count:
                    return Exit.OK
                await asyncio.sleep(0)
    complain("the server ended the subscription", level="note")
    return Exit.OK


def _reports(client: Client, name: str) -> bool:
    declared = client.server_capabilities.get(name)
    return isinstance(declared, dict) and declared.get("listChanged") is True


def _introduce(wanted: SubscriptionFilter, honoured: SubscriptionFilter | None) -> None:
    """Say what is watched, and what the server does not report."""
    kept = wanted if honoured is None else honoured
    names = [name for name in _LISTS if getattr(kept, name)] + list(kept.uris)
    complain(printable(f"watching {', '.join(names) or 'nothing'}; Ctrl-C ends it"), level="note")
    lost = [name for name in _LISTS if getattr(wanted, name) and not getattr(kept, name)]
    lost += [uri for uri in wanted.uris if uri not in kept.uris]
    if lost:
        complain(printable(f"the server does not report {', '.join(lost)}"), level="warning")


def _print(event: Any, as_json: bool) -> None:
    import msgspec

    kind = _WORDS[type(event).__name__]
    now = datetime.now().astimezone().isoformat(timespec="milliseconds")
    members = msgspec.to_builtins(event)
    if as_json:
        print_json({"time": now, "event": type(event).__name__, **members})
        return
    about = members.get("uri") or members.get("method") or ""
    print(f"{now[11:23]}  {kind}{' ' if about else ''}{printable(str(about))}")


_WORDS = {
    "ToolsChanged": "the list of tools changed",
    "PromptsChanged": "the list of prompts changed",
    "ResourcesChanged": "the list of resources changed",
    "ResourceUpdated": "changed",
    "Resumed": "connected again; changes in between are not known",
    "Overflowed": "too many changes at once; some are not shown",
    "Notice": "notification",
}
