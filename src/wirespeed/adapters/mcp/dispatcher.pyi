import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, final

from typing_extensions import disjoint_base

from wirespeed._core.framing.base import Framer
from wirespeed.peer.connection import SessionConnection
from wirespeed.transport.link import Link
from wirespeed.transport.taskpool import Completion, TaskPool

def use_sdk(
    *,
    mcp_error: Callable[..., BaseException],
    no_back_channel: Callable[[str], BaseException],
    handler_error_data: Callable[[BaseException], Any],
    run_notify_intercept: Callable[..., bool],
    from_json: Callable[[bytes], Any],
    to_json: Callable[..., bytes],
    event: Callable[[], Any],
    shielded: Callable[[Any], bool],
    traced: Callable[[], bool],
    traced_request: Callable[..., Awaitable[Any]],
) -> None: ...
async def until_done(future: asyncio.Future[Any]) -> None: ...

@final
class MessageContext(Completion):
    def __init__(self, /, *args: Any, **kwargs: Any) -> None: ...
    @property
    def request_id(self) -> int | str | None: ...
    @property
    def method(self) -> str: ...
    @property
    def exchange(self) -> Any: ...
    @property
    def envelope(self) -> bytes | None: ...
    @property
    def is_routed(self) -> bool: ...
    @property
    def transport(self) -> Any: ...
    @property
    def can_send_request(self) -> bool: ...
    @property
    def message_metadata(self) -> Any: ...
    @property
    def cancel_requested(self) -> Any: ...
    @property
    def modern(self) -> bool: ...
    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None
    ) -> None: ...
    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None
    ) -> dict[str, Any]: ...
    async def progress(
        self, progress: float, total: float | None = None, message: str | None = None
    ) -> None: ...
    def refuse_before_serving(self) -> None: ...

@final
class SentRequest:
    @property
    def on_progress(self) -> Any: ...

@disjoint_base
class SdkDispatcher(SessionConnection):
    on_stream_exception: Any
    on_ended: Callable[[], object] | None
    describe: Callable[[MessageContext], Any] | None
    agreed: Callable[[], str] | None
    make_transport: Callable[[MessageContext], Any]
    drains_at_eof: bool
    raises: bool
    interrupts: bool
    names_requests: bool
    asks: bool
    parks: bool
    failure: BaseException | None
    @property
    def _closed(self) -> bool: ...
    def __init__(
        self,
        service: Any,
        loop: asyncio.AbstractEventLoop,
        *,
        role: str = "server",
        framer: Framer | None = None,
        pool: TaskPool | None = None,
        make_link: Callable[[Any], Link] | None = None,
    ) -> None: ...
    def serve(
        self,
        on_request: Callable[..., Any],
        on_notify: Callable[..., Any],
        on_modern: Callable[..., Any] | None = None,
        on_modern_notify: Callable[..., Any] | None = None,
        on_stateless: Callable[..., Any] | None = None,
        *,
        intercept: Callable[..., bool] | None = None,
        context: Any = None,
    ) -> None: ...
    async def run(  # type: ignore[override]
        self,
        on_request: Callable[..., Any],
        on_notify: Callable[..., Any],
        on_notify_intercept: Callable[..., bool] | None = None,
        *,
        task_status: Any = None,
    ) -> None: ...
    async def serve_until_closed(self, task_status: Any = None) -> None: ...
    def stop(self) -> None: ...
    def fail_sent(self, number: int, exc: BaseException) -> None: ...
    def leave(self) -> None: ...
    def fail(self, exc: BaseException) -> None: ...
    def transport_of(self, context: MessageContext) -> Any: ...
    def next_request_id(self) -> int: ...
    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None
    ) -> dict[str, Any]: ...
    async def ask(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        opts: Any,
        about: int,
        traced: bool = False,
    ) -> dict[str, Any]: ...
    def give_up(self, number: int, opts: Any, reason: str, about: int) -> None: ...
    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: Any = None
    ) -> None: ...
    async def tell(self, method: str, params: Mapping[str, Any] | None, about: int) -> None: ...
