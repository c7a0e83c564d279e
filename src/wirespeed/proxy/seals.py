"""Seals of the ids of tasks, so that nobody gets another's task by guessing an id.

A client gets the server's id behind a seal, which stands for the principal of the client. So a task
needs no memory here. The key is made with the process: forked workers have it, too.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os

from wirespeed.tasks.views import not_found

_KEY = os.urandom(32)
_SEAL = 22  # characters: 128 bits


class Seals:
    """The seals of one server.

    Args:
        server: Its name.
    """

    def __init__(self, server: str) -> None:
        self._server = server.encode("utf-8", "surrogatepass")

    def seal(self, task_id: str, principal: bytes | None) -> str:
        """Return what a client gets for a server's id. ``principal``: The digest of the client's;
        None: it has none."""
        owner = b"" if principal is None else b"\x01" + principal
        text = b"".join(len(one).to_bytes(4) + one for one in (self._server, owner))
        digest = hmac.digest(_KEY, text + task_id.encode("utf-8", "surrogatepass"), hashlib.sha256)
        return base64.urlsafe_b64encode(digest).decode()[:_SEAL] + task_id

    def open(self, id: str, principal: bytes | None) -> str:
        """Return the server's id of a client's task. ProtocolError -32602: the client has no such
        task (2025-11-25 basic/utilities/tasks, "Task Isolation and Access Control")."""
        task_id = id[_SEAL:]
        given = id.encode("utf-8", "surrogatepass")
        sealed = self.seal(task_id, principal).encode("utf-8", "surrogatepass")
        if not hmac.compare_digest(sealed, given):
            raise not_found()
        return task_id
