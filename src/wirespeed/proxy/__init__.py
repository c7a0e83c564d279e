"""Many clients on few servers: see `Proxy`.

The module of a name is loaded at the first use of the name.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
