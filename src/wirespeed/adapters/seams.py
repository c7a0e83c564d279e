"""Seams of another SDK: the places that an adapter replaces. All are checked before any is set."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as distribution_version
from types import FunctionType, ModuleType
from typing import Any

log = logging.getLogger("wirespeed.adapters")

# The modules of decorators that an SDK may have put around a function.
DECORATORS = ("contextlib", "functools", "typing_extensions", "warnings")


class MovedSeam(Exception):
    """A seam that is not as the adapter knows it. The text names the place and what differs."""


def version_numbers(text: str) -> tuple[int, ...]:
    """The leading numbers of a version: (1, 30, 0) of "1.30.0rc1"."""
    numbers = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


def source_digest(function: Any) -> str:
    """Sixteen digits that change with the source of a function, but not with its indentation."""
    lines = inspect.getsource(inspect.unwrap(function)).splitlines()
    text = "\n".join(line.strip() for line in lines)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def parameters(function: Any) -> tuple[str, ...]:
    """Return the names of the parameters."""
    return tuple(inspect.signature(function).parameters)


class Seam:
    """A function, method or class of an SDK, and what takes its place.

    Args:
        place: Its name, as "mcp.server.stdio:stdio_server" or "mcp.shared.session:BaseSession.run".
        make: Makes the replacement of the stock object; None for one that is only relied upon.
        takes: The names of its parameters, where the replacement relies on them.
        digests: The digests of its source that are known, where the replacement does what its body
            does: a body that has changed since is not replaced.
        required: Whether it moved if it is missing. Else nothing is set.
    """

    def __init__(
        self,
        place: str,
        make: Callable[[Any], Any] | None,
        *,
        takes: Sequence[str] | None = None,
        digests: Iterable[str] | None = None,
        required: bool = True,
    ) -> None:
        self.place = place
        self.make = make
        self.takes = takes
        self.digests = None if digests is None else frozenset(digests)
        self.required = required
        self.owner: Any = None
        self.name = ""
        self.stock: Any = None
        self.replacement: Any = None

    def check(self) -> None:
        """Find the stock object. MovedSeam if it is not as it was."""
        module, _, path = self.place.partition(":")
        *owners, self.name = path.split(".")
        self.stock = None
        try:
            self.owner = functools.reduce(getattr, owners, import_module(module))
            found = vars(self.owner)[self.name]
        except (ImportError, AttributeError, KeyError):
            if self.required:
                raise MovedSeam(f"{self.place} is missing") from None
            return
        except Exception as exc:  # an import may raise anything
            raise MovedSeam(f"{self.place} cannot be imported: {exc}") from exc
        stock = innermost(found)[1]
        stranger = self._stranger(stock)
        if stranger is not None:
            raise MovedSeam(f"{self.place} was replaced by {stranger}")
        if self.takes is not None:
            try:
                takes = parameters(stock)
            except (TypeError, ValueError):
                raise MovedSeam(f"{self.place} is not a function") from None
            if takes != tuple(self.takes):
                raise MovedSeam(f"{self.place} takes {', '.join(takes) or 'nothing'}")
        if self.digests is not None:
            try:
                digest = source_digest(stock)
            except (OSError, TypeError):
                digest = "unreadable"
            if digest not in self.digests:
                raise MovedSeam(f"{self.place} has changed ({digest})")
        self.stock = stock

    def _stranger(self, stock: Any) -> str | None:
        """Return the file of a function that wraps the stock one and comes neither from the SDK
        nor from a decorator; of a class, its module if that is not the SDK's."""
        package = self.place.partition(":")[0].partition(".")[0]
        if isinstance(stock, type):
            home = stock.__module__
            return None if f"{home}.".startswith(f"{package}.") else home
        loaded = [sys.modules[name] for name in DECORATORS if name in sys.modules]
        folders = [os.path.join(folder, "") for folder in import_module(package).__path__]
        known = (*folders, *(str(module.__file__) for module in loaded))
        while isinstance(stock, FunctionType):
            if not stock.__code__.co_filename.startswith(known):
                return stock.__code__.co_filename
            stock = getattr(stock, "__wrapped__", None)
        return None

    def set(self) -> None:
        if self.stock is not None and self.make is not None:
            self.replacement = self.make(self.stock)
            self._exchange(self.stock, self.replacement)

    def restore(self) -> bool:
        """Put the stock object back. False if others hold the replacement, so that it stays."""
        if self.replacement is None:
            return True
        restored = self._exchange(self.replacement, self.stock)
        self.replacement = None
        return restored

    def _exchange(self, old: Any, new: Any) -> bool:
        """Set new wherever old is: in its owner, in proxies there, in modules that imported it."""
        proxy, found = innermost(vars(self.owner)[self.name])
        if found is old:
            if proxy is None:
                setattr(self.owner, self.name, new)
            else:
                proxy.__wrapped__ = new
        # a module that the SDK has imported is not the SDK's own: it is replaced in its owner alone
        if isinstance(self.owner, ModuleType) and not isinstance(self.stock, ModuleType):
            for module, name in holders(old):
                setattr(module, name, new)
        return found is old


def is_known(digests: Mapping[str, str]) -> bool:
    """Whether the functions at these places have these digests and are not wrapped."""
    try:
        for place, digest in digests.items():
            seam = Seam(place, None, digests=[digest])
            seam.check()
            if vars(seam.owner)[seam.name] is not seam.stock:
                return False
    except MovedSeam:
        return False
    return True


def innermost(value: Any) -> tuple[Any, Any]:
    """The value inside of the proxies of instrumentation (wrapt's), and the last proxy or None."""
    proxy = None
    while not issubclass(type(value), FunctionType | type) and hasattr(value, "__wrapped__"):
        proxy, value = value, value.__wrapped__
    return proxy, value


def holders(value: Any) -> Iterator[tuple[ModuleType, str]]:
    """The loaded modules in which a name is bound to the object."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType):
            for name, held in list(vars(module).items()):
                if held is value:
                    yield module, name


class Installation:
    """The work of `install()` and `uninstall()` of an adapter: all seams are checked, then set.

    Args:
        adapter: The name of its module.
        distribution: The SDK.
        versions: The first version that it is for, and the first that it is not for.
        seams: Makes the list of its seams. It may import the SDK.
        extra: The extra of wirespeed that brings the SDK.
    """

    def __init__(
        self,
        adapter: str,
        distribution: str,
        versions: tuple[str, str],
        seams: Callable[[], list[Seam]],
        *,
        extra: str,
    ) -> None:
        self.adapter = adapter
        self.distribution = distribution
        self.versions = versions
        self.extra = extra
        self._make_seams = seams
        self._seams: list[Seam] = []
        self._told: set[str] = set()
        self._lock = threading.RLock()

    @property
    def installed(self) -> bool:
        return bool(self._seams)

    def sdk_version(self) -> str:
        try:
            return distribution_version(self.distribution)
        except PackageNotFoundError:
            raise ModuleNotFoundError(
                f"{self.adapter} needs {self.distribution}: install wirespeed[{self.extra}]"
            ) from None

    def install(self) -> bool:
        """Replace the seams. False, after a warning, if the SDK is not as known: it stays stock."""
        if self._seams:
            return True
        found = self.sdk_version()
        first, end = map(version_numbers, self.versions)
        if not first <= version_numbers(found) < end:
            self.tell(
                f"{self.adapter} is for {self.distribution} {self.versions[0]} to before "
                f"{self.versions[1]}: {self.distribution} {found} stays as it is",
                logging.WARNING,
            )
            return False
        # Outside of the lock: the import may install it, in whichever thread imports it first (see
        # `wirespeed.adapters.programs`).
        with contextlib.suppress(Exception):  # what is missing is named below
            import_module(self.distribution)
        with self._lock:
            return bool(self._seams) or self._replace(found)

    def _replace(self, found: str) -> bool:
        """Check all seams, then set them. ``found``: The version of the SDK."""
        seams: list[Seam] = []
        moved = []
        try:
            seams = self._make_seams()
        except Exception as exc:  # it imports names of the SDK
            moved.append(f"{type(exc).__name__}: {exc}")
        for seam in seams:
            try:
                seam.check()
            except MovedSeam as exc:
                moved.append(str(exc))
        if moved:
            self.tell(
                f"{self.adapter} does not know {self.distribution} {found}, which stays as it is: "
                + "; ".join(moved),
                logging.WARNING,
            )
            return False
        done = []
        try:
            for seam in seams:
                done.append(seam)
                seam.set()
        except BaseException:
            for seam in reversed(done):
                seam.restore()
            raise
        self._seams = seams
        names = ", ".join(seam.place.replace(":", ".") for seam in seams if seam.replacement)
        log.info("%s runs %s %s and has replaced %s", self.adapter, self.distribution, found, names)
        return True

    def uninstall(self) -> None:
        """Restore the stock objects. What was wrapped by others meanwhile is named in a warning."""
        with self._lock:
            kept = [seam.place for seam in reversed(self._seams) if not seam.restore()]
            self._seams = []
        if kept:
            names = ", ".join(kept)
            self.tell(
                f"others wrap what {self.adapter} replaced, and keep: {names}", logging.WARNING
            )

    def tell(self, text: str, level: int = logging.INFO) -> None:
        """Log a line, once: what is not as known, or what is left to the SDK itself."""
        if text not in self._told:
            self._told.add(text)
            log.log(level, "%s", text)


def missing(adapter: str, owner: object, name: str) -> AttributeError:
    """The error of a stand-in that has no such attribute."""
    return AttributeError(
        f"{name!r} of {type(owner).__name__}: {adapter} has replaced what this program uses; "
        f"{adapter}.uninstall() restores it",
        name=name,
        obj=owner,
    )
