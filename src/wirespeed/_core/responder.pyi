from collections.abc import Callable
from typing import Any

from typing_extensions import disjoint_base

from wirespeed._core.envelope import Message
from wirespeed._core.inflight import InFlight
from wirespeed._core.outbox import _Data
from wirespeed._core.wire import Wire

__pyx_capi__: dict[str, object]  # what other compiled modules cimport

def encode_data_by(function: Callable[[Any], bytes] | None, /) -> None: ...

@disjoint_base
class Responder(Wire):
    null_ids: bool
    @property
    def inflight(self) -> InFlight: ...
    @property
    def n_cancelled(self) -> int: ...
    @property
    def messages_out(self) -> int: ...
    def send_result(self, request: Message | int, body: _Data, /) -> bool: ...
    def send_error_object(self, request: Message | int, body: _Data, /) -> bool: ...
    def send_error(
        self, request: Message | int, code: int, message: str, data: object = None, /
    ) -> bool: ...
    def set_token(self, request: Message | int, token: object, /) -> bool: ...
    def cancelled_done(self) -> None: ...
