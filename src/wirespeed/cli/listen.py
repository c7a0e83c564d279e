"""``wirespeed serve --on URL``: checks the options, loads certificates, announces the server."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from wirespeed.cli.failures import cannot_start, complain, usage
from wirespeed.cli.modules import title
from wirespeed.cli.targets import check_file
from wirespeed.transport.address import Address, is_loopback, parse

if TYPE_CHECKING:
    from ssl import SSLContext

    from wirespeed import HttpOptions
    from wirespeed.cli.credentials import Secret
    from wirespeed.cli.modules import Routes, Service
    from wirespeed.cli.serve import Settings
    from wirespeed.transport.options import ListenFields, OnListening

KEY_PASSWORD = "WIRESPEED_KEY_PASSWORD"


def parsed(url: str, option: str = "--on") -> Address:
    """The address of a URL. Failure (2): it is not one."""
    try:
        return parse(url)
    except ValueError as exc:
        raise usage(f"{option}: {exc}") from None


def serve_at(places: Sequence[tuple[Listening, Service | Routes]], workers: int) -> None:
    """Serve at all places, each with its servers, until the process is told to end."""
    from wirespeed.transport.net.serve import run, run_together

    os.environ.pop(KEY_PASSWORD, None)  # not for tools and their child processes
    try:
        if len(places) == 1:
            ((place, found),) = places
            run(
                place.url,
                found,
                workers=workers,
                on_listening=place.announce(found),
                **place.options,
            )
        else:
            planned: Any = [
                (place.url, found, place.announce(found), place.options) for place, found in places
            ]
            run_together(planned, workers=workers)
    except ValueError as exc:
        raise usage(f"--on: {exc}") from None


def check_used(addresses: Sequence[Address], settings: Settings, secret: Secret | None) -> None:
    """Check that each option is for one of the URLs. Failure (2): one is for none."""
    schemes = ", ".join(f"{scheme}:" for scheme in dict.fromkeys(a.scheme for a in addresses))
    given = settings.given()
    if not any(address.has_paths for address in addresses):
        only = f"is for HTTP and WebSocket; {schemes} has no handshake that could check it"
        if secret is not None:
            if secret.from_option:
                raise usage(f"a token {only}")
            complain(f"{secret.source} {only}", level="warning")
        for option in ("--origin", "--host-name"):
            if option in given:
                raise usage(f"{option} {only}")
    if not any(address.secure for address in addresses):
        for option in ("--certfile", "--keyfile"):
            if option in given:
                raise usage(f"{option} is for https:// and wss://, not for {schemes}")
    if not any(address.is_http for address in addresses):
        for option in ("--stateless", "--access-log", "--trusted-proxy"):
            if option in given:
                raise usage(f"{option} is for http:// and https://, not for {schemes}")


class Listening:
    """The address and the options of a listener. They are checked before the user's file is
    imported.

    Failure (2 or 3): an option is wrong.
    """

    def __init__(self, url: str, settings: Settings, secret: Secret | None) -> None:
        self.address = parsed(url)
        self.url = url
        self.settings = settings
        self.scheme = self.address.scheme
        self.options: ListenFields = {}
        if settings.max_connections is not None:
            self.options["max_connections"] = settings.max_connections
        if self.has_paths:
            if secret is not None:
                self.options["token"] = secret.tokens
            if settings.origins:
                self.options["origins"] = settings.origins
            if settings.hosts:
                self.options["hosts"] = settings.hosts
        if self.address.secure:
            self.options["ssl"] = self._certificate()
        if self.address.is_http:
            self.options["http"] = self._http()

    @property
    def has_paths(self) -> bool:
        """Whether several servers can share the address, each with a path of its own."""
        return self.address.has_paths

    def announce(self, found: Service | Routes) -> OnListening:
        """Return the function that tells people where the server listens."""
        return lambda urls: self._announce(found, urls)

    def _http(self) -> HttpOptions:
        from wirespeed import HttpOptions

        settings = self.settings
        try:
            return HttpOptions(
                stateless=settings.stateless,
                access_log=settings.access_log,
                trusted_proxies=settings.trusted_proxies,
            )
        except ValueError as exc:
            raise usage(f"--trusted-proxy: {exc}") from None

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
            plain, secure = f"{self.scheme}://", f"{self.scheme}s://"
            complain(
                f"{plain} is not encrypted, and neither is the token: use {secure}",
                level="warning",
            )

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
