from typing import Any, final

@final
class Choice:
    def take(self, servers: list[Any], clients: list[Any]) -> None: ...
