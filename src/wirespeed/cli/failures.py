"""Exit codes, and the report of failures: one line with a remedy, or a JSON object."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable
from enum import IntEnum
from typing import Any

from wirespeed.errors import (
    CallTimeout,
    InvalidResponse,
    RemoteError,
    SkillChanged,
    WirespeedError,
)

# How the first line of an error of wirespeed.transport.child.process may end. Lines of the server's
# stderr follow the first of these.
_STDERR_ENDS = "; its stderr ends:"
_ELSEWHERE = "; its stderr was inherited, so look for its messages there"


_PREFIX = "wirespeed:"
# Remedies of the library, and what stands for them on this command line.
_REMEDIES = {
    "; ssl=… takes a context that trusts its authority": "; --ca FILE trusts a private authority",
    "; WebSocket(token=…) takes the server's token": "; set WIRESPEED_TOKEN or give --token-file",
    "; Http(token=…) takes the server's token": (
        "; log in with wirespeed login, or set WIRESPEED_TOKEN or give --token-file"
    ),
}


# Packages that a server on stdio works without, and what installs them.
_PACKAGES = {
    "click": "'wirespeed[cli]'",
    "rich": "'wirespeed[cli]'",
    "hdrh": "'wirespeed[bench]'",
    "jinja2": "'wirespeed[cli]'",
    "joserfc": "'wirespeed[auth]'",
    "yaml": "'wirespeed[skills]'",
    "orjson": "orjson",
    "websockets": "websockets",
}


class Exit(IntEnum):
    """The stable exit codes. ``wirespeed --help`` lists them."""

    OK = 0
    TOOL_FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    REMOTE = 4
    TIMEOUT = 5
    FAULT = 70
    OUTPUT = 74
    INTERRUPTED = 130
    BROKEN_PIPE = 141


class Failure(WirespeedError):
    """A failure with its own exit code. The text tells the user what to do."""

    def __init__(self, text: str, code: Exit, kind: str = "Failure") -> None:
        super().__init__(text)
        self.code = code
        self.kind = kind


class Terminated(Exception):
    """A signal other than SIGINT asked this process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def usage(text: str) -> Failure:
    """Return the failure of a wrong command line."""
    return Failure(text, Exit.USAGE, "UsageError")


def cannot_start(text: str) -> Failure:
    """Return the failure of a target that cannot be started or connected to."""
    return Failure(text, Exit.UNREACHABLE, "TargetError")


def exit_code(exc: BaseException) -> int:
    """Return the exit code of an exception."""
    if isinstance(exc, Failure):
        return exc.code
    if isinstance(exc, CallTimeout):
        return Exit.TIMEOUT
    if isinstance(exc, RemoteError | InvalidResponse | SkillChanged):
        return Exit.REMOTE
    lacks_package = isinstance(exc, ModuleNotFoundError) and exc.name in _PACKAGES
    if lacks_package or isinstance(exc, WirespeedError):
        return Exit.UNREACHABLE
    if isinstance(exc, KeyboardInterrupt):
        return Exit.INTERRUPTED
    if isinstance(exc, Terminated):
        return 128 + exc.number
    return Exit.FAULT


def printable(text: str, *, lines: bool = False) -> str:
    r"""Return a text with control characters, which a terminal would obey, written as ``\x1b``.

    ``lines``: keep newlines and tabs.
    """
    keep = "\n\t" if lines else ""
    if text.isprintable():
        return text
    return "".join(c if c in keep or not _controls(c) else _escaped(c) for c in text)


def _controls(char: str) -> bool:
    """Whether a character is a control character (Cc), a separator of lines, or a mark that
    reorders the text around it."""
    return (
        char < " "
        or "\x7f" <= char < "\xa0"
        or char in "\u2028\u2029"
        or ("\u202a" <= char <= "\u202e" or "\u2066" <= char <= "\u2069")
    )


def _escaped(char: str) -> str:
    return char.encode("unicode_escape").decode()


def describe(exc: BaseException) -> tuple[str, list[str]]:
    """Return one line for people, and the end of the server's stderr if it was kept."""
    if isinstance(exc, ModuleNotFoundError) and exc.name in _PACKAGES:
        return f"this needs the package {exc.name}: pip install {_PACKAGES[exc.name]}", []
    if not isinstance(exc, WirespeedError):
        kind = type(exc).__name__
        return f"a fault of wirespeed itself: {kind}: {exc}; --debug shows where", []
    if isinstance(exc, RemoteError):
        text = f"the server answered with error {exc.code}: {exc.message}"
    else:
        text = str(exc) or type(exc).__name__
    for library, here in _REMEDIES.items():
        text = text.replace(library, here)
    text = "; ".join([text, *getattr(exc, "__notes__", ())])
    first, *rest = text.split("\n    ")
    # The peer's message is shown on one line, so that it cannot look like lines of stderr.
    if rest and first.endswith(_STDERR_ENDS):
        return printable(first.removesuffix(_STDERR_ENDS)), rest
    return printable(text.removesuffix(_ELSEWHERE)), []


def as_object(exc: BaseException) -> dict[str, Any]:
    """Return the JSON object of a failure, for ``--json``."""
    text, stderr = describe(exc)
    kind = exc.kind if isinstance(exc, Failure) else type(exc).__name__
    error: dict[str, Any] = {"type": kind, "message": text, "exit_code": int(exit_code(exc))}
    if isinstance(exc, RemoteError):
        error |= {"message": exc.message, "code": exc.code}
        if exc.data is not None:
            error["data"] = exc.data
    if notes := getattr(exc, "__notes__", ()):
        error["hint"] = "; ".join(notes)
    if stderr:
        error["stderr"] = stderr
    return {"error": error}


def report(exc: BaseException, *, json: bool, debug: bool, seen_stderr: bool = False) -> int:
    """Report a failure and return its exit code.

    ``seen_stderr``: the server's stderr was passed through, so its end is not repeated.
    """
    code = exit_code(exc)
    if debug:
        import traceback

        traceback.print_exception(exc)
    if isinstance(exc, KeyboardInterrupt | Terminated):
        if json:
            print_json(
                {"error": {"type": "Interrupted", "message": "interrupted", "exit_code": code}}
            )
        else:
            complain("interrupted" if code == Exit.INTERRUPTED else f"ended by {exc}")
        return code
    if json:
        print_json(as_object(exc))
        return code
    text, stderr = describe(exc)
    if seen_stderr and stderr and stderr[-1].startswith(_PREFIX):
        return code  # a `wirespeed serve` that this command started has reported its reason
    if stderr and not seen_stderr:
        complain(text + "; its stderr ends:")
        for line in stderr:
            sys.stderr.write(f"    {printable(line)}\n")
    else:
        complain(text)
    return code


def coloured(stream: Any) -> bool:
    """Whether to colour the output of ``stream``: a terminal, unless the user disabled colours."""
    return bool(
        stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


_COLOURS = {"error": 31, "warning": 33, "note": 36}
_log: Callable[[str, str], None] | None = None


def complain_to(log: Callable[[str, str], None]) -> None:
    """Have `complain` pass its text and level to a function."""
    global _log
    _log = log


def complain(text: str, *, level: str = "error") -> None:
    """Write one line to stderr. ``level`` is error, warning or note."""
    if _log is not None:
        _log(text, level)
        return
    prefix = _PREFIX
    if coloured(sys.stderr):
        prefix = f"\x1b[1;{_COLOURS[level]}m{prefix}\x1b[0m"
    sys.stdout.flush()
    if sys.stderr.isatty():
        text = _wrapped(text)
    sys.stderr.write(f"{prefix} {text}\n")


def print_lines(text: str) -> None:
    """Write lines to stderr as they are; they are one message where `complain` is diverted."""
    if _log is not None:
        _log(text, "error")
    else:
        sys.stderr.write(text)


def _wrapped(text: str) -> str:
    """Return a text with line breaks between words, where the terminal would break words."""
    import textwrap

    with contextlib.suppress(OSError):
        width = os.get_terminal_size(sys.stderr.fileno()).columns
        if len(_PREFIX) + 1 + len(text) > width > 40:
            return textwrap.fill(
                text,
                width - 1,
                initial_indent=" " * (len(_PREFIX) + 1),
                subsequent_indent="  ",
                break_long_words=False,
                break_on_hyphens=False,
            ).lstrip()
    return text


def print_json(value: Any) -> None:
    """Write one JSON value to stdout: on one line, or indented on a terminal."""
    import msgspec

    data = msgspec.json.encode(value, enc_hook=str)
    if sys.stdout.isatty():
        sys.stdout.write(printable(msgspec.json.format(data).decode(), lines=True) + "\n")
        return
    sys.stdout.flush()
    sys.stdout.buffer.write(data + b"\n")  # JSON is UTF-8 in every locale


def output_lost(exc: OSError) -> int | None:
    """Return the exit code of a failed write to stdout; None for any other failure.

    A closed pipe is not a failure: the process ends as by SIGPIPE, without a message.
    """
    if exc.errno not in _OUTPUT_ERRORS or exc.filename is not None:
        return None
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)  # buffered output must not fail again at exit
    os.close(null)
    if exc.errno == errno.EPIPE:
        return Exit.BROKEN_PIPE
    complain(f"cannot write the output: {exc.strerror}")
    return Exit.OUTPUT


_OUTPUT_ERRORS = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
