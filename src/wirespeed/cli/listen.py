"""``wirespeed serve --on URL``: checks the options, loads certificates, announces the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wirespeed.cli.failures import cannot_start, complain, usage
from wirespeed.cli.modules import title
from wirespeed.cli.targets import check_file
from wirespeed.transport.address import is_loopback, parse

if TYPE_CHECKING:
    from ssl import SSLContext

    from wirespeed.cli.credentials import Secret
    from wirespeed.cli.modules import Routes, Service
    from wirespeed.cli.serve import Settings

KEY_PASSWORD = "WIRESPEED_KEY_PASSWORD"


class Listening:
    """The address and the options of a listener. They are checked before the user's file is
    imported.

    Failure (2 or 3): an option is wrong.
    """

    def __init__(self, url: str, settings: Settings, secret: Secret | None) -> None:
        try:
            self.address = parse(url)
        except ValueError as exc:
            raise usage(f"--on: {exc}") from None
        self.url = url
        self.settings = settings
        self.scheme = scheme = self.address.scheme
        self.options: dict[str, Any] = {}
        if not self.has_paths:
            self._check_unused(secret)
        elif secret is not None:
            self.options["token"] = secret.tokens
        if settings.origins:
            self.options["origins"] = settings.origins
        if settings.hosts:
            self.options["hosts"] = settings.hosts
        if settings.max_connections is not None:
            self.options["max_connections"] = settings.max_connections
        if self.address.secure:
            self.options["ssl"] = self._certificate()
        elif settings.certfile is not None or settings.keyfile is not None:
            raise usage(f"--certfile and --keyfile are for https:// and wss://, not for {scheme}:")

    @property
    def has_paths(self) -> bool:
        """Whether several servers can share the address, each with a path of its own."""
        return self.address.is_websocket or self.address.is_http

    def serve(self, found: Service | Routes) -> None:
        """Serve until the process is told to end."""
        from wirespeed import run

        os.environ.pop(KEY_PASSWORD, None)  # not for tools and their child processes
        try:
            run(
                self.url,
                found,
                workers=self.settings.workers,
                on_listening=lambda urls: self._announce(found, urls),
                **self.options,
            )
        except ValueError as exc:
            raise usage(f"--on: {exc}") from None

    def _announce(self, found: Service | Routes, urls: Sequence[str]) -> None:
        """Print the address and how to end the server, and warn about an unencrypted token."""
        n = self.settings.workers
        workers = f" with {n} workers" if n > 1 else ""
        services = list(found.values()) if isinstance(found, dict) else [found]
        for service, url in zip(services, urls, strict=True):
            end = "; Ctrl-C ends it" if url == urls[-1] else ""
            complain(f"serving {title(service)}{workers} on {url}{end}", level="note")
        if self.scheme == "unix" or is_loopback(self.address.host):
            return
        if "token" in self.options and not self.address.secure:
            complain(
                f"{self.scheme}:// is not encrypted, and neither is the token: use "
                f"{self.scheme}s://",
                level="warning",
            )

    def _check_unused(self, secret: Secret | None) -> None:
        only = f"is for HTTP and WebSocket; {self.scheme}: has no handshake that could check it"
        if secret is not None:
            if secret.from_option:
                raise usage(f"a token {only}")
            complain(f"{secret.source} {only}", level="warning")
        for option in ("--origin", "--host-name"):
            if option in self.settings.given():
                raise usage(f"{option} {only}")

    # -- TLS ---------------------------------------------------------------------------------------

    def _certificate(self) -> SSLContext:
        import ssl

        certfile, keyfile = self.settings.certfile, self.settings.keyfile
        if certfile is None:
            raise usage(
                f"{self.scheme}:// needs --certfile FILE, and --keyfile FILE unless both are in one"
            )
        for path in filter(None, (certfile, keyfile)):
            check_file(path)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        password = _Password(keyfile or certfile)
        try:
            context.load_cert_chain(certfile, keyfile, password)
        except ssl.SSLError as exc:
            raise cannot_start(_why_tls(exc, certfile, keyfile, password.asked)) from None
        return context


class _Password:
    """The password of a key, looked up only if the key is encrypted."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.asked = False

    def __call__(self) -> str:
        self.asked = True
        password = os.environ.get(KEY_PASSWORD)
        if password is not None:
            return password
        if not sys.stdin.isatty():
            raise cannot_start(
                f"the key {self.path} is encrypted, and its password is not in {KEY_PASSWORD}"
            )
        import getpass

        return getpass.getpass(f"Password of {self.path}: ")


def _why_tls(exc: Any, certfile: str, keyfile: str | None, asked: bool) -> str:
    """Return the fault of a certificate or key. OpenSSL reports most faults as the same error."""
    if exc.reason == "KEY_VALUES_MISMATCH":
        return (
            f"the key in {keyfile or certfile} does not belong to the certificate in {certfile}; "
            "--keyfile FILE is the key of this certificate"
        )
    if not _has(certfile, b"-----BEGIN CERTIFICATE-----"):
        return f"{certfile} has no certificate (PEM)"
    if not _has(keyfile or certfile, b"PRIVATE KEY-----"):
        more = "" if keyfile else "; name the file that has it with --keyfile"
        return f"{keyfile or certfile} has no private key (PEM){more}"
    if asked:
        return f"the password does not open the key {keyfile or certfile}"
    return f"{certfile} and its key cannot be used: {exc.reason or exc}"


def _has(path: str, words: bytes) -> bool:
    with open(path, "rb") as file:
        return words in file.read(1 << 20)
