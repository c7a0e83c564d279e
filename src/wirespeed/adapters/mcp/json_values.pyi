from collections.abc import Callable
from typing import Any

def use_json(from_json: Callable[[bytes], Any], to_json: Callable[..., bytes]) -> None: ...
