"""A program that is the model of a server: ``--sample-command``."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import tempfile
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.cli.failures import Exit, Failure, cannot_start, complain, printable, usage
from wirespeed.cli.show import block_text
from wirespeed.protocol.asking import CreateMessageResult, blocks_of

if TYPE_CHECKING:
    from wirespeed.types import SampleParams

_VARIABLE = "WIRESPEED_SAMPLE"
_MAX_ANSWER = 1 << 26  # bytes


class SampleCommand:
    """A command that answers for a model.

    The text of the conversation is its stdin. The variable WIRESPEED_SAMPLE names a file with the
    whole request in JSON. Its stdout is the answer: a text, or a JSON object with ``role``,
    ``content`` and ``model``. A status other than 0 is a failure.

    Failure (2): the command is empty, or has an open quote.
    """

    def __init__(self, command: str) -> None:
        try:
            self._words = shlex.split(command)
        except ValueError as exc:
            raise usage(f"--sample-command: {str(exc).lower()}") from None
        if not self._words:
            raise usage("--sample-command is empty")

    async def answer(self, request: SampleParams) -> CreateMessageResult:
        """Run the command for a request. Failure (3): it cannot be started, or failed."""
        complain(f"the server asks a model; running {self._words[0]}", level="note")
        with tempfile.NamedTemporaryFile("wb", prefix="wirespeed-", suffix=".json") as file:
            file.write(msgspec.json.encode(request))
            file.flush()
            out = await self._run(conversation(request).encode(), file.name)
        return result_of(out, self._words[0])

    async def _run(self, text: bytes, path: str) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env={**os.environ, _VARIABLE: path},
                start_new_session=True,
            )
        except OSError as exc:
            why = exc.strerror or str(exc)
            raise cannot_start(f"--sample-command: {self._words[0]}: {why}") from None
        try:
            out, _ = await process.communicate(text)
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, 9)
                await process.wait()
        if process.returncode:
            status = process.returncode
            how = f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
            raise Failure(
                f"--sample-command: {self._words[0]} {how}", Exit.UNREACHABLE, "SampleError"
            )
        if len(out) > _MAX_ANSWER:
            raise Failure(
                "--sample-command: the answer is too long", Exit.UNREACHABLE, "SampleError"
            )
        return out


def conversation(request: SampleParams) -> str:
    """Return the text of a request: the system prompt, and the messages. A single message stands
    alone; several have the names of their roles."""
    parts = [request.system_prompt] if request.system_prompt else []
    several = len(request.messages) > 1
    for message in request.messages:
        text = "\n".join(_block(block) for block in blocks_of(message.content))
        parts.append(f"{message.role}: {text}" if several else text)
    return "\n\n".join(parts) + "\n"


def _block(block: Any) -> str:
    try:
        return block_text(block)
    except AttributeError:  # a tool's use or result
        return msgspec.json.encode(block).decode()


def result_of(out: bytes, program: str) -> CreateMessageResult:
    """Return the message that a program wrote."""
    text = out.decode(errors="replace").strip()
    with contextlib.suppress(ValueError, RecursionError):
        value = json.loads(text)
        if isinstance(value, dict) and {"role", "content", "model"} <= value.keys():
            try:
                return msgspec.convert(value, CreateMessageResult)
            except msgspec.ValidationError as exc:
                raise usage(
                    f"--sample-command: the answer is not a message: {printable(str(exc))}"
                ) from None
    from wirespeed.types import Text

    return CreateMessageResult("assistant", Text(text), os.path.basename(program), "endTurn")
