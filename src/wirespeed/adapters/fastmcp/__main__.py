"""A program on FastMCP, unchanged: ``python -m wirespeed.adapters.fastmcp PROGRAM …``."""

import sys

from wirespeed.adapters.fastmcp.installation import install
from wirespeed.adapters.programs import main

main("wirespeed.adapters.fastmcp", install, "fastmcp", sys.argv[1:])
