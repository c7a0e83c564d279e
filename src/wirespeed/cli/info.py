"""``wirespeed info``: facts about this installation, or about a server."""

from __future__ import annotations

import os
import platform
import re
import sys
import time
from typing import TYPE_CHECKING, Any

from wirespeed.cli import show
from wirespeed.cli.failures import Exit, print_json, printable
from wirespeed.cli.session import Options, connected, run

if TYPE_CHECKING:
    from wirespeed import Client


def info(options: Options | None, *, as_json: bool) -> int:
    """Print facts about this installation, or with a target about the server."""
    if options is None:
        facts = installation()
    elif options.lite:
        from wirespeed.cli import lite

        facts = lite.info(options)
    else:
        facts = run(_server(options))
    if as_json:
        print_json(facts)
    else:
        _print(facts)
    return Exit.OK


def installation() -> dict[str, Any]:
    """Return versions, limits, and the choices that are made at run time."""
    import msgspec
    import orjson

    from wirespeed import __version__, core
    from wirespeed._core import _simd
    from wirespeed.limits import Limits
    from wirespeed.protocol.revisions import REVISIONS

    return {
        "wirespeed": __version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "core": {"cython": _cython(core.simd_level), "path": os.path.dirname(_simd.__file__)},
        "simd": {
            "level": core.simd_level(),
            "available": list(_simd.levels()),
            "cap": os.environ.get("WIRESPEED_SIMD"),
        },
        "loop": _loop(),
        "msgspec": msgspec.__version__,
        "orjson": orjson.__version__,
        "websockets": _version("websockets"),
        "tls": _tls(),
        "transports": _transports(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "revisions": list(REVISIONS),
        "limits": Limits().asdict(),
    }


def _version(package: str) -> str | None:
    """Return the version of a package without importing it; None if it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _tls() -> str | None:
    """Return the TLS library; None in a Python without TLS."""
    try:
        import ssl
    except ImportError:
        return None
    return ssl.OPENSSL_VERSION


def _transports() -> list[str]:
    """Return the transports that this installation can serve and connect to."""
    from wirespeed.transport.schemes import SCHEMES, names

    found = ["stdio", *names("lines")]
    if _version("websockets") is not None:  # its opening handshake
        tls = _tls() is not None
        found += [name for name in names("websocket") if tls or not SCHEMES[name].secure]
    return found


def _cython(function: Any) -> str:
    """Return the version of Cython that compiled a function, from the module of its type."""
    module = type(function).__module__
    return ".".join(re.findall(r"\d+", module)) or module


def _loop() -> str:
    from wirespeed.cli.failures import usage
    from wirespeed.transport.loop import loop_factory

    try:
        factory = loop_factory()
    except ValueError as exc:
        raise usage(str(exc)) from None
    home = factory.__module__.partition(".")[0]
    return f"{home} {getattr(sys.modules[home], '__version__', '')}".strip()


async def _server(options: Options) -> dict[str, Any]:
    began = time.perf_counter()
    async with connected(options) as client:
        return _facts(client, time.perf_counter() - began)


def _facts(client: Client, seconds: float) -> dict[str, Any]:
    from wirespeed.protocol.revisions import REVISIONS

    version = client.protocol_version
    return {
        "server": client.server_info,
        "revision": version,
        "era": "modern" if REVISIONS[version].modern else "legacy",
        "capabilities": client.server_capabilities,
        "instructions": client.instructions,
        "ready_seconds": round(seconds, 4),
    }


def _print(facts: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for key, value in facts.items():
        if value is not None:
            words = printable(_words(key, value), lines=True)
            table.add_row(_LABELS.get(key, key), Text(words))
    show.put(show.console(), table)


_LABELS = {"ready_seconds": "ready in"}


def _words(key: str, value: Any) -> str:
    """Return a fact as text."""
    if key == "ready_seconds":
        return show.duration(value)
    if key == "simd":
        cap = f", capped by WIRESPEED_SIMD={value['cap']}" if value["cap"] else ""
        return f"{value['level']} (of {', '.join(value['available'])}{cap})"
    if key == "core":
        return f"compiled by Cython {value['cython']}, in {value['path']}"
    if key == "capabilities":
        return ", ".join(_capability(name, value[name]) for name in value) or "none"
    if isinstance(value, dict):
        return "\n".join(f"{name} {_words('', item)}" for name, item in value.items())
    if isinstance(value, list):
        return ", ".join(_words("", item) for item in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _capability(name: str, value: Any) -> str:
    """``tools (listChanged)``."""
    members = value.items() if isinstance(value, dict) else ()
    parts = [key for key, item in members if item is not False]
    return f"{name} ({', '.join(parts)})" if parts else name
