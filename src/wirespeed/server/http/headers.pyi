from wirespeed._core.envelope import Message
from wirespeed._core.framing.http.head import HttpHead
from wirespeed._core.slab import Lease
from wirespeed.protocol.header_values import ParamField

__pyx_capi__: dict[str, object]  # what other compiled modules cimport

def copy_of(head: HttpHead) -> HttpHead: ...
def check_headers(head: HttpHead, message: Message) -> None: ...
def check_params(
    head: HttpHead, fields: tuple[ParamField, ...], arguments: Lease | None
) -> None: ...
