"""Numbers that the store keeps for users and addresses, whom its keys do not name."""

from __future__ import annotations

import hmac
from typing import Any

from wirespeed.cluster.clients import Script
from wirespeed.cluster.store import Cluster


class OwnerNumbers:
    """The numbers of one kind, such as rates.

    Args:
        cluster: The store. It is held from the first `ask` on, until `close`.
        kind: The kind, with which keys begin.
        name: The name of the server.
        secret: The same bytes on all hosts: keys have HMAC-SHA256 digests of owners, with a key
            that is derived from the secret.
    """

    def __init__(self, cluster: Cluster, kind: str, name: str, secret: bytes) -> None:
        self._cluster = cluster
        self._kind = kind
        self._name = name
        context = b"wirespeed owners of %bs 1\0" % kind.encode()
        key = context + name.encode("utf-8", "surrogatepass")
        self._secret = hmac.digest(secret, key, "sha256")

    async def ask(self, script: Script, owner: bytes, *args: str | bytes | int) -> Any:
        """Run a script on the key of an owner. ProtocolError as of `Cluster.run`."""
        self._cluster.hold(self)
        digest = hmac.digest(self._secret, owner, "sha256").hex()[:32]
        base = self._cluster.base(f"{self._kind}1", self._name, digest)
        return await self._cluster.run(script, base, *args)

    async def close(self) -> None:
        """Let the connection go."""
        await self._cluster.release(self)
