"""`InputRequest`: what elicitation, sampling and roots have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import msgspec

from wirespeed.errors import InvalidResponse, MissingCapability
from wirespeed.protocol import codes
from wirespeed.protocol.asking import Params, missing_capability
from wirespeed.protocol.revisions import REVISIONS
from wirespeed.schema.json_schema import describe_validation_error
from wirespeed.schema.python_types import enc_hook

__all__ = ["InputRequest", "missing"]

_encode = msgspec.json.Encoder(enc_hook=enc_hook).encode


def missing(required: dict[str, Any], version: str, text: str | None = None) -> MissingCapability:
    """The error for a request that the client did not declare, with the code of its era."""
    modern = REVISIONS[version].modern
    code = codes.MISSING_CLIENT_CAPABILITY if modern else codes.INTERNAL_ERROR
    return MissingCapability(required, text, code=code)


class InputRequest:
    """A request to the client (``InputRequest`` of 2026-07-28)."""

    __slots__ = ()

    method: ClassVar[str]
    kind: ClassVar[str]
    """The beginning of its key, if the engine chooses the key."""

    def params(self) -> Params:
        """The parameters, as the newest revision has them."""
        raise NotImplementedError

    def fit(self, params: Params, version: str, capabilities: Mapping[str, Any]) -> Params:
        """*params* in the form of another revision and of this client."""
        return params

    def encoded(self, capabilities: Mapping[str, Any], version: str) -> bytes:
        """The parameters as JSON text for a client. MissingCapability: it did not declare this."""
        params = self.params()
        required = missing_capability(self.method, params, capabilities, version)
        if required is not None:
            raise missing(required, version)
        return _encode(self.fit(params, version, capabilities))

    def answer(self, data: bytes) -> Any:
        """The client's result, typed. InvalidResponse: it does not fit."""
        return self.plain_answer(data)

    def plain_answer(self, data: bytes) -> Any:
        """The client's result without the form's type. InvalidResponse: it is malformed."""
        try:
            return self.decode(data)
        except (msgspec.DecodeError, RecursionError) as exc:
            fault = describe_validation_error(exc, "result")
            raise InvalidResponse(f"the client's answer to {self.method}: {fault}") from exc

    @staticmethod
    def decode(data: Any) -> Any:
        """A result as the client sent it. `msgspec.DecodeError`: it is malformed."""
        raise NotImplementedError
