from typing import final

@final
class Page:
    def __init__(self, origin: bytes, host: bytes | None) -> None: ...
