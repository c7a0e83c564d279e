from typing import final

@final
class BatchReply: ...

__pyx_capi__: dict[str, object]  # what other compiled modules cimport
