from typing_extensions import disjoint_base

from wirespeed._core.slab import InputBudget

@disjoint_base
class Inlet:
    eof: bool
    budget: InputBudget | None
    @property
    def buffered(self) -> int: ...
    @property
    def bytes_moved(self) -> int: ...
