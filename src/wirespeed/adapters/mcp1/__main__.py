"""A program on `mcp` 1.x, unchanged: ``python -m wirespeed.adapters.mcp1 PROGRAM …``."""

import sys

from wirespeed.adapters.mcp1.installation import install
from wirespeed.adapters.programs import main

main("wirespeed.adapters.mcp1", install, "mcp", sys.argv[1:])
