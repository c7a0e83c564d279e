"""wirespeed's own Client over WebSocket or HTTP, by the URL; driven as the rivals are."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from _client_load import Call, main

from wirespeed import Client


@asynccontextmanager
async def open_client(command: list[str]) -> AsyncIterator[Call]:
    async with Client(command[0], era="legacy") as client:
        call_tool = client.call_tool

        async def call(text: str) -> str:
            result = await call_tool("echo", {"text": text})
            if result.is_error:
                raise RuntimeError("isError is set")
            return result.content[0].text

        yield call


if __name__ == "__main__":
    main(open_client)
