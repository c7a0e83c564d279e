from wirespeed._core.envelope import Message
from wirespeed.protocol.messages import RoundInput, TaskInput
from wirespeed.protocol.revisions import Revision

__pyx_capi__: dict[str, object]  # what other compiled modules cimport

def check_envelope(m: Message) -> None: ...
def described(
    m: Message, negotiated: Revision | None
) -> tuple[str, str | None, str | None, bytes]: ...
def input_of(message: Message, revision: Revision) -> RoundInput | TaskInput | None: ...
