from typing import final

from wirespeed._core.framing.writer import FrameWriter
from wirespeed.transport.http.exchange import Exchange

@final
class NoticeWriter(FrameWriter): ...

@final
class McpExchange(Exchange): ...
