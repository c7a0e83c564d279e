"""Command lines for people to read: ``…`` stands for secrets."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from msgspec.structs import replace

from wirespeed.transport.child.command import Stdio
from wirespeed.transport.schemes import public
from wirespeed.transport.wire_trace import is_secret, masked

_OPTION = re.compile(r"--?[\w-]+")
_ASSIGNED = re.compile(r"-{0,2}[\w.-]+=")
_URL = re.compile(r"(?:[A-Za-z][A-Za-z0-9+.-]*://|(?:unix|tcp|wss?|https?):)\S*")
# A header field behind its option, without a space.
_FIELD = re.compile(r"-H[^:]+:.*", re.DOTALL)
_TOKEN = re.compile(r"(?<![\w-])(github_pat_|gh[opsu]_|sk-|xox[abp]-)[\w-]+")
_ENDS = ("key", "token", "secret", "password")
_NAMES = ("-H", "--header", "--headers", "--dsn")
_USERS = ("-u", "--user")


def command_shown(words: Sequence[str], longest: int | None = None) -> str:
    """Return a command line for people.

    longest: Characters of a word; longer ones are cut.
    """
    quoted = [_quoted(word) for word in _shown(words)]
    if longest is not None:
        quoted = [one if len(one) <= longest else f"{one[:longest]}…" for one in quoted]
    return " ".join(quoted)


def shown_without_secrets(target: Stdio) -> Stdio:
    """Return a command that errors show without its secrets."""
    words = list(target.shown or target.argv)
    shown = _shown(words)
    return target if shown == words else replace(target, shown=shown)


def _quoted(word: str) -> str:
    plain = word.replace("…", "_")
    return word if shlex.quote(plain) == plain else shlex.quote(word)


def _shown(words: Sequence[str]) -> list[str]:
    found, option = [], ""
    for word in words:
        found.append(word if word == "--" else _value_shown(option, word))
        option = word if _OPTION.fullmatch(word) else ""
    return found


def _hides(name: str) -> bool:
    """Whether an option or a variable of this name has a secret."""
    return name in _NAMES or name.lower().endswith(_ENDS) or is_secret(name)


def _value_shown(option: str, word: str) -> str:
    """A word behind an option, which is empty where there is none."""
    before = ""
    while True:
        if _hides(option):
            return before + "…"
        url = _URL.fullmatch(word) is not None
        if option in _USERS and not url and ":" in word:
            return f"{before}{word.partition(':')[0]}:…"
        match = None if url else _ASSIGNED.match(word)
        if match is None:
            return before + ("-H…" if _FIELD.fullmatch(word) else _word_shown(word, url))
        option = match[0][:-1]
        before, word = before + match[0], word[match.end() :]


def _word_shown(word: str, url: bool) -> str:
    word = _TOKEN.sub(r"\1…", masked(public(word) if url else word))
    if word[:1] in ("{", "[", '"') or not re.search(r"\s", word):
        return word
    try:
        words = shlex.split(word)  # it may be a command line itself
    except ValueError:
        return word
    shown = _shown(words) if len(words) > 1 else words
    return word if shown == words else " ".join(map(_quoted, shown))
