from collections.abc import Awaitable, Iterable
from typing import Never, TypeVar, final

from wirespeed.server.middleware.functions import Middleware
from wirespeed.server.middleware.inbound import InboundRequest, Reply
from wirespeed.server.requests.call import AnswerSink, Call, Operation, Pipeline

_T = TypeVar("_T")

@final
class Step:
    def __call__(self, request: InboundRequest) -> Awaitable[Reply | None]: ...

@final
class HandlerAnswer(AnswerSink):
    def __init__(self, *args: object, **kwargs: object) -> Never: ...

@final
class Chain(Pipeline):
    def __init__(self, links: Iterable[Middleware]) -> None: ...
    @property
    def links(self) -> tuple[Middleware, ...]: ...

@final
class ChainCall(Call): ...

@final
class Through(Operation):
    def __init__(self, *args: object, **kwargs: object) -> None: ...

async def awaited(work: Awaitable[_T]) -> _T: ...
async def call_next(self: HandlerAnswer) -> Reply | None: ...
