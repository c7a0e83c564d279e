"""A program of a peer under one of our adapters, in the peer's own environment.

python under_adapter.py PLACE ADAPTER PROGRAM [ARGUMENT …]    (PLACE: a folder that has `wirespeed`)

An SDK that the adapter does not know is an error: else the program would run on stock.
"""

import importlib
import sys

sys.path.insert(1, sys.argv[1])
adapter = f"wirespeed.adapters.{sys.argv[2]}"

from wirespeed.adapters.programs import main  # noqa: E402


def install() -> None:
    if not importlib.import_module(adapter).install():
        sys.exit(f"{adapter} does not know this version of the SDK")


main(adapter, install, "mcp", sys.argv[3:])
