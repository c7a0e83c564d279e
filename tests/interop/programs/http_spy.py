"""Stands between clients and a server over Streamable HTTP, and writes down what each says.

    python http_spy.py FOLDER [NAME=VALUE…] -- command args…

As `ws_spy.py`: the variables are for the server, whose first line on stdout must be the URL that
it listens at; the spy's own first line is the URL for clients. Bytes go through unchanged. SIGTERM
goes on to the server, and the spy ends when the server has.

Makes FOLDER/<time>-<pid>/ with what `spy.py` makes: ``wire`` (a line a message: a body of JSON, or
an event), ``stderr``, ``exit``; also ``heads`` (JSON, a line each: "> " and a request's lines, "< "
and a response's).
"""

import json

from between import Note, stand_between


class Reader:
    """Reads one direction of a connection: heads of HTTP and their bodies."""

    def __init__(self, mark: bytes, note: Note, methods: list[str], *, requests: bool) -> None:
        self.mark = mark
        self.note = note
        self.methods = methods  # of the requests whose responses are still to come
        self.requests = requests
        self.rest = b""
        self.body = b""
        self.events = False
        self.left: int | None = 0  # bytes of the body; None: up to the end of the connection
        self.step = self.head

    def feed(self, chunk: bytes) -> None:
        self.rest += chunk
        while self.step():
            pass

    def line(self) -> bytes | None:
        """The next line, if it is whole."""
        line, end, rest = self.rest.partition(b"\r\n")
        if not end:
            return None
        self.rest = rest
        return line

    def head(self) -> bool:
        head, end, rest = self.rest.partition(b"\r\n\r\n")
        if not end:
            return False
        self.rest = rest
        lines = head.decode("latin-1").split("\r\n")
        self.note("heads", self.mark + json.dumps(lines).encode())
        fields = {
            name.lower(): value.strip() for name, _, value in (x.partition(":") for x in lines[1:])
        }
        self.body = b""
        self.events = fields.get("content-type", "").startswith("text/event-stream")
        self.left = int(fields.get("content-length", 0))
        self.step = self.plain
        if self.requests:
            self.methods.append(lines[0].split()[0])
        else:
            status = lines[0].split()[1]
            if status.startswith("1"):
                return True
            bodiless = self.methods.pop(0) == "HEAD" or status in ("204", "304")
            if bodiless:
                self.left = 0
            elif "content-length" not in fields and "transfer-encoding" not in fields:
                self.left = None
        if fields.get("transfer-encoding", "").lower() == "chunked":
            self.step = self.size
        return True

    def take(self) -> bool:
        """Take what is there of ``left`` bytes; whether these are all."""
        length = len(self.rest) if self.left is None else min(self.left, len(self.rest))
        self.body += self.rest[:length]
        self.rest = self.rest[length:]
        if self.events:
            self.body = self.body.replace(b"\r\n", b"\n")
            *events, self.body = self.body.split(b"\n\n")
            for event in events:
                lines = [x[5:].removeprefix(b" ") for x in event.split(b"\n") if x[:5] == b"data:"]
                self.message(b"\n".join(lines))
        if self.left is not None:
            self.left -= length
        return self.left == 0

    def plain(self) -> bool:
        if not self.take():
            return False
        self.end()
        return bool(self.rest)

    def size(self) -> bool:
        if (line := self.line()) is None:
            return False
        self.left = int(line.partition(b";")[0], 16)
        self.step = self.chunk if self.left else self.trailer
        return True

    def chunk(self) -> bool:
        if self.left and not self.take():
            return False
        if self.line() is None:
            return False
        self.step = self.size
        return True

    def trailer(self) -> bool:
        while line := self.line():
            pass
        if line is None:
            return False
        self.end()
        return bool(self.rest)

    def end(self) -> None:
        if not self.events:
            self.message(self.body)
        self.step = self.head

    def message(self, data: bytes) -> None:
        """Note what is JSON, and not what is only text of an error."""
        if data.lstrip()[:1] in (b"{", b"["):
            self.note("wire", self.mark + data.replace(b"\n", b" "))


def readers(note: Note) -> tuple[Reader, Reader]:
    methods: list[str] = []
    return (
        Reader(b"> ", note, methods, requests=True),
        Reader(b"< ", note, methods, requests=False),
    )


if __name__ == "__main__":
    stand_between(("wire", "heads"), readers)
