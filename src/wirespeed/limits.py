"""The limits of one connection."""

from typing import Any, Self

from wirespeed._exports import set_public_home


class Limits:
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

    __slots__ = (  # noqa: RUF023 (the order in which they are told)
        "max_message", "max_depth", "max_values", "max_batch", "max_id", "max_in_flight",
        "max_in_flight_bytes", "max_waiting", "max_waiting_bytes", "max_outstanding",
        "output_high", "output_low",
    )  # fmt: skip

    max_message: int
    max_depth: int
    max_values: int
    max_batch: int
    max_id: int
    max_in_flight: int
    max_in_flight_bytes: int
    max_waiting: int
    max_waiting_bytes: int
    max_outstanding: int
    output_high: int
    output_low: int

    def __init__(
        self,
        *,
        max_message: int = 64 * 1024 * 1024,
        max_depth: int = 128,
        max_values: int = 2_000_000,
        max_batch: int = 1000,
        max_id: int = 1024,
        max_in_flight: int = 1024,
        max_in_flight_bytes: int = 64 * 1024 * 1024,
        max_waiting: int = 4096,
        max_waiting_bytes: int = 1024 * 1024,
        max_outstanding: int = 65536,
        output_high: int = 1024 * 1024,
        output_low: int = 256 * 1024,
    ) -> None:
        given = locals()
        for name in self.__slots__:
            if given[name] < 1:
                raise ValueError(f"{name} must be at least 1")
            object.__setattr__(self, name, given[name])
        if max_depth > 1024:
            raise ValueError("max_depth must be at most 1024")
        if max_message > 2**31:
            raise ValueError("max_message must be at most 2 GiB")
        if max_outstanding >= 2**20:
            raise ValueError("max_outstanding must be below 2**20")
        if output_low > output_high:
            raise ValueError("output_low must not be above output_high")

    def asdict(self) -> dict[str, int]:
        """Return the limits by name."""
        return {name: getattr(self, name) for name in self.__slots__}

    def replace(self, **changes: int) -> Self:
        """Return these limits with others in place of some."""
        return type(self)(**(self.asdict() | changes))

    __replace__ = replace  # of `copy.replace`

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Limits do not change: {name} is given when they are made")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"Limits do not change: {name} stays")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Limits) and other.asdict() == self.asdict()

    def __hash__(self) -> int:
        return hash(tuple(self.asdict().values()))

    def __repr__(self) -> str:
        return f"Limits({', '.join(f'{name}={value}' for name, value in self.asdict().items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.asdict(),)


def _made(limits: dict[str, int]) -> Limits:  # of a pickle
    return Limits(**limits)


set_public_home(globals())
