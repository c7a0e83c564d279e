"""Two tools of LiteMCP on two paths of one port, behind a token; prints the URL of the first."""

import asyncio
from typing import Annotated

from msgspec import Meta

from wirespeed.litemcp import LiteServer, run

calculator = LiteServer(
    "Calculator", description="A simple calculator", example="Calculate the sum of 2 and 3"
)
echo = LiteServer("echo")


@calculator.tool
async def add(
    a: Annotated[float, Meta(description="The first number", examples=[2])],
    b: Annotated[float, Meta(description="The second number", examples=[3])],
) -> float:
    return a + b


@echo.tool
async def give_back(text: str, ms: int = 0) -> str:
    await asyncio.sleep(ms / 1000)
    if text == "fail":
        raise ValueError("boom")
    return text


if __name__ == "__main__":
    run(
        "ws://127.0.0.1:0",
        {"/calculator": calculator, "/tools/echo": echo},
        token="secret",
        on_listening=lambda urls: print(urls[0], flush=True),
    )
