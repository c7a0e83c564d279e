"""``wirespeed config``: the entry of a Python file in the configuration of an MCP host."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any

from wirespeed.cli import modules
from wirespeed.cli.failures import Exit, usage
from wirespeed.cli.targets import check_file
from wirespeed.client.targets.python_file import from_file, python_file

_UNUSUAL = re.compile(r"[^A-Za-z0-9_-]+")


def config(word: str, *, key: str | None, vscode: bool) -> int:
    """Print the JSON object that a host needs to start ``FILE.py[:NAME]``.

    Failure (2 or 3): the file cannot be served, or the key is not valid.
    """
    from wirespeed.transport.stdio import claimed

    if key is not None and (not key or _UNUSUAL.search(key)):
        raise usage("--key: letters, digits, - and _ only, because hosts refuse other characters")
    path, name = python_file(word) or (word, None)
    check_file(path)
    with claimed():  # the import of the file must not write into the JSON
        module = modules.load(path)
        served = modules.pick(module, path, name)
    assert not isinstance(served, dict)
    absolute = os.path.abspath(path)
    target = from_file(absolute if name is None else f"{absolute}:{name}")
    assert target is not None
    entry: dict[str, Any] = {"command": os.path.abspath(target.command), "args": list(target.args)}
    if vscode:
        entry = {"type": "stdio", **entry}
    if key is None:
        key = _UNUSUAL.sub("-", served.name).strip("-") or "server"
    whole = {"servers" if vscode else "mcpServers": {key: entry}}
    sys.stdout.write(json.dumps(whole, indent=2) + "\n")
    return Exit.OK
