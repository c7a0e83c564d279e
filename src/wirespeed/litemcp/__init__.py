"""LiteMCP 1.0.0: servers with one tool per endpoint, their clients, and bridges to MCP.

See `LiteServer` and `LiteClient`; `wirespeed.litemcp.bridge` joins the two protocols. The module of
a name is loaded at the first use of the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed._exports import exports

if TYPE_CHECKING:  # isort: off
    from wirespeed.litemcp.client import LiteClient as LiteClient
    from wirespeed.litemcp.messages import (
        CallResult as CallResult,
        Content as Content,
        Parameter as Parameter,
        Response as Response,
        Tool as Tool,
        VersionTuple as VersionTuple,
    )
    from wirespeed.litemcp.server import LiteServer as LiteServer, run as run, serve as serve
    from wirespeed.litemcp.sync import SyncLiteClient as SyncLiteClient
else:  # type checkers would take any name
    __all__, __getattr__ = exports(__name__)
