"""The requests of a record as the work of ``wirespeed bench``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from wirespeed.cli.bench.work import BenchWork
from wirespeed.cli.failures import cannot_start, complain, printable, usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from wirespeed.bench.load import Load
    from wirespeed.bench.replay import Replay
    from wirespeed.bench.series import Watch
    from wirespeed.cli.bench.work import Side


class ReplayCalls(BenchWork):
    """The requests of a record.

    Attributes:
        load: The load that they are.

    Failure (2 or 3): the file is not a record, or cannot be read; there is no request in it.
    """

    def __init__(
        self,
        path: str,
        speed: float | Literal["max"],
        expect: str | None,
        timeout: float,
        lite: bool,
    ) -> None:
        from wirespeed.bench.recorded_calls import connections_of
        from wirespeed.bench.replay import load_of
        from wirespeed.bench.tap_file import BadRecord, read_record

        super().__init__()
        if lite:
            raise usage("--lite is not for --replay: records have messages of MCP")
        if expect not in (None, "any"):
            raise usage("--expect is any with --replay; without it answers are those of the record")
        try:
            header, messages = read_record(path)
        except BadRecord as exc:
            raise usage(printable(str(exc))) from None
        except OSError as exc:
            raise cannot_start(f"cannot read {printable(path)}: {exc.strerror}") from None
        try:
            self._parts = connections_of(header, messages)
        except BadRecord as exc:
            raise usage(printable(f"{path}, {exc}")) from None
        if not any(step.asks for part in self._parts for step in part.steps):
            raise usage(f"{printable(path)} has no request that a client could ask again")
        self._any = expect == "any" or header.redacted
        if header.redacted and expect is None:
            complain(
                "the record is redacted: answers are compared by their kind alone", level="note"
            )
        self._speed = None if speed == "max" else speed
        self.load: Load = load_of(self._parts, timeout)

    def check_load(self, load: Load) -> None:
        """The record was checked."""

    async def check(self, side: Side, load: Load) -> None:
        """A server that cannot be started is found before the first request."""

    def run(self, side: Side, load: Load, pids: Sequence[int] | None, watch: Watch) -> Replay:
        """Return a replay on a target."""
        from wirespeed.bench.replay import Replay

        return Replay(
            side.endpoint,
            self._parts,
            load,
            speed=self._speed,
            any_answer=self._any,
            era=None if side.era == "auto" else side.era,
            handshake_timeout=side.handshake,
            pids=pids,
            watch=watch,
            remarks=self.remarks,
        )
