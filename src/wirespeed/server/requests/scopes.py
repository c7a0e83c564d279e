"""Which scopes a request needs: ``scopes=`` of tools, prompts, resources and templates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes

if TYPE_CHECKING:
    from wirespeed.server.requests.call import Call
    from wirespeed.transport.options import User


def grants(user: User | None, scopes: Iterable[str] | None) -> bool:
    """Whether a user of a listener has scopes. A client without a name has none."""
    return not scopes or (user is not None and user.scopes.issuperset(scopes))


def check_scopes(call: Call, scopes: tuple[str, ...], what: str) -> None:
    """ProtocolError -31003: the access token of a request lacks scopes. Over HTTP the response is
    403 with a challenge (RFC 6750 section 3.1).

    Clients of stdio and of the same process are not asked: no transport tells who they are.

    Args:
        call: The request.
        scopes: What it needs besides the scopes of every request.
        what: What needs them, for people.
    """
    peer = call.peer
    if peer is None or grants(peer.user, scopes):
        return
    authority = call.connection.service.auth
    text = f"{what} needs the scopes {' '.join(scopes)}"
    data: dict[str, Any] = {"error": "insufficient_scope", "scope": " ".join(scopes)}
    if authority is None:
        challenge = f'Bearer error="insufficient_scope", scope="{data["scope"]}"'
    else:
        needed = dict.fromkeys((*authority.scopes, *scopes))
        data["scope"] = " ".join(needed)
        data["resource_metadata"] = authority.metadata_url
        challenge = authority.challenge("insufficient_scope", None, needed)
    tell = getattr(call.route, "challenge", None)  # of a request over HTTP
    if tell is not None:
        tell(challenge)
    raise ProtocolError(codes.INSUFFICIENT_SCOPE, text, data)
