"""Middleware that many servers need, for `wirespeed.Server.add_middleware`.

A name is loaded when it is first used.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
