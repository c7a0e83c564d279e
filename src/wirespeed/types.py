"""The values of the API: what handlers take and return, what clients receive, and their parts.

What makes servers and clients is in `wirespeed`, what they raise in `wirespeed.errors`. A name is
loaded when it is first used.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
