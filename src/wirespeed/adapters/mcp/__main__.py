"""Run a program of the SDK unchanged: ``python -m wirespeed.adapters.mcp PROGRAM …``."""

import sys

from wirespeed.adapters.mcp import install
from wirespeed.adapters.programs import main

if __name__ == "__main__":
    main("wirespeed.adapters.mcp", install, "mcp", sys.argv[1:])
