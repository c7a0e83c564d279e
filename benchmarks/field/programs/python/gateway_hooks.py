"""Hooks as functions, which let every call pass."""

from wirespeed.proxy import HookCall


async def before(call: HookCall) -> None:
    return None


class Both:
    async def before(self, call: HookCall) -> None:
        return None

    async def after(self, call: HookCall, result: dict[str, object]) -> None:
        return None


both = Both()


def key_of(name: str) -> str:
    """A user's token at the server, as a vault has it."""
    return f"server-{name}"
