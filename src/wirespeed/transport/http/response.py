"""What a function of one's own answers to an HTTP request."""

from collections.abc import Mapping

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.transport.options import LENGTH, check_headers

__all__ = ["HttpResponse"]


class HttpResponse(msgspec.Struct, frozen=True):
    """The answer of a function in `HttpOptions.routes`.

    Attributes:
        status: The HTTP status, 200 to 599.
        body: Text is encoded as UTF-8.
        headers: Header fields. The length and the connection's own fields are written by the
            server.
        media_type: The ``Content-Type``, unless ``headers`` has one.
    """

    status: int = 200
    body: bytes | str = b""
    headers: Mapping[str, str] = msgspec.field(default_factory=dict)
    media_type: str = "text/plain; charset=utf-8"

    def __post_init__(self) -> None:
        if not 200 <= self.status <= 599:
            raise ValueError("the status of a response is 200 to 599")
        if not isinstance(self.body, (bytes, str)):
            raise TypeError(f"the body is bytes or text, not {type(self.body).__name__}")
        check_headers(self.headers, (*LENGTH, "connection"))
        check_headers({"Content-Type": self.media_type})

    @property
    def content(self) -> bytes:
        """The bytes of the body."""
        return self.body.encode() if isinstance(self.body, str) else self.body

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The header fields, with Content-Type where there is a body."""
        found = list(self.headers.items())
        if self.body and not any(name.lower() == "content-type" for name in self.headers):
            found.insert(0, ("Content-Type", self.media_type))
        return found


set_public_home(globals())
