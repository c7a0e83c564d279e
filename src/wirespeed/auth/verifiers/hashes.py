"""Access tokens that a server's operator hands out, of which the server knows only hashes."""

import hashlib
import secrets
import time
from collections.abc import Callable, Iterable

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.auth.access_token import AccessToken
from wirespeed.errors import InvalidToken
from wirespeed.transport.options import is_token

PREFIX = "sha256:"
MIN_TOKEN = 32  # characters: a shorter token could be found from its hash by trying
MAX_HASHES = 100_000


class TokenHash(msgspec.Struct, frozen=True, kw_only=True):
    """A token of `TokenHashes`.

    Attributes:
        hash: What `hash_token` returned: ``sha256:`` and 64 hexadecimal digits.
        subject: Who uses the token.
        client_id: The program that uses it.
        scopes: What the token permits.
        expires: When the token ends, in Unix seconds; None for never.
    """

    hash: str
    subject: str
    client_id: str | None = None
    scopes: frozenset[str] = frozenset()
    expires: float | None = None


class TokenHashes:
    """Verifies access tokens that you hand out yourself, by their SHA-256 hashes::

        token = new_token()  # for the client alone
        TokenHashes([TokenHash(hash=hash_token(token), subject="anne", scopes={"notes"})])

    The hashes have no salt: a token of `new_token` cannot be found by trying, and is not used
    elsewhere.

    Args:
        tokens: The tokens, at most 100,000.
        clock: Returns Unix seconds.

    ValueError: an entry has no valid hash or no subject, or a hash comes twice.
    """

    def __init__(
        self, tokens: Iterable[TokenHash], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._tokens: dict[bytes, AccessToken] = {}
        for one in tokens:
            digest = _digest(one.hash)
            if not one.subject:
                raise ValueError("a token has no subject")
            if digest in self._tokens:
                raise ValueError(f"the hash of {one.subject!r} comes twice")
            if len(self._tokens) == MAX_HASHES:
                raise ValueError(f"there are more than {MAX_HASHES} tokens")
            self._tokens[digest] = AccessToken(
                subject=one.subject,
                client_id=one.client_id,
                scopes=frozenset(one.scopes),
                expires=one.expires,
            )

    def verify(self, token: str) -> AccessToken:
        """Return the contents of a token. `wirespeed.errors.InvalidToken`: the token is not known,
        or has expired."""
        # The time of the look-up may reveal bits of a hash, but no token follows from them.
        digest = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        access = self._tokens.get(digest)
        if access is None:
            raise InvalidToken("the token is not known")
        if access.expires is not None and self._clock() >= access.expires:
            raise InvalidToken("the token has expired")
        return access

    async def close(self) -> None:
        """Does nothing; other verifiers have connections."""


def new_token() -> str:
    """Return a new access token: 43 characters that encode 256 random bits."""
    return secrets.token_urlsafe(32)


def hash_token(token: str) -> str:
    """Return the hash of a token for a `TokenHash`. ValueError: the token has less than 32
    characters, or characters that a bearer token does not have."""
    if not is_token(token) or len(token) < MIN_TOKEN:
        raise ValueError(f"a token is at least {MIN_TOKEN} printable ASCII characters")
    return PREFIX + hashlib.sha256(token.encode()).hexdigest()


def _digest(text: str) -> bytes:
    digits = text.removeprefix(PREFIX)
    try:
        digest = bytes.fromhex(digits)
    except ValueError:
        digest = b""
    if digits == text or len(digest) != 32 or len(digits) != 64:
        raise ValueError("the hash of a token is not one of hash_token")
    return digest


set_public_home(globals())
