"""A program of a peer under one of our adapters, in the peer's own environment.

python under_adapter.py PLACE ADAPTER PROGRAM [ARGUMENT …]    (PLACE: a folder that has `wirespeed`)
"""

import importlib
import sys

sys.path.insert(1, sys.argv[1])
adapter = f"wirespeed.adapters.{sys.argv[2]}"

from wirespeed.adapters.programs import main  # noqa: E402

main(adapter, importlib.import_module(adapter).install, "mcp", sys.argv[3:])
