from typing_extensions import disjoint_base

@disjoint_base
class Inlet:
    eof: bool
    @property
    def buffered(self) -> int: ...
    @property
    def bytes_moved(self) -> int: ...
