"""The messages that the engine is measured with, made the same on every machine.

Ids and texts vary from message to message and keep their length, so that nothing can be
answered from the message before.
"""

import json
from collections.abc import Iterator

SMALL_LENGTH = 164
CHUNK_MESSAGES = 2000
STRING_LENGTH = 64 * 1024
FIRST_ID = 100_000

WORDS = (
    "alpha", "bravo", "delta", "eagle", "fjord", "gamma", "hotel", "india",
    "joker", "karma", "lemon", "mango", "north", "ocean", "piano", "queen",
)  # fmt: skip


def dumps(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def call(number: int, tool: str, arguments: dict[str, object]) -> dict[str, object]:
    params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": number}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


def words(seed: int, length: int) -> str:
    """Deterministic words, exactly `length` characters."""
    taken: list[str] = []
    size = 0
    state = seed
    while size < length:
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        taken.append(WORDS[state >> 16 & 15])
        size += 6
    return " ".join(taken)[:length].ljust(length, ".")


def small_message(number: int) -> bytes:
    """A tools/call of 164 bytes, without its newline."""
    empty = len(dumps(call(number, "echo", {"text": ""})))
    message = dumps(call(number, "echo", {"text": words(number, SMALL_LENGTH - empty)}))
    assert len(message) == SMALL_LENGTH
    return message


def small_chunk(first: int = FIRST_ID) -> bytes:
    """2,000 messages of 164 bytes, newline-framed."""
    numbers = range(first, first + CHUNK_MESSAGES)
    return b"".join(small_message(number) + b"\n" for number in numbers)


def rows_message(number: int) -> bytes:
    """A tools/call with a table of nested rows, 81 KB."""
    rows = [
        {
            "id": 1000 + row,
            "name": words(number + row, 8),
            "tags": [words(row, 3), words(row + number, 2)],
            "v": (number * 31 + row * 7) % 1000 + 0.5,
            "ok": (row + number) % 2 == 0,
            "n": None,
        }
        for row in range(1020)
    ]
    return dumps(call(number, "table", {"rows": rows}))


def string_message(number: int, length: int = STRING_LENGTH) -> bytes:
    """A tools/call whose one argument is a string of `length` plain characters."""
    return dumps(call(number, "echo", {"text": words(number, length)}))


def big_message(number: int, length: int) -> bytes:
    """As string_message for megabytes: the words repeat after 64 KiB, which is fast to make."""
    block = words(number, STRING_LENGTH)
    text = (block * (length // STRING_LENGTH + 1))[:length]
    return dumps(call(number, "echo", {"text": text}))


def framed(messages: Iterator[bytes]) -> list[bytes]:
    return [message + b"\n" for message in messages]


if __name__ == "__main__":
    print("small", len(small_message(FIRST_ID)), small_message(FIRST_ID).decode())
    print("chunk", len(small_chunk()))
    print("rows", len(rows_message(FIRST_ID)), rows_message(FIRST_ID)[:200].decode())
    print("string", len(string_message(FIRST_ID)))
