"""The server of a file for other clients than the page: ``wirespeed dev --on URL``. The proxy
stands before its processes, and replaces them when the file was saved."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.cli.failures import complain, usage
from wirespeed.proxy import BackendConfig, Proxy, ProxyConfig
from wirespeed.transport.address import is_loopback, parse

if TYPE_CHECKING:
    from wirespeed import Stdio
    from wirespeed.transport.net.serve import Place

_VARIABLE = "WIRESPEED_DEV_START"  # another value makes another configuration


class OtherClients:
    """The listeners for other clients.

    Args:
        urls: Where they listen, on this machine.
        target: The command of the server.
        name: Its name in the log.

    Failure (2): a URL is wrong, or other machines could reach it.
    """

    def __init__(self, urls: Sequence[str], target: Stdio, name: str) -> None:
        for url in urls:
            try:
                address = parse(url)
            except ValueError as exc:
                raise usage(f"--on: {exc}") from None
            if address.secure or not (address.file or is_loopback(address.host)):
                raise usage(
                    "--on of wirespeed dev is for this machine, without encryption; for others: "
                    "wirespeed serve --on"
                )
        self._urls = tuple(urls)
        self._target = target
        self._starts = 0
        self._name = re.sub(r"[^A-Za-z0-9-]+", "-", name).strip("-")[:64] or "server"
        try:
            self.proxy = Proxy(self._config())
        except ValueError as exc:
            raise usage(f"--on: {exc}") from None

    def _config(self) -> ProxyConfig:
        env = {_VARIABLE: str(self._starts)}
        target = msgspec.structs.replace(self._target, env=env)
        return ProxyConfig(
            backends=(BackendConfig(target=target, name=self._name),), listen=self._urls
        )

    def places(self) -> list[Place]:
        """Return what is served where. Failure (2): a URL is wrong."""

        def announce(urls: tuple[str, ...]) -> None:
            complain(f"other clients: {urls[0]}", level="note")

        fields = self.proxy.listen_fields
        try:
            found: list[Any] = [(*self.proxy.routes(url), announce, fields) for url in self._urls]
        except ValueError as exc:
            raise usage(f"--on: {exc}") from None
        self.proxy.listening.expect(self._urls)
        return found

    async def restart(self) -> None:
        """Start other processes; these take the place of the earlier ones when they are ready."""
        self._starts += 1
        await self.proxy.reload(self._config())
