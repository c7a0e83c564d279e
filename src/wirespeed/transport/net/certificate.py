"""The certificate of a server, read from files."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any


def server_context(
    certfile: str,
    keyfile: str | None = None,
    password: Callable[[], str] | None = None,
    *,
    option: str = "keyfile",
) -> ssl.SSLContext:
    """Return the context of TLS with a certificate and its key.

    Args:
        certfile: The certificate and its chain (PEM).
        keyfile: The key; None: it is in ``certfile``, too.
        password: Returns the password of the key, if it is encrypted.
        option: What names the file of the key, for errors.

    Raises:
        ValueError: A file cannot be read, or is not what it should be.
    """
    for path in (certfile, keyfile or certfile):
        try:
            open(path, "rb").close()
        except OSError as exc:
            raise ValueError(f"cannot read {path}: {exc.strerror}") from None
    asked = False

    def ask() -> str:
        nonlocal asked
        asked = True
        if password is None:
            raise ValueError(f"the key {keyfile or certfile} is encrypted")
        return password()

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(certfile, keyfile, ask)
    except ssl.SSLError as exc:
        raise ValueError(_why(exc, certfile, keyfile, asked, option)) from None
    return context


def _why(exc: Any, certfile: str, keyfile: str | None, asked: bool, option: str) -> str:
    """Return the fault of a certificate or key. OpenSSL reports most faults as the same error."""
    if exc.reason == "KEY_VALUES_MISMATCH":
        return (
            f"the key in {keyfile or certfile} does not belong to the certificate in {certfile}; "
            f"{option} is the key of this certificate"
        )
    if not _has(certfile, b"-----BEGIN CERTIFICATE-----"):
        return f"{certfile} has no certificate (PEM)"
    if not _has(keyfile or certfile, b"PRIVATE KEY-----"):
        more = "" if keyfile else f"; name the file that has it with {option.split(' ')[0]}"
        return f"{keyfile or certfile} has no private key (PEM){more}"
    if asked:
        return f"the password does not open the key {keyfile or certfile}"
    return f"{certfile} and its key cannot be used: {exc.reason or exc}"


def _has(path: str, words: bytes) -> bool:
    with open(path, "rb") as file:
        return words in file.read(1 << 20)
