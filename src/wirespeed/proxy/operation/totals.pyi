from collections.abc import Iterable

from wirespeed.proxy.side import Side

def totals(sides: Iterable[Side]) -> dict[str, int]: ...
