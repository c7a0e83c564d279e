"""wirespeed's own server for the benchmark: a typed async echo tool and the same inline."""

from wirespeed import Server

server = Server("bench", version="1")


@server.tool
async def echo(text: str) -> str:
    return text


@server.tool(inline=True)
def echo_inline(text: str) -> str:
    return text


if __name__ == "__main__":
    server.run()
