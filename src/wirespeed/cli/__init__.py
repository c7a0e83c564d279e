"""The command line: ``wirespeed``, or ``python -m wirespeed``. No library code imports it.

`app` is the grammar (click); the other modules do the work and are loaded when their command runs.
"""

from __future__ import annotations


def main() -> None:
    """Run the command line of this process; never returns."""
    import sys

    try:
        from wirespeed.cli.app import run

        status = run(sys.argv[1:])
    except KeyboardInterrupt:  # before or after click's own care
        status = 130
    raise SystemExit(status)
