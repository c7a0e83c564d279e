"""The certificate of a server, read from files."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from wirespeed.contents import contents_of

_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"
_SEQUENCE, _UTC_TIME = 0x30, 0x17


class ServerContext(ssl.SSLContext):
    """A context of TLS that knows its certificate.

    Attributes:
        certificate: What it serves.
    """

    certificate: Certificate


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
        expires: When it expires, in Unix seconds; None: that cannot be read.

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
        self._read: list[bytes] = []
        self.context = ServerContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.certificate = self
        self.expires: float | None = None
        self.use(self.read())

    def read(self) -> list[bytes]:
        """Read the files and try them, in any thread. ValueError: they cannot be used."""
        found = [self._contents(path) for path in self.files]
        if found != self._read:
            self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        return found

    def use(self, found: list[bytes]) -> bool:
        """Serve the handshakes that come with what `read` returned. Returns whether it differs from
        what was served. ValueError: it cannot be used."""
        if found == self._read:
            return False
        self._load(self.context)
        self._read = found
        self.expires = expiry_of(found[0].decode("latin-1"))
        return True

    def _contents(self, path: str) -> bytes:
        try:
            return contents_of(path)
        except OSError as exc:
            key = "certfile" if path == self.files[0] else "keyfile"
            raise ValueError(f"cannot read the {key} {path}: {exc.strerror}") from None

    def _load(self, context: ssl.SSLContext) -> None:
        self._asked = False
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
        if b"-----BEGIN CERTIFICATE-----" not in self._contents(certfile):
            return f"{certfile} has no certificate (PEM)"
        if b"PRIVATE KEY-----" not in self._contents(keyfile):
            name = self._option.partition(" ")[0]
            more = "" if len(self.files) > 1 else f"; name the file that has it with {name}"
            return f"{keyfile} has no private key (PEM){more}"
        if self._asked:
            return f"the password does not open the key {keyfile}"
        return f"{certfile} and its key cannot be used: {exc.reason or exc}"


def expiry_of(text: str) -> float | None:
    """When the first certificate of a PEM text expires, in Unix seconds. None: that cannot be read
    (RFC 5280 section 4.1)."""
    start, end = text.find(_BEGIN), text.find(_END)
    try:
        der = ssl.PEM_cert_to_DER_cert(text[start : end + len(_END)])
        certificate, _ = _element(der, _SEQUENCE)
        rest, _ = _element(certificate, _SEQUENCE)
        if rest[0] == 0xA0:  # the version
            _, rest = _element(rest)
        for _ in range(3):  # the serial number, the algorithm, the issuer
            _, rest = _element(rest)
        validity, _ = _element(rest, _SEQUENCE)
        _, after = _element(validity)
        written, _ = _element(after)
        digits = written.decode("ascii")
        if after[0] == _UTC_TIME:
            digits = ("19" if digits >= "5" else "20") + digits
        return datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except (ValueError, IndexError):
        return None


def _element(der: bytes, tag: int | None = None) -> tuple[bytes, bytes]:
    """Split DER into the content of its first element and the rest. ValueError: it has another
    tag."""
    if tag is not None and der[0] != tag:
        raise ValueError(f"not the tag {tag}")
    start, length = 2, der[1]
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(der[2:start], "big")
    return der[start : start + length], der[start + length :]
