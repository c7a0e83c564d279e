"""A proxy with an admin listener, and a client of that."""

from __future__ import annotations

import asyncio
import base64
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.proxy import Lab

from wirespeed.proxy import AdminConfig

TOKEN = "secret-of-the-operator"


@dataclass
class Got:
    """An HTTP response."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


def bearer(token: str = TOKEN) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(password: str = TOKEN, user: str = "") -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


async def fetch(
    port: int, path: str, headers: dict[str, str] | None = None, method: str = "GET"
) -> Got:
    """One request on a connection of its own."""
    fields = {"Host": f"127.0.0.1:{port}", "Connection": "close"}
    fields |= bearer() if headers is None else headers
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items())]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write("\r\n".join([*lines, "", ""]).encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.close()
    status, *rest = head.decode().split("\r\n")
    found = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}
    return Got(int(status.split()[1]), found, body.decode())


class Watched(Lab):
    """A proxy at a UNIX socket, with an admin listener at a free port."""

    def __init__(self, folder: Path, isolation: Any, *arguments: str, **options: Any) -> None:
        admin = AdminConfig(listen="http://127.0.0.1:0", token=TOKEN)
        super().__init__(folder, isolation, *arguments, admin=admin, **options)

    @property
    def port(self) -> int:
        """The port of the admin listener."""
        (url,) = [url for url in self.urls if url.startswith("http:") and url.endswith("/")]
        return int(url.rpartition(":")[2].rstrip("/"))

    async def get(self, path: str, headers: dict[str, str] | None = None) -> Got:
        return await fetch(self.port, path, headers)
