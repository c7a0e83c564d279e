"""The work of ``wirespeed bench``: the calls of a tool, or the users of a file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from wirespeed.cli.failures import printable, usage
from wirespeed.cli.features.arguments import read_json
from wirespeed.cli.targets import FOREVER
from wirespeed.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from wirespeed import Client
    from wirespeed.bench.load import Load
    from wirespeed.bench.replay import Replay
    from wirespeed.bench.run import Run
    from wirespeed.bench.script import Scripts
    from wirespeed.bench.series import Watch
    from wirespeed.bench.users import Place, Value
    from wirespeed.bench.work import Work
    from wirespeed.cli.session import Options
    from wirespeed.client.connection.handshake import Era
    from wirespeed.litemcp import Tool

_EXAMPLE = 'write the arguments as in \'{"text": "$text:64"}\''


@dataclass(frozen=True)
class Side:
    """A target that can be measured.

    Attributes:
        handshake: Seconds for the handshake.
        lite: Whether it speaks LiteMCP.
    """

    endpoint: Any
    era: Era
    handshake: float
    lite: bool


def side_of(options: Options, own: bool) -> Side:
    """Return a target. Failure: it is another machine, and its owner is not asked (``own``)."""
    from wirespeed import Stdio
    from wirespeed.bench.command_line import shown_without_secrets

    target = options.target()
    endpoint = target.endpoint
    _check_owner(endpoint, own)
    if isinstance(endpoint, Stdio):
        endpoint = shown_without_secrets(endpoint)
    handshake = options.time_limit(target) or float("inf")
    era = cast("Era", options.era or target.era)
    return Side(endpoint, era, handshake, options.lite)


def _check_owner(endpoint: Any, own: bool) -> None:
    from wirespeed.transport.address import is_loopback

    address = getattr(endpoint, "address", None)
    if address is None or own or not address.host or is_loopback(address.host):
        return
    raise usage(f"{address.host} is another machine: a load on it needs --i-own-this-target")


class BenchWork:
    """The base of what is to be done on a target. Subclasses define `work` and `_wanted`.

    Attributes:
        remarks: What the user should know after the runs.
        again: Makes the same in another process: it can be pickled.
    """

    again: Callable[[], BenchWork]

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self._of_lite: dict[int, Tool] = {}  # by the id of the side

    def check_load(self, load: Load) -> None:
        """Look for faults for every target. Failure (2): there is one."""
        self.work(load)

    def run(self, side: Side, load: Load, pids: Sequence[int] | None, watch: Watch) -> Run | Replay:
        """Return a run on a target."""
        from wirespeed.bench.run import Run

        return Run(
            side.endpoint,
            self.work(load, side),
            load,
            era=side.era,
            handshake_timeout=side.handshake,
            pids=pids,
            lite=side.lite,
            watch=watch,
        )

    def work(self, load: Load, side: Side | None = None) -> Work | Scripts:
        """Return the work of a run. Failure (2): it is not possible. Without a ``side`` only faults
        for every target are found."""
        raise NotImplementedError

    def _wanted(self) -> list[Work]:
        """Return all requests."""
        raise NotImplementedError

    async def check(self, side: Side, load: Load) -> None:
        """Start a server once, for a look at its tools. Failure (2): it does not have a tool or a
        method that is wanted."""
        if side.lite:
            self._of_lite[id(side)] = tool = await _lite_tool(side)
            _check_names(self._wanted(), [tool.name])
            self.work(load, side)
            return
        from wirespeed import Client
        from wirespeed.protocol.revisions import REVISIONS

        async with Client(
            side.endpoint, era=side.era, timeout=side.handshake, name="wirespeed-bench"
        ) as client:
            if "tools" in client.server_capabilities:
                _check_names(self._wanted(), await _names(client))
            revision = REVISIONS[client.protocol_version]
        for work in self._wanted():
            if work.method not in revision.requests:
                raise usage(f"the server speaks {revision.version}, which has no {work.method}")

    def _arrange(
        self, side: Side | None, value: Value, expected: str | None
    ) -> tuple[Value, Place]:
        """Return the arguments that are sent, and the one that is expected back. ValueError: they
        do not fit the parameters of a tool of LiteMCP."""
        tool = None if side is None else self._of_lite.get(id(side))
        if tool is None:
            return value, expected
        from wirespeed.bench.lite import place_of, template_of

        place = None if expected is None else place_of(tool, expected)
        return template_of(tool, value), place


class ToolCalls(BenchWork):
    """The calls of one tool.

    Failure (2): JSON or the expected answer is wrong.
    """

    def __init__(self, tool: str, text: str | None, expect: str, lite: bool) -> None:
        from wirespeed.bench.expect import read_expect

        super().__init__()
        self._tool = tool
        self._value: Value = {}
        if text is not None:
            kinds = (dict, list) if lite else (dict,)
            expected = "an array or an object" if lite else "an object"
            _, self._value = read_json(text, kinds, expected, _EXAMPLE)
        try:
            self._expected = read_expect(expect, whole=lite)
        except ValueError as exc:
            raise usage(f"--expect: {exc}") from None
        self.again = partial(ToolCalls, tool, json.dumps(self._value), expect, lite)

    def work(self, load: Load, side: Side | None = None) -> Work:
        """Return the calls of a run."""
        from wirespeed.bench.arguments import Arguments
        from wirespeed.bench.plan import with_text
        from wirespeed.bench.work import Work

        value = self._value
        if load.bytes is not None:
            value = with_text(value, load.bytes)
            if value == self._value:
                raise usage('--bytes is the size of "$text", which is not in JSON')
        expected = self._expected.echo
        try:
            value, place = self._arrange(side, value, expected)
            if isinstance(value, list) and side is None:
                place = None  # of a parameter, whose place only the server knows
            arguments = Arguments(value, place, load.seed, side is not None and side.lite)
        except ValueError as exc:
            raise usage(f"JSON: {exc}") from None
        except OSError as exc:
            raise usage(f"JSON: cannot read {exc.filename}: {exc.strerror}") from None
        return Work(self._tool, arguments, self._expected.check)

    def _wanted(self) -> list[Work]:
        from wirespeed.bench.work import Work

        return [Work(self._tool, None)]


class UsersCalls(BenchWork):
    """The users of a file. Failure (2): the file is wrong."""

    def __init__(self, path: str, lite: bool) -> None:
        from wirespeed.bench.users import UsersFile

        super().__init__()
        try:
            self._file = UsersFile(path, lite=lite)
        except ConfigError as exc:
            raise usage(str(exc)) from None
        self.again = partial(UsersCalls, path, lite)

    def work(self, load: Load, side: Side | None = None) -> Scripts:
        """Return the users of a run."""
        if load.bytes is not None:
            raise usage('--bytes is the size of "$text" in JSON, and not for --users')
        try:
            return self._file.scripts(
                load.seed, lambda tool, value, expected: self._arrange(side, value, expected)
            )
        except ConfigError as exc:
            raise usage(str(exc)) from None

    def _wanted(self) -> list[Work]:
        return self._file.scripts().works()


async def _lite_tool(side: Side) -> Tool:
    from wirespeed.cli.lite import ask
    from wirespeed.litemcp import LiteClient

    seconds = min(side.handshake, FOREVER)
    async with LiteClient(side.endpoint, timeout=seconds) as client:
        return await ask(client)


async def _names(client: Client) -> list[str]:
    return [tool.name for tool in await client.list_tools()]


def _check_names(works: Iterable[Work], names: list[str]) -> None:
    for work in works:
        if work.tool is not None and work.tool not in names:
            shown = ", ".join(map(printable, names[:20])) or "none"
            raise usage(f"there is no tool {printable(work.tool)}; there are {shown}")
