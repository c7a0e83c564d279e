"""The limits of one connection."""

import msgspec

from wirespeed._exports import set_public_home


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one connection. Reaching one pauses reading or is an error that names it.

    Attributes:
        max_message: Bytes of one message. A longer one gets ``-32600``, and the connection lives.
        max_depth: Levels of JSON nesting, 1 to 1024. Deeper messages get ``-32600``.
        max_values: JSON values of one message or batch, counted as the commas and opening brackets
            outside its strings. A text with more gets ``-32600``. Decoded, many small values take
            some thirty times the bytes of their text.
        max_batch: Messages of one batch (2025-03-26). Longer batches get one ``-32600``.
        max_id: Bytes of the id of a request, as JSON text. A longer one gets ``-32600``.
        max_in_flight: Requests of the peer that are worked on at once; further ones wait.
        max_in_flight_bytes: Bytes of the messages of these requests: while they are at or above
            it, further requests wait. Also bytes of answers that wait for the rest of their
            batches (2025-03-26): while they are at or above it, requests in batches are refused
            with ``-31000``.
        max_waiting: Requests that wait. At the limit reading pauses; while a request of ours awaits
            its answer, further requests are refused with ``-31000`` instead.
        max_waiting_bytes: Bytes of the requests that wait.
        max_outstanding: Our own requests that are not answered, below 2**20.
        output_high: Bytes queued for the peer at which requests of the peer and callers wait.
        output_low: Bytes queued at which they go on.
    """

    max_message: int = 64 * 1024 * 1024
    max_depth: int = 128
    max_values: int = 2_000_000
    max_batch: int = 1000
    max_id: int = 1024
    max_in_flight: int = 1024
    max_in_flight_bytes: int = 64 * 1024 * 1024
    max_waiting: int = 4096
    max_waiting_bytes: int = 1024 * 1024
    max_outstanding: int = 65536
    output_high: int = 1024 * 1024
    output_low: int = 256 * 1024

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if self.max_depth > 1024:
            raise ValueError("max_depth must be at most 1024")
        if self.max_message > 2**31:
            raise ValueError("max_message must be at most 2 GiB")
        if self.max_outstanding >= 2**20:
            raise ValueError("max_outstanding must be below 2**20")
        if self.output_low > self.output_high:
            raise ValueError("output_low must not be above output_high")


set_public_home(globals())
