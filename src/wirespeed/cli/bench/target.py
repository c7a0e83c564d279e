"""``wirespeed bench-target``: serves a tool to measure against, on stdio or at URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.cli.failures import usage

if TYPE_CHECKING:
    from wirespeed.bench.faults import Delay
    from wirespeed.cli.serve import Settings


def bench_target(
    urls: tuple[str, ...],
    *,
    tools: int,
    size: int,
    delay: str | None,
    progress: int,
    settings: Settings,
    log_level: str | None,
    log_format: str | None,
) -> int:
    """Serve until the client leaves, or the process is told to end. Failure (2): an option is
    wrong."""
    from wirespeed.bench.target import make_server
    from wirespeed.cli.log_lines import set_up_log
    from wirespeed.cli.serve import places_of, serve_at

    set_up_log(log_level, log_format)
    server = make_server(tools=tools, size=size, delay=_delay(delay), progress=progress)
    places = places_of(urls, settings, "--on")
    if places:
        serve_at([(place, server) for place in places], settings.workers)
    else:
        server.run()
    return 0


def _delay(text: str | None) -> Delay | None:
    from wirespeed.bench.faults import Delay

    if text is None:
        return None
    try:
        return Delay(text)
    except ValueError as exc:
        raise usage(f"--delay: {exc}") from None
