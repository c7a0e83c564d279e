"""Where the process of the command line begins: ``wirespeed``, or ``python -m wirespeed``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line of this process; never returns."""
    try:
        _open_what_is_closed()
        from wirespeed.cli.app import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # before or after click's own care
        status = 130
    raise SystemExit(status)


def _open_what_is_closed() -> None:
    """Open an empty stream in place of a standard stream that is closed (``2>&-``): else the
    next file that is opened would get its number."""
    import os

    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            fd = os.open(os.devnull, os.O_RDWR)
            if fd != number:
                os.dup2(fd, number)
                os.close(fd)
            setattr(sys, name, open(number, "w" if number else "r"))  # noqa: SIM115
