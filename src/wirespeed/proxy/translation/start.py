"""Which translator serves a client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed.proxy.eras import modern_version
from wirespeed.proxy.translation.legacy_client import LegacyClient
from wirespeed.proxy.translation.modern_client import ModernClient
from wirespeed.proxy.translation.translator import Translator

if TYPE_CHECKING:
    from collections.abc import Callable

    from wirespeed._core.envelope import Message
    from wirespeed.proxy.backend import Backend, Owner
    from wirespeed.proxy.front import Front


def translate(
    join: Callable[[Owner, Front], tuple[Backend, Front]],
    front: Front,
    message: Message,
    own: Backend | None,
) -> None:
    """Serve a client of an era that its server does not speak, from this request on.

    ``join``: What makes both ends of one more connection to the server. ``own``: The client's own,
    which is used instead; None: it has none.
    """
    router = front.router
    if own is None:
        router.left(front)  # the translator is a client of that router now

    def connect(owner: Owner) -> Backend:
        assert isinstance(owner, Translator)
        if own is None:
            backend, owner.inner = join(owner, front)
            return backend
        owner.before, own.owner = own.owner, owner
        own.across = None
        own.admits_legacy = own.admits_modern = False
        return own

    def leave() -> None:
        if own is not None:
            router.left(front)

    kind = LegacyClient if modern_version(message) is None else ModernClient
    translator = kind(front, connect, leave, router if own is None else None)
    to = translator.route(front, message)
    assert to is None  # it connects first
