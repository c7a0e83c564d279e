"""Authorization of MCP over HTTP (OAuth 2.1): what a server checks, how a client logs in.

The module of a name is loaded at the first use of the name. What checks and signs JWTs needs
``pip install 'wirespeed[auth]'``.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
