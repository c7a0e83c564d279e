from typing_extensions import disjoint_base

from wirespeed._core.framing.inlet import Inlet

@disjoint_base
class Framer(Inlet):
    @property
    def max_frame(self) -> int: ...
    @property
    def needs_goodbye(self) -> bool: ...
    @property
    def over(self) -> bool: ...
