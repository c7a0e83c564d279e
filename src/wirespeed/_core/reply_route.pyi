from typing_extensions import disjoint_base

from wirespeed._core.framing.writer import FrameWriter

@disjoint_base
class ReplyRoute(FrameWriter):
    @property
    def n_open(self) -> int: ...
    @property
    def parent(self) -> ReplyRoute | None: ...
    @property
    def holds(self) -> bool: ...
