from typing_extensions import disjoint_base

from wirespeed._core.slab import InputBudget

@disjoint_base
class FrameWriter: ...

@disjoint_base
class Inlet:
    eof: bool
    budget: InputBudget | None
    @property
    def buffered(self) -> int: ...
    @property
    def bytes_moved(self) -> int: ...

@disjoint_base
class Framer(Inlet):
    @property
    def max_frame(self) -> int: ...
    @property
    def needs_goodbye(self) -> bool: ...
    @property
    def over(self) -> bool: ...
