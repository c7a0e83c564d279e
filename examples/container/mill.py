"""A server that any number of hosts run."""

import os

from wirespeed import Server

# Without WIRESPEED_CLUSTER, or `wirespeed serve --cluster`, it is a server of one host.
server = Server(
    "mill",
    version="1.0.0",
    state_secret=os.environ["MILL_SECRET"].encode(),
    shutdown_grace=20,
)


@server.tool
async def grind(bags: int) -> str:
    """Grind bags of grain."""
    return f"{bags} bags of flour"
