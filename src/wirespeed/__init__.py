"""wirespeed: a compiled protocol engine for MCP, the Model Context Protocol.

>>> from wirespeed import Server
>>> server = Server("calculator", version="1.0.0")
>>> @server.tool
... async def add(a: int, b: int) -> int:
...     \"\"\"Add two numbers.\"\"\"
...     return a + b

``server.run()`` then serves it over stdio. What a path needs is loaded when it is needed.
"""

from __future__ import annotations

from wirespeed._exports import TYPE_CHECKING, exports

if TYPE_CHECKING:  # isort: off
    from wirespeed import (
        config as config,
        core as core,
        errors as errors,
        transport as transport,
        types as types,
    )
    from wirespeed.client.answering.progress import report_progress as report_progress
    from wirespeed.client.client import Client as Client
    from wirespeed.client.sync import SyncClient as SyncClient
    from wirespeed.client.targets.remote import (
        Http as Http,
        Socket as Socket,
        WebSocket as WebSocket,
    )
    from wirespeed.client.tasks.calls import TASKS as TASKS
    from wirespeed.client.timeouts import CLIENT_DEFAULT as CLIENT_DEFAULT
    from wirespeed.limits import Limits as Limits
    from wirespeed.schema.header_param import HeaderParam as HeaderParam
    from wirespeed.server.context import Context as Context
    from wirespeed.server.dependencies.provider import Depends as Depends
    from wirespeed.server.extensions import Extension as Extension
    from wirespeed.server.http.event_store import (
        EventStore as EventStore,
        MemoryEventStore as MemoryEventStore,
    )
    from wirespeed.server.http.sqlite_events import SQLiteEventStore as SQLiteEventStore
    from wirespeed.server.server import Server as Server
    from wirespeed.transport.child.command import Stdio as Stdio
    from wirespeed.transport.child.privileges import ProcessLimits as ProcessLimits
    from wirespeed.transport.http.options import HttpOptions as HttpOptions
    from wirespeed.transport.http.response import HttpResponse as HttpResponse
    from wirespeed.transport.net.serve import run as run, serve as serve
    from wirespeed.transport.options import (
        HttpRequest as HttpRequest,
        ListenOptions as ListenOptions,
        Refusal as Refusal,
        User as User,
    )
else:  # type checkers would take any name
    _names, __getattr__ = exports(__name__)
    __all__ = [*_names, "__version__", "core", "get_include", "transport", "types"]

    def __dir__() -> list[str]:
        return sorted(__all__)


__version__ = "0.1.0"


def get_include() -> str:
    """The directory of the C headers that the ``.pxd`` files of `wirespeed` include.

    It belongs in ``include_dirs`` of an extension module that cimports `wirespeed`.
    """
    import os

    package = os.path.dirname(os.path.abspath(__file__))
    include = os.path.join(package, "include")
    if os.path.isdir(include):
        return include
    return os.path.join(os.path.dirname(package), "csrc")  # an editable install
