"""wirespeed's own Client over stdio, or by a URL; driven as the rivals are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from _client_load import Call, calling, main

from wirespeed import Client, Stdio


@asynccontextmanager
async def open_client(command: list[str]) -> AsyncIterator[Call]:
    target = command[0] if "://" in command[0] else Stdio(command[0], command[1:])
    async with Client(target, era="legacy") as client:
        yield calling(client.call_tool)


if __name__ == "__main__":
    main(open_client)
