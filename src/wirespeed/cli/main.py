"""The entry point of the command line: ``wirespeed``, or ``python -m wirespeed``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and end the process with its exit code."""
    try:
        _open_closed_streams()
        from wirespeed.cli.app import run

        status = run(sys.argv[1:])
    except ModuleNotFoundError as exc:
        if exc.name != "click":
            raise
        from wirespeed.cli.failures import report

        status = report(exc, json=False, debug=False)
    except KeyboardInterrupt:  # before or after click handles it
        status = 130
    raise SystemExit(status)


def _open_closed_streams() -> None:
    """Open the null device in place of a standard stream that is closed (``2>&-``). Otherwise the
    next file that is opened would get the stream's file descriptor."""
    import os

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115
