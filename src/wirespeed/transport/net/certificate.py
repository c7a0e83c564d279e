"""The certificate of a server, read from files."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any


class Certificate:
    """A certificate and its key, in a context of TLS.

    Args:
        certfile: The certificate and its chain (PEM).
        keyfile: The key; None: it is in ``certfile``, too.
        password: Returns the password of the key by its path, if it is encrypted. It is asked once.
        option: What names the file of the key, for errors.

    Attributes:
        files: The paths of both.
        context: Serves it.

    Raises:
        ValueError: A file cannot be read, or is not what it should be.
    """

    def __init__(
        self,
        certfile: str,
        keyfile: str | None = None,
        password: Callable[[str], str] | None = None,
        *,
        option: str = "keyfile",
    ) -> None:
        self.files = [certfile] if keyfile is None else [certfile, keyfile]
        self._password = password
        self._option = option
        self._asked = False
        self._known: str | None = None
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.load()

    def load(self) -> None:
        """Read the files, again if it is in use: for the handshakes that come. ValueError: they
        cannot be used, and the earlier ones stay."""
        for path in self.files:
            try:
                open(path, "rb").close()
            except OSError as exc:
                raise ValueError(f"cannot read {path}: {exc.strerror}") from None
        self._asked = False
        # a context whose certificate has come in part would be useless
        for context in (ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self.context):
            try:
                context.load_cert_chain(self.files[0], self.files[-1], self._ask)
            except ssl.SSLError as exc:
                raise ValueError(self._why(exc)) from None

    def _ask(self) -> str:
        self._asked = True
        if self._known is None:
            if self._password is None:
                raise ValueError(f"the key {self.files[-1]} is encrypted")
            self._known = self._password(self.files[-1])
        return self._known

    def _why(self, exc: Any) -> str:
        """Return the fault of a certificate or key. OpenSSL reports most faults as the same
        error."""
        certfile, keyfile = self.files[0], self.files[-1]
        if exc.reason == "KEY_VALUES_MISMATCH":
            return (
                f"the key in {keyfile} does not belong to the certificate in {certfile}; "
                f"{self._option} is the key of this certificate"
            )
        if not _has(certfile, b"-----BEGIN CERTIFICATE-----"):
            return f"{certfile} has no certificate (PEM)"
        if not _has(keyfile, b"PRIVATE KEY-----"):
            name = self._option.partition(" ")[0]
            more = "" if len(self.files) > 1 else f"; name the file that has it with {name}"
            return f"{keyfile} has no private key (PEM){more}"
        if self._asked:
            return f"the password does not open the key {keyfile}"
        return f"{certfile} and its key cannot be used: {exc.reason or exc}"


def _has(path: str, words: bytes) -> bool:
    with open(path, "rb") as file:
        return words in file.read(1 << 20)
