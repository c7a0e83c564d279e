"""Reads and writes the challenges in ``WWW-Authenticate`` (RFC 9110 section 11.6.1)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

MAX_LENGTH = 16384  # characters of a field that is read
MAX_CHALLENGES = 16  # of one field

_TOKEN = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_PARAM = re.compile(
    rf'(?P<name>{_TOKEN})[ \t]*=[ \t]*(?:(?P<word>{_TOKEN})|"(?P<text>(?:[^"\\]|\\.)*+)")'
    r"(?=[ \t]*(?:,|\Z))"
)
_SCHEME = re.compile(
    rf"(?P<scheme>{_TOKEN})(?:[ \t]+(?P<token68>[A-Za-z0-9\-._~+/]+=*)(?=[ \t]*(?:,|\Z)))?"
    r"(?=[ \t]|,|\Z)"
)
_BETWEEN = re.compile(r"[ \t,]*")
_WRITABLE = re.compile(r"[\x20-\x7e]*\Z")


class Challenge(msgspec.Struct, frozen=True):
    """One challenge.

    Attributes:
        scheme: In lower case: ``bearer``, ``dpop``, ``basic``.
        params: The parameters by their names in lower case. Of a name that comes twice, the first.
        token68: What stands behind the scheme in place of parameters.
    """

    scheme: str
    params: Mapping[str, str] = msgspec.field(default_factory=dict)
    token68: str = ""

    @property
    def scopes(self) -> list[str]:
        """The scopes that the parameter ``scope`` names (RFC 6750 section 3)."""
        return self.params.get("scope", "").split()


def read_challenges(field: str) -> list[Challenge]:
    """The challenges of a field, in order; several fields are joined by commas. Challenges
    from the first malformed one on are left out; a malformed field is not an error."""
    field = field[:MAX_LENGTH]
    found: list[Challenge] = []
    params: dict[str, str] | None = None
    at = _BETWEEN.match(field, 0).end()  # type: ignore[union-attr]
    while at < len(field):
        match = _PARAM.match(field, at)
        if match is not None and params is not None:
            text = match["text"]
            value = match["word"] if text is None else re.sub(r"\\(.)", r"\1", text)
            params.setdefault(match["name"].lower(), value)
        else:
            match = _SCHEME.match(field, at)
            if match is None or len(found) == MAX_CHALLENGES:
                break
            params = {}
            found.append(Challenge(match["scheme"].lower(), params, match["token68"] or ""))
        at = _BETWEEN.match(field, match.end()).end()  # type: ignore[union-attr]
    return found


def find_challenge(field: str, scheme: str) -> Challenge | None:
    """The first challenge of a scheme (in lower case), or None."""
    return next((one for one in read_challenges(field) if one.scheme == scheme), None)


def write_challenge(scheme: str, params: Mapping[str, str | None]) -> str:
    """A challenge as a field's value; parameters that are None are left out, the others are quoted.
    ValueError: a value has a character outside printable ASCII."""
    parts = []
    for name, value in params.items():
        if value is None:
            continue
        if not _WRITABLE.match(value):
            raise ValueError(f"the parameter {name} of a challenge is not printable ASCII")
        quoted = value.replace("\\", "\\\\").replace('"', '\\"')
        parts.append(f'{name}="{quoted}"')
    return f"{scheme} {', '.join(parts)}" if parts else scheme
