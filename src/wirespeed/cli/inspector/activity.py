"""Activity of the person on the page: calls of tools, reads of resources, and prompts.

Each use has its progress, time and result. The last ones are kept, with the parts of their results
that are shown.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET

from wirespeed.cli import show
from wirespeed.cli.failures import Failure, describe, printable
from wirespeed.errors import HandlerFailed, WirespeedError
from wirespeed.protocol.blocks import Audio, EmbeddedResource, Image, ResourceLink, Text
from wirespeed.protocol.results import (
    CallToolResult,
    GetPromptResult,
    ReadResourceResult,
)

if TYPE_CHECKING:
    from wirespeed.client.requests.send import OnProgress

MAX_USES = 30  # that are kept
MAX_RUNNING = 20  # at once
MAX_TEXT = 50_000  # characters of a text that are shown
MAX_TITLE = 4_000  # characters of the title of a part, and of a URI that can be read from the page
MAX_TEXTS = 200_000  # characters of all parts of a result that are shown
MAX_PARTS = 50  # of a result that are shown
MAX_BYTES = 4 << 20  # of the images and sounds of a result that are kept
WITH_BYTES = 5  # uses; older ones keep their texts alone

# Types that a browser shows without running scripts in them, so without SVG.
_SHOWN_TYPES = {
    *("image/png", "image/jpeg", "image/gif", "image/webp"),
    *("audio/mpeg", "audio/wav", "audio/ogg", "audio/mp4", "audio/webm", "audio/flac"),
}


class ShownPart(NamedTuple):
    """A part of a result.

    Attributes:
        kind: text, json, link, image, audio or bytes.
        title: The heading.
        text: The text.
        uri: The URI of a resource that can be read from the page.
        data: The bytes, which the browser asks for; None if there are none, or they are not kept
            any more.
        media_type: The type of the bytes.
    """

    kind: str
    title: str = ""
    text: str = ""
    uri: str = ""
    data: bytes | None = None
    media_type: str = ""


@dataclass(eq=False)
class Use:
    """One use of the server.

    Attributes:
        number: Its number in this process.
        kind: tool, resource, template or prompt.
        name: The name of the tool or prompt, or the URI.
        arguments: The arguments, as JSON for people.
        began: When it began, in Unix seconds.
        state: running, done, failed (a result that is an error), error or cancelled.
        seconds: The time until the result.
        progress: The last progress: the value, the total or None, and the message.
        parts: The parts of the result.
        error: The reason, if there is no result.
        changes: The number of its changes.
    """

    number: int
    kind: str
    name: str
    arguments: str
    began: float
    state: str = "running"
    seconds: float = 0.0
    progress: tuple[float, float | None, str] | None = None
    parts: list[ShownPart] = field(default_factory=list)
    error: str = ""
    changes: int = 0
    task: asyncio.Task[None] | None = None


class TimingRow(NamedTuple):
    """Statistics of one tool, resource or prompt: its uses that have ended, and their times."""

    kind: str
    name: str
    n: int
    median: float
    most: float
    failed: int


class Activity:
    """The last uses, the newest first.

    Args:
        changed: Called when one of them changed.
    """

    def __init__(self, changed: Callable[[], object]) -> None:
        self.uses: deque[Use] = deque()
        self._changed = changed
        self._numbers = count(1)

    def find(self, number: int) -> Use | None:
        """Return a use by its number."""
        return next((one for one in self.uses if one.number == number), None)

    @property
    def n_running(self) -> int:
        """The number of uses that run."""
        return sum(one.state == "running" for one in self.uses)

    def begin(
        self,
        kind: str,
        name: str,
        arguments: bytes,
        work: Callable[[OnProgress], Awaitable[Any]],
    ) -> Use:
        """Use the server in a task. ``work``: A coroutine function that sends the request. It gets
        the callback for progress."""
        use = Use(next(self._numbers), kind, name, _pretty(arguments), time.time())
        self.uses.appendleft(use)
        ended = [one for one in self.uses if one.state != "running"]
        for old in ended[MAX_USES - 1 :]:
            self.uses.remove(old)
        for old in ended[WITH_BYTES - 1 :]:
            old.parts = [one._replace(data=None) for one in old.parts]
        use.task = asyncio.get_running_loop().create_task(self._run(use, work))
        self._changed()
        return use

    async def _run(self, use: Use, work: Callable[[OnProgress], Awaitable[Any]]) -> None:
        def on_progress(progress: float, total: float | None, message: str | None) -> None:
            use.progress = progress, total, _cut(message or "", 500)
            self._touch(use)

        began = time.perf_counter()
        try:
            result = await work(on_progress)
            use.seconds = time.perf_counter() - began
            use.parts = _bounded(parts_of(result))
            use.state = "failed" if getattr(result, "is_error", False) else "done"
        except asyncio.CancelledError:
            use.state = "cancelled"
            raise
        except Exception as exc:  # the person sees it
            use.state, use.error = "error", _cut(_reason(exc), MAX_TEXT)
        finally:
            use.seconds = use.seconds or time.perf_counter() - began
            use.progress = None if use.state == "done" else use.progress
            self._touch(use)

    def _touch(self, use: Use) -> None:
        use.changes += 1
        self._changed()

    def cancel(self, number: int) -> bool:
        """Cancel a use, and tell the server. Returns whether the use was running."""
        use = self.find(number)
        if use is None or use.task is None or use.task.done():
            return False
        use.task.cancel()
        return True

    async def close(self) -> None:
        """Cancel all uses that run."""
        tasks = [one.task for one in self.uses if one.task is not None and not one.task.done()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def timings(self) -> list[TimingRow]:
        """Return the statistics of all uses that have ended, the slowest first."""
        by_name: dict[tuple[str, str], list[Use]] = {}
        for one in self.uses:
            if one.state in ("done", "failed", "error"):
                by_name.setdefault((one.kind, one.name), []).append(one)
        rows = [
            TimingRow(
                *key,
                len(found),
                statistics.median(one.seconds for one in found),
                max(one.seconds for one in found),
                sum(one.state != "done" for one in found),
            )
            for key, found in by_name.items()
        ]
        return sorted(rows, key=lambda row: -row.median)


def _reason(exc: Exception) -> str:
    """Return why there is no result, with the end of the server's stderr."""
    if isinstance(exc, HandlerFailed) and isinstance(exc.__cause__, Failure):
        exc = exc.__cause__
    if isinstance(exc, TypeError | ValueError) and not isinstance(exc, WirespeedError):
        return printable(str(exc), lines=True)  # the request was not sent
    text, stderr = describe(exc)
    return "\n".join([text, *map(printable, stderr)])


def _pretty(arguments: bytes) -> str:
    """Return JSON for people; "" for no arguments."""
    if arguments in (b"", b"{}"):
        return ""
    return _cut(msgspec.json.format(arguments, indent=2).decode(), MAX_TEXT)


def _cut(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}…\n({len(text):,} characters, the rest is not shown)"


# -- results --------------------------------------------------------------------------------------


def parts_of(result: Any) -> Iterator[ShownPart]:
    """Yield the parts of a result."""
    if isinstance(result, CallToolResult):
        for block in result.content:
            yield _block(block)
        if result.structured_content is not UNSET:
            yield _json("structured content", result.structured_content)
    elif isinstance(result, ReadResourceResult):
        for one in result.contents:
            yield _block(EmbeddedResource(resource=one))
    elif isinstance(result, GetPromptResult):
        if result.description:
            yield ShownPart("text", "description", _cut(result.description, MAX_TEXT))
        for message in result.messages:
            part = _block(message.content)
            yield part._replace(title=f"{message.role} {part.title}".strip())
    if meta := getattr(result, "meta", None):
        yield _json("_meta", meta)


def _json(title: str, value: Any) -> ShownPart:
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return ShownPart("json", title, _cut(text, MAX_TEXT))


def _block(block: Any) -> ShownPart:
    if isinstance(block, Text):
        return ShownPart("text", "", _cut(block.text, MAX_TEXT))
    if isinstance(block, Image | Audio):
        return _media(bytes(block.data), block.mime_type, "")
    if isinstance(block, EmbeddedResource):
        resource = block.resource
        if isinstance(resource.text, str):
            title = f"{resource.uri} {resource.mime_type or ''}".rstrip()
            return ShownPart("text", title, _cut(resource.text, MAX_TEXT))
        data = resource.blob if isinstance(resource.blob, bytes) else b""
        return _media(data, resource.mime_type or "application/octet-stream", resource.uri)
    if isinstance(block, ResourceLink):
        return ShownPart("link", show.block_text(block), uri=block.uri)
    return _json("a kind of content that this version does not know", getattr(block, "data", None))


def _media(data: bytes, media_type: str, name: str) -> ShownPart:
    plain = media_type.partition(";")[0].strip().lower()
    kind = plain.partition("/")[0] if plain in _SHOWN_TYPES else "bytes"
    title = f"{name} {media_type}, {show.plural(len(data), 'byte')}".strip()
    return ShownPart(kind, title, data=data, media_type=plain)


def _bounded(parts: Iterable[ShownPart]) -> list[ShownPart]:
    """Return the parts that are kept, cut to the limits."""
    kept: list[ShownPart] = []
    left, left_texts = MAX_BYTES, MAX_TEXTS
    for number, part in enumerate(parts):
        part = part._replace(title=_cut(part.title, MAX_TITLE))
        if len(part.uri) > MAX_TITLE:  # too long to be asked for
            part = part._replace(kind="text", uri="")
        left_texts -= len(part.text)
        if number == MAX_PARTS or left_texts < 0:
            kept.append(ShownPart("text", "", "(further parts are not shown)"))
            break
        if part.data is not None and len(part.data) > left:
            part = part._replace(data=None)
        left -= len(part.data or b"")
        kept.append(part)
    return kept
