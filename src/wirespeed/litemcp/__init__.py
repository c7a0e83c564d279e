"""LiteMCP 1.0.0: servers with one tool per endpoint, their clients, and bridges to MCP.

See `LiteServer` and `LiteClient`; `wirespeed.litemcp.bridge` joins the two protocols. The module of
a name is loaded at the first use of the name.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
