"""What moves bytes between streams and wires, and runs handlers, for authors of SDKs and proxies.

An `Endpoint` owns a wire (a `wirespeed.core.Session`, a `wirespeed.core.FrameStream`) and takes its
events. A `Link` moves the bytes between that wire and a stream: `FdLink` for pipes and sockets,
`FileLink` for files and terminals, a pair of `MemoryLink` in one process, or one of your own. A
`TaskPool` runs handlers in asyncio tasks. A `Child` is a process with its pipes. What
`wirespeed.serve` serves at a URL is a `Service`, which connects an endpoint to each client.

All of this runs on the thread of its event loop. ``from wirespeed.transport cimport Link`` works in
Cython code.
"""

from __future__ import annotations

from wirespeed._exports import TYPE_CHECKING, exports

if TYPE_CHECKING:  # isort: off
    from wirespeed.transport.child.process import Child as Child
    from wirespeed.transport.fd import FdLink as FdLink
    from wirespeed.transport.files import FileLink as FileLink
    from wirespeed.transport.link import Endpoint as Endpoint, Link as Link
    from wirespeed.transport.memory import MemoryLink as MemoryLink, pair as pair
    from wirespeed.transport.service import (
        Connection as Connection,
        Peer as Peer,
        Service as Service,
    )
    from wirespeed.transport.stdio import (
        claimed as claimed,
        non_blocking as non_blocking,
        pollable as pollable,
    )
    from wirespeed.transport.taskpool import Running as Running, TaskPool as TaskPool
    from wirespeed.transport.taskpool_choice import close_pool as close_pool, open_pool as open_pool
else:  # type checkers would take any name
    __all__, __getattr__ = exports(__name__)

    def __dir__() -> list[str]:
        return sorted(__all__)
