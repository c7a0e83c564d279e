"""Roots: ask for the directories and files of a client (client/roots of each revision)."""

from __future__ import annotations

from typing import Any

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol.asking import LIST_ROOTS, ListRootsParams, ListRootsResult, Root
from wirespeed.server.asking.input_request import InputRequest

__all__ = ["RootsRequest"]

_result = msgspec.json.Decoder(ListRootsResult).decode


class RootsRequest(InputRequest):
    """Ask for the directories and files that the client considers relevant."""

    __slots__ = ()

    method = LIST_ROOTS
    kind = "roots"

    def params(self) -> ListRootsParams:
        return ListRootsParams()

    @staticmethod
    def decode(data: Any) -> list[Root]:
        return _result(data).roots


set_public_home(globals())
