from typing import final

from wirespeed._core.framing.writer import FrameWriter

@final
class WebSocketWriter(FrameWriter): ...
