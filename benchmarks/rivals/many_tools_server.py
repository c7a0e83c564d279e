"""wirespeed's server with a thousand typed tools, for the benchmark."""

from typing import Any

from wirespeed import Server

N = 1000
SOURCE = '''
async def tool_{n}(
    name: str, amount: float = {n}.5, tags: list[str] | None = None, deep: bool = False
) -> dict[str, float]:
    """Tool number {n}: does what its arguments say.

    Args:
        name: What it is about.
        amount: How much of it.
        tags: Words to find it by.
        deep: Whether to look below the surface.
    """
    return {{name: amount}}
'''

server = Server("many", version="1")
for n in range(N):
    space: dict[str, Any] = {}
    exec(SOURCE.format(n=n), space)
    server.tool(space[f"tool_{n}"])

if __name__ == "__main__":
    server.run()
