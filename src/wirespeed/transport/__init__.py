"""Links, which move bytes between streams and wires, and pools of tasks, for authors of SDKs and
proxies.

An `Endpoint` owns a wire (a `wirespeed.core.Session`, a `wirespeed.core.FrameStream`) and takes its
events. A `Link` moves the bytes between that wire and a stream: `FdLink` for pipes and sockets,
`FileLink` for files and terminals, a pair of `MemoryLink` in one process, or one of your own. A
`TaskPool` runs handlers in asyncio tasks. A `Child` is a process with its pipes. What
`wirespeed.serve` serves at a URL is a `Service`, which connects an endpoint to each client.

All of this runs on the thread of its event loop. ``from wirespeed.transport cimport Link`` works in
Cython code.
"""

from __future__ import annotations

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)


def __dir__() -> list[str]:
    return sorted(__all__)
