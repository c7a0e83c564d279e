"""The bundled servers on a port, in a child process that ends with this process."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator

from wirespeed.cli.failures import cannot_start, printable

# Seconds
_START_TIMEOUT = 30.0
_END_TIMEOUT = 5.0


@contextlib.asynccontextmanager
async def bundled() -> AsyncIterator[list[str]]:
    """Start a child that runs `wirespeed.demo.network`, and yield its URLs for MCP and for LiteMCP.
    Failure (3): the child does not start."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "wirespeed.demo.network", stdin=PIPE, stdout=PIPE, stderr=PIPE
    )
    try:
        # Meanwhile, load the modules of the first connection, so that its time is not measured.
        import wirespeed.client.connection.network_channels
        import wirespeed.transport.websocket.upgrade  # noqa: F401

        yield await _urls(child)
    finally:
        await _end(child)


async def _urls(child: Process) -> list[str]:
    assert child.stdout is not None
    assert child.stderr is not None
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            lines = [await child.stdout.readline() for _ in range(2)]
            if lines[-1]:
                return [line.decode().strip() for line in lines]
            said = (await child.stderr.read()).decode(errors="replace").strip()
    except TimeoutError:
        text = f"the bundled server does not listen after {_START_TIMEOUT:g} s"
        raise cannot_start(text) from None
    reason = printable(said.rpartition("\n")[2]) or "it wrote nothing to stderr"
    raise cannot_start(f"the bundled server cannot be started: {reason}")


async def _end(child: Process) -> None:
    """Close the child's stdin, which tells the child to end, and wait for its end."""
    assert child.stdin is not None
    child.stdin.close()
    try:
        async with asyncio.timeout(_END_TIMEOUT):
            await child.communicate()  # reads the rest of the output
    except TimeoutError:
        child.kill()
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
