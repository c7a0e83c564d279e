"""Tokens and headers from options, files and the environment. No output shows their values.

A client sends its token in the opening handshake of a WebSocket. A server accepts several tokens.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

from wirespeed.cli.failures import complain, usage
from wirespeed.contents import contents_of
from wirespeed.transport.address import is_loopback
from wirespeed.transport.options import check_headers, is_token

ENVIRONMENT = "WIRESPEED_TOKEN"
HOSTS = "WIRESPEED_TOKEN_HOST"
METRICS = "WIRESPEED_METRICS_TOKEN"
CLUSTER = "WIRESPEED_CLUSTER"

# The variables that this process was started with. Secrets are removed from os.environ, which child
# processes inherit. A reload, and a process that takes the place of this one, need them again.
ENVIRON = dict(os.environ)


@dataclass(frozen=True)
class Secret:
    """Tokens and their source. The repr shows only the source."""

    tokens: tuple[str, ...] = field(repr=False)
    source: str

    @property
    def from_option(self) -> bool:
        """Whether the token is from an option. Such a token must be used."""
        return self.source != ENVIRONMENT

    def is_for(self, host: str) -> bool:
        """Whether a token may be sent to a host. A token of the environment may be sent to loopback
        and to the hosts that the environment names."""
        named = os.environ.get(HOSTS, "").lower().split(",")
        return self.from_option or is_loopback(host) or host.lower() in map(str.strip, named)

    @property
    def only(self) -> str:
        """The one token, for a client. Failure (2): there are several."""
        if len(self.tokens) > 1:
            raise usage(f"{self.source} has {len(self.tokens)} lines; a client sends one token")
        return self.tokens[0]


def find(option: str | None, path: str | None, *, serves: bool = False) -> Secret | None:
    """Return the tokens of ``--token``, of ``--token-file`` or of the environment; None if no token
    is set.

    The variable is removed from ``os.environ``. A person at a terminal is warned of ``--token``,
    and always if the command ``serves``: for as long as it runs, every user of the machine sees the
    token. Failure (2): a token cannot be sent. The error does not show the token.
    """
    value = taken(ENVIRONMENT)
    if option is not None and path is not None:
        raise usage("give --token or --token-file, not both")
    if option is not None:
        if serves or sys.stderr.isatty():
            complain(
                f"process lists show --token; use {ENVIRONMENT} or --token-file", level="warning"
            )
        return _checked((option,), "--token")
    if path is not None:
        return _checked(_lines(path, "--token-file"), path)
    # an empty variable counts as unset
    return _checked((value,), ENVIRONMENT) if value else None


def taken(variable: str) -> str | None:
    """Return the value of a variable, and remove it from ``os.environ``."""
    os.environ.pop(variable, None)
    return ENVIRON.get(variable)


def one_of(option: str | None, variable: str) -> str | None:
    """Return the value of an option, else of a variable, which is removed from ``os.environ``; None
    if there is none."""
    value = taken(variable)
    return value or None if option is None else option


def one_line(path: str | None, option: str, variable: str) -> str | None:
    """Return the secret of a file, else of a variable, which is removed from ``os.environ``; None
    if there is none. Failure (2): the file cannot be used. The error does not show the secret."""
    value = taken(variable)
    if path is None:
        return value or None
    lines = _lines(path, option)
    if len(lines) != 1:
        raise usage(f"the {option} {path} has {len(lines)} lines; the secret is one")
    return lines[0]


def _lines(path: str, option: str) -> tuple[str, ...]:
    try:
        lines = contents_of(path, pipes=True).decode("utf-8-sig").splitlines()
    except OSError as exc:
        raise usage(f"cannot read the {option} {path}: {exc.strerror}") from None
    except UnicodeError:
        raise usage(f"the {option} {path} is not text") from None
    return tuple(line.strip() for line in lines if line.strip())


def _checked(tokens: tuple[str, ...], source: str) -> Secret:
    if not any(tokens):
        raise usage(f"the token of {source} is empty")
    if not all(map(is_token, tokens)):
        raise usage(f"the token of {source} has blanks or characters that are not ASCII")
    return Secret(tokens, source)


def headers(lines: Iterable[str]) -> dict[str, str]:
    """Return ``Name: value`` lines as a mapping. Failure (2) names the number of the wrong line,
    not its text, which may be a secret. `wirespeed.WebSocket` checks names and values."""
    found: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        name, colon, value = line.partition(":")
        try:
            check_headers({name if colon else "": ""}, ())
        except ValueError:
            raise usage(f'--header number {number} is not of the form "Name: value"') from None
        if name in found:
            raise usage(f"--header {name} is given twice")
        found[name] = value.strip(" \t")
    return found
