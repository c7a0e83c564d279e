from enum import IntEnum

class CloseCode(IntEnum):
    NORMAL = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    UNSUPPORTED = 1003
    NO_CODE = 1005
    VANISHED = 1006
    BAD_TEXT = 1007
    POLICY = 1008
    TOO_BIG = 1009
    TRY_AGAIN = 1013

def describe(code: int) -> str: ...
