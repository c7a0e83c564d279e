from asyncio import AbstractEventLoop, Future
from typing import Any

from typing_extensions import disjoint_base

from wirespeed._core.framing.http.head import HttpHead
from wirespeed._core.session import Session
from wirespeed.transport.link import Endpoint
from wirespeed.transport.service import Peer

SHUTTING_DOWN: int

@disjoint_base
class Served(Endpoint):
    closed: Future[BaseException | None]
    draining: bool
    head: HttpHead | None
    peer: Peer | None
    principal: bytes | None
    revision: Any
    shared: bool
    def __init__(self, session: Session, loop: AbstractEventLoop) -> None: ...
    @property
    def session(self) -> Session: ...
    @property
    def loop(self) -> AbstractEventLoop: ...
    def drain(self) -> None: ...
    def cut_off(self, why: str) -> None: ...
    def abort(self) -> None: ...
