"""The roots of a client (client/roots of each revision)."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

from wirespeed.protocol.asking import Root

__all__ = ["AnyRoot", "Root", "Roots", "as_root"]

AnyRoot: TypeAlias = "Root | str | os.PathLike[str]"

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


def as_root(root: AnyRoot) -> Root:
    """A root from a path (relative to the current directory), a ``file://`` URI or a `Root`.

    ValueError: the root is not a path or an absolute ``file://`` URI, or the URI contains ``..``
    (clients must validate URIs: client/roots, "Security Considerations"). TypeError: the root is of
    another type.
    """
    if isinstance(root, Root):
        return root if root.uri == _checked(root.uri) else Root(_checked(root.uri), root.name)
    if isinstance(root, str) and _SCHEME.match(root) and not os.path.splitdrive(root)[0]:
        return Root(_checked(root))
    if not isinstance(root, (str, os.PathLike)):
        raise TypeError(f"a root is a path, a file:// URI or a Root, not {type(root).__name__}")
    path = os.fspath(root)
    if not isinstance(path, str) or not path or "\0" in path:
        raise ValueError(f"not a path: {path!r}")
    return Root(Path(os.path.abspath(path)).as_uri())


def _checked(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.scheme != "file" or not uri[5:].startswith("//"):
        raise ValueError(f"a root is a file:// URI or a path, not {uri!r}")
    if parts.query or parts.fragment:
        raise ValueError(f"the URI of a root cannot have a query or fragment: {uri!r}")
    path = unquote(parts.path)
    if not path.startswith("/") or "\0" in path:
        raise ValueError(f"the URI of a root needs an absolute path: {uri!r}")
    if ".." in re.split(r"[/\\]", path):
        raise ValueError(f"the URI of a root cannot have '..' in it: {uri!r}")
    return uri


class Roots:
    """A list of roots that can change, or a function that is called each time.

    The function takes no argument. It may be a coroutine function; a plain function runs in a
    worker thread.
    """

    def __init__(self, roots: Iterable[AnyRoot] | Callable[[], Any]) -> None:
        self.function: Callable[[], Any] | None = None
        self._list: list[Root] = []
        if callable(roots):
            self.function = roots
        elif isinstance(roots, (str, bytes, Root)):
            raise TypeError("roots is a list of roots, or a function that returns one")
        else:
            for root in roots:
                self.add(root)

    def current(self) -> list[Root]:
        """The roots of the list."""
        return list(self._list)

    def add(self, root: AnyRoot) -> bool:
        """Add a root, or rename it. False: nothing changed."""
        self._changeable()
        new = as_root(root)
        for at, old in enumerate(self._list):
            if old.uri == new.uri:
                self._list[at] = new
                return old != new
        self._list.append(new)
        return True

    def remove(self, root: AnyRoot) -> bool:
        """Remove a root. False: it is not in the list."""
        self._changeable()
        uri = as_root(root).uri
        before = len(self._list)
        self._list = [old for old in self._list if old.uri != uri]
        return len(self._list) != before

    def _changeable(self) -> None:
        if self.function is not None:
            raise TypeError("the roots are a function: change its result and call roots_changed")
