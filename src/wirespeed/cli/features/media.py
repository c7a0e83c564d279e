"""Images, sound and other bytes of results: shown by the terminal where it can, else saved."""

from __future__ import annotations

import base64
import contextlib
import functools
import importlib
import io
import mimetypes
import os
import re
import select
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from wirespeed.cli import show
from wirespeed.cli.failures import cannot_start, printable
from wirespeed.protocol.blocks import Audio, EmbeddedResource, Image

VARIABLE = "WIRESPEED_IMAGES"
_PNG = b"\x89PNG\r\n\x1a\n"
_ASK_KITTY = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_ASK_ATTRIBUTES = b"\x1b[c"
_ATTRIBUTES = re.compile(rb"\x1b\[\?([0-9;]*)c")
_ANSWER_TIME = 0.3  # seconds
_CHUNK = 4096  # characters of base64 in one sequence
_UNUSUAL = re.compile(r"[^A-Za-z0-9._-]+")


class Media:
    """The bytes among the results of one command.

    Args:
        name: What the names of the files begin with.
        folder: The folder of ``--save``; None: a terminal shows images or they go into a temporary
            folder, and a pipe gets a description.
    """

    def __init__(self, name: str, folder: str | None) -> None:
        self._name = _UNUSUAL.sub("-", name).strip("-.")[:60] or "result"
        self._folder = folder

    def text(self, block: Any) -> str:
        """Return a content block for people, after its bytes were shown or saved."""
        words = show.block_text(block)
        if isinstance(block, Image | Audio):
            return self._with_bytes(words, block.data, block.mime_type)
        if isinstance(block, EmbeddedResource) and isinstance(block.resource.blob, bytes):
            return self._with_bytes(words, block.resource.blob, block.resource.mime_type or "")
        return words

    def _with_bytes(self, words: str, data: bytes, mime_type: str) -> str:
        if self._folder is None:
            if not sys.stdout.isatty():
                return words
            if mime_type.startswith("image/") and shown(data):
                return words
        return f"{words[:-1]}, saved as {self.save(data, mime_type)}]"

    def save(self, data: bytes, mime_type: str) -> str:
        """Write bytes into a new file, and return its path. Failure (3): it cannot be written."""
        ending = mimetypes.guess_extension(mime_type.partition(";")[0].strip().lower()) or ".bin"
        try:
            if self._folder is None:
                self._folder = tempfile.mkdtemp(prefix="wirespeed-")
            os.makedirs(self._folder, exist_ok=True)
            number = 0
            while True:
                number += 1
                path = os.path.join(self._folder, f"{self._name}-{number}{ending}")
                with contextlib.suppress(FileExistsError), open(path, "xb") as file:
                    file.write(data)
                    return path
        except OSError as exc:
            raise cannot_start(f"cannot write into {self._folder}: {exc.strerror}") from None


# -- terminals ------------------------------------------------------------------------------------


def shown(data: bytes) -> bool:
    """Show an image on the terminal. Returns False if the terminal cannot."""
    way = _way()
    if way is None:
        return False
    sys.stdout.flush()
    return way(data)


@functools.cache
def _way() -> Callable[[bytes], bool] | None:
    """The way in which this terminal shows images; None if it cannot."""
    kind = os.environ.get(VARIABLE, "auto").lower()
    if kind == "auto":
        kind = _kind_of_terminal()
    return {"kitty": _kitty, "iterm2": _iterm2, "sixel": _sixel}.get(kind)


def _kind_of_terminal() -> str:
    if os.environ.get("TERM") == "dumb":
        return "none"
    if os.environ.get("TERM_PROGRAM") == "iTerm.app" or os.environ.get("LC_TERMINAL") == "iTerm2":
        return "iterm2"
    answer = _answer_of_terminal()
    if b"_Gi=31;OK" in answer:
        return "kitty"
    attributes = _ATTRIBUTES.search(answer)
    return "sixel" if attributes is not None and b"4" in attributes[1].split(b";") else "none"


def _answer_of_terminal() -> bytes:
    """Ask the terminal what it can show. Every terminal answers the second question."""
    import termios
    import tty

    try:
        file = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY)
    except OSError:
        return b""
    try:
        before = termios.tcgetattr(file)
        tty.setcbreak(file, termios.TCSANOW)
        try:
            os.write(file, _ASK_KITTY + _ASK_ATTRIBUTES)
            answer, until = b"", time.monotonic() + _ANSWER_TIME
            while _ATTRIBUTES.search(answer) is None:
                left = until - time.monotonic()
                if left <= 0 or not select.select((file,), (), (), left)[0]:
                    break
                answer += os.read(file, 1024)
            return answer
        finally:
            termios.tcsetattr(file, termios.TCSANOW, before)
    except (OSError, termios.error):
        return b""
    finally:
        os.close(file)


def _kitty(data: bytes) -> bool:
    """The graphics protocol of kitty, which takes PNG."""
    if not data.startswith(_PNG):
        png = _as_png(data)
        if png is None:
            return False
        data = png
    text = base64.b64encode(data).decode()
    chunks = [text[at : at + _CHUNK] for at in range(0, len(text), _CHUNK)]
    for number, chunk in enumerate(chunks):
        first = "a=T,f=100,q=2," if number == 0 else ""
        more = 0 if number == len(chunks) - 1 else 1
        sys.stdout.write(f"\x1b_G{first}m={more};{chunk}\x1b\\")
    sys.stdout.write("\n")
    return True


def _iterm2(data: bytes) -> bool:
    """The inline images of iTerm2."""
    text = base64.b64encode(data).decode()
    sys.stdout.write(f"\x1b]1337;File=inline=1;size={len(data)}:{text}\a\n")
    return True


def _sixel(data: bytes) -> bool:
    """Sixel, by textual-image (the extra ``images``)."""
    try:
        renderable: Any = importlib.import_module("textual_image.renderable.sixel")
        with _opened(data) as picture:
            show.console().print(renderable.Image(picture))
    except (ImportError, OSError, ValueError):
        return False
    return True


def _as_png(data: bytes) -> bytes | None:
    """An image of another format as PNG, by Pillow; None without it."""
    try:
        with _opened(data) as picture:
            out = io.BytesIO()
            picture.save(out, "PNG")
            return out.getvalue()
    except (ImportError, OSError, ValueError):
        return None


def _opened(data: bytes) -> Any:
    pillow: Any = importlib.import_module("PIL.Image")  # it is an extra
    return pillow.open(io.BytesIO(data))


def write_text(text: str) -> None:
    """Print a text of one or more lines on stdout: unchanged, or with escaped control characters on
    a terminal."""
    if sys.stdout.isatty():
        text = printable(text, lines=True)
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
