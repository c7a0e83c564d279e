"""HTTP requests, what we make of them, and where llhttp (httptools) and h11 see something else.

A case has a name, the bytes, and what we do: the status of a refusal, or the bodies of the requests
that we take; no bodies where more input is needed. `DIFFERENCES` names every case of which another
parser's verdict is not ours, with the reason.
"""

from __future__ import annotations

from typing import NamedTuple


class Case(NamedTuple):
    name: str
    data: bytes
    expected: int | list[bytes]


class Difference(NamedTuple):
    parser: str  # "llhttp" or "h11"
    theirs: str  # "takes", "refuses", "waits", or "reads" for other requests than ours
    reason: str
    cases: list[str]  # names: patterns of fnmatch


MAX_BODY = 1000


def head(
    *fields: bytes | str, line: bytes = b"POST /mcp HTTP/1.1", host: bytes | None = b"Host: a"
) -> bytes:
    """A head with these field lines; the Host field is the first one."""
    lines = [line, *([] if host is None else [host])]
    lines += [one if isinstance(one, bytes) else one.encode("latin-1") for one in fields]
    return b"\r\n".join(lines) + b"\r\n\r\n"


GET = b"GET /a HTTP/1.1"
CHUNKED = "Transfer-Encoding: chunked"
CASES: list[Case] = []


def case(name: str, data: bytes, expected: int | list[bytes]) -> None:
    CASES.append(Case(name, data, expected))


def chunked(name: str, body: bytes, expected: int | list[bytes]) -> None:
    case(name, head(CHUNKED) + body, expected)


# -- request lines
for method in ("GET", "DELETE", "HEAD", "OPTIONS", "PUT", "PATCH", "POST"):
    case(f"method {method}", head(line=f"{method} /mcp HTTP/1.1".encode()), [b""])
case("method unknown", head(line=b"BREW /pot HTTP/1.1"), [b""])
case("method lower case", head(line=b"get / HTTP/1.1"), [b""])
case("method with token characters", head(line=b"M-SEARCH / HTTP/1.1"), [b""])
case("method of 33 characters", head(line=b"M" * 33 + b" / HTTP/1.1"), 501)
case("method CONNECT", head(line=b"CONNECT a:443 HTTP/1.1"), 501)
case("method empty", head(line=b" / HTTP/1.1"), 400)
case("target missing", head(line=b"GET HTTP/1.1"), 400)
case("target empty", head(line=b"GET  HTTP/1.1"), 400)
case("two spaces before version", head(line=b"GET /  HTTP/1.1"), 400)
case("tab before target", head(line=b"GET\t/ HTTP/1.1"), 400)
case("tab before version", head(line=b"GET /\tHTTP/1.1"), 400)
case("space behind version", head(line=b"GET / HTTP/1.1 "), 400)
case("word behind version", head(line=b"GET / HTTP/1.1 x"), 400)
case("version missing", head(line=b"GET /"), 400)
case("version HTTP/0.9 form", b"GET /\r\n", 400)
case("version 0.9", head(line=b"GET / HTTP/0.9"), 505)
case("version 1.0", head(line=b"GET / HTTP/1.0", host=None), [b""])
case("version 1.0 with Host", head(line=b"GET / HTTP/1.0"), [b""])
case("version 1.2", head(line=b"GET / HTTP/1.2"), 505)
case("version 2.0", head(line=b"GET / HTTP/2.0"), 505)
case("version 2.0 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505)
case("version 1", head(line=b"GET / HTTP/1"), 400)
case("version 1.10", head(line=b"GET / HTTP/1.10"), 400)
case("version 01.1", head(line=b"GET / HTTP/01.1"), 400)
case("version 1.", head(line=b"GET / HTTP/1."), 400)
case("version lower case", head(line=b"GET / http/1.1"), 400)
case("version of another protocol", head(line=b"GET / RTSP/1.0"), 400)
case("version with comma", head(line=b"GET / HTTP/1,1"), 400)
case("target with query", head(line=b"GET /a?b=c&d HTTP/1.1"), [b""])
case("target with question marks", head(line=b"GET /?a?b HTTP/1.1"), [b""])
case("target with escapes", head(line=b"GET /%C3%A4%00 HTTP/1.1"), [b""])
case("target with fragment", head(line=b"GET /a#b HTTP/1.1"), 400)
case("target with quotes", head(line=b'GET /"a" HTTP/1.1'), 400)
case("target with angle brackets", head(line=b"GET /<a> HTTP/1.1"), 400)
case("target as browsers write queries", head(line=b"GET /?a={b|c}^`\\ HTTP/1.1"), [b""])
case("target with UTF-8", head(line="GET /ä HTTP/1.1".encode()), 400)
case("target without slash", head(line=b"GET mcp HTTP/1.1"), 400)
case("target of dots", head(line=b"GET ../a HTTP/1.1"), 400)
case("target authority", head(line=b"GET a:80 HTTP/1.1"), 400)
case("target double slash", head(line=b"GET //a/b HTTP/1.1"), [b""])
case("target asterisk with OPTIONS", head(line=b"OPTIONS * HTTP/1.1"), [b""])
case("target asterisk with GET", head(line=b"GET * HTTP/1.1"), 400)
case("target two asterisks", head(line=b"OPTIONS ** HTTP/1.1"), 400)
case("target URL", head(line=b"GET http://b:80/mcp?x HTTP/1.1"), [b""])
case("target URL https", head(line=b"GET HTTPS://b HTTP/1.1"), [b""])
case("target URL ws", head(line=b"GET ws://b/ HTTP/1.1"), [b""])
case("target URL IPv6", head(line=b"GET http://[::1]:80/ HTTP/1.1"), [b""])
case("target URL without host", head(line=b"GET http:///a HTTP/1.1"), 400)
case("target URL without slashes", head(line=b"GET http:a HTTP/1.1"), 400)
case("target URL with user", head(line=b"GET http://u@b/ HTTP/1.1"), 400)
case("target URL with port alone", head(line=b"GET http://:80/ HTTP/1.1"), 400)
case("target URL ftp", head(line=b"GET ftp://b/ HTTP/1.1"), 400)
case("target of 8192 bytes", head(line=b"GET /" + b"a" * 8191 + b" HTTP/1.1"), [b""])
case("target of 8193 bytes", head(line=b"GET /" + b"a" * 8192 + b" HTTP/1.1"), 414)
case("target of 9000 bytes and NUL", head(line=b"GET /" + b"a" * 9000 + b"\0 HTTP/1.1"), 414)
case("method of 40 characters and NUL", head(line=b"M" * 40 + b"\0 / HTTP/1.1"), 501)
case("head of 20000 bytes and NUL", head("X: " + "a" * 20000 + "\0"), 431)
case("empty line before", b"\r\n" + head(line=GET), [b""])
case("two empty lines before", b"\r\n\r\n" + head(line=GET), 400)
case("newline before", b"\n" + head(line=GET), 400)
case("space before", b" " + head(line=GET), 400)
case("byte order mark before", b"\xef\xbb\xbf" + head(line=GET), 400)
case("TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400)
case("JSON", b'{"jsonrpc":"2.0","id":1,"method":"ping"}\n', 400)

# -- lines
case("bare LF everywhere", b"GET / HTTP/1.1\nHost: a\n\n", 400)
case("bare LF behind request line", b"GET / HTTP/1.1\nHost: a\r\n\r\n", 400)
case("bare LF behind field", b"GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400)
case("bare LF at end", b"GET / HTTP/1.1\r\nHost: a\r\n\n", 400)
case("bare LF behind end's CR missing", b"GET / HTTP/1.1\r\nHost: a\r\n\rX", 400)
case("bare CR behind request line", b"GET / HTTP/1.1\rHost: a\r\n\r\n", 400)
case("bare CR behind field", b"GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n", 400)
case("bare CR in value", head("X: a\rb"), 400)
case("two CRs", b"GET / HTTP/1.1\r\r\nHost: a\r\n\r\n", 400)
case("two CRs behind field", b"GET / HTTP/1.1\r\nHost: a\r\r\n\r\n", 400)
case("folded with space", head("X: a", " b"), 400)
case("folded with tab", head("X: a", "\tb"), 400)
case("folded first", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", 400)
case("folded empty", head("X: a", " "), 400)
case("folded Transfer-Encoding", head("Transfer-Encoding:", " chunked") + b"0\r\n\r\n", 400)
case("folded Content-Length", head("Content-Length: 1", " 0"), 400)
case("space before colon", head("X : a"), 400)
case("tab before colon", head("X\t: a"), 400)
case("space before colon of Content-Length", head("Content-Length : 3") + b"abc", 400)
case("space before colon of Transfer-Encoding", head("Transfer-Encoding : chunked"), 400)
case("name empty", head(": a"), 400)
case("name without colon", head("abc"), 400)
case("name with space", head("a b: c"), 400)
case("name with brackets", head("a[b]: c"), 400)
case("name with UTF-8", head("ä: c".encode()), 400)
case("name of digits", head("1: c"), [b""])
case("name of odd token characters", head("!#$%&'*+-.^_`|~: c"), [b""])
case("name with underscore", head("Content_Length: 7"), [b""])
case("name of 300 characters", head("x" * 300 + ": c"), [b""])
case("value empty", head("X:"), [b""])
case("value of white space", head("X: \t "), [b""])
case("value with white space around", head("X:\t a b \t"), [b""])
case("value with Latin-1", head("X: caf\xe9"), [b""])
case("value with UTF-8", head("X: café".encode()), [b""])
case(
    "value of every other byte",
    head(bytes([*b"X: ", *range(0x21, 0x7F), *range(0x80, 256)])),
    [b""],
)
case("name with Latin-1", head("X-Some-Name-\xe4nd-Some-More: b"), 400)
case("value with DEL", head("X: a\x7fb"), 400)
case("value with tab", head("X: a\tb"), [b""])
case("value of colons", head("X: :a:"), [b""])
case("value with quotes", head('X: "a\\"b", c'), [b""])
for code in [*range(0x20), 0x7F]:
    char = bytes([code])
    if char in b"\t\r\n":
        continue
    case(f"control {code:02x} in value", head(b"X: some text" + char + b"and some more text"), 400)
    case(f"control {code:02x} in name", head(b"X-Some-Name" + char + b"And-Some-More: b"), 400)
    case(f"control {code:02x} in target", head(line=b"GET /" + char + b" HTTP/1.1"), 400)
for code in (0x00, 0x0B, 0x0C, 0x7F, 0x80, 0xFF):
    case(f"byte {code:02x} in method", head(line=b"G" + bytes([code]) + b"T / HTTP/1.1"), 400)
for char in b'()<>@,;\\"/[]?={}':
    case(
        f"separator {char:02x} in name",
        head(b"X-Some-Name" + bytes([char]) + b"And-Some-More: b"),
        400,
    )
    case(f"separator {char:02x} in method", head(line=b"G" + bytes([char]) + b" / HTTP/1.1"), 400)

# -- Host
case("Host missing", head(host=None), 400)
case("Host twice", head("Host: a"), 400)
case("Host twice, different", head("Host: b"), 400)
case("Host twice, case", head("hOST: a"), 400)
case("Host twice in 1.0", head("Host: a", line=b"GET / HTTP/1.0"), 400)
case("Host empty", head(host=b"Host:"), [b""])
case("Host with port", head(host=b"Host: a.example:8000"), [b""])
case("Host IPv6", head(host=b"Host: [::1]:80"), [b""])
case("Host IPv6 cut", head(host=b"Host: [::1"), 400)
case("Host port not a number", head(host=b"Host: a:b"), 400)
case("Host list", head(host=b"Host: a, b"), 400)
case("Host with user", head(host=b"Host: u@a"), 400)
case("Host with path", head(host=b"Host: a/b"), 400)
case("Host with space", head(host=b"Host: a b"), 400)
case("Host with UTF-8", head(host="Host: ä".encode()), 400)
case("Host with two ports", head(host=b"Host: a:1:2"), 400)
case("Host differs from target", head(line=b"GET http://b/ HTTP/1.1"), [b""])

# -- Content-Length
case("length", head("Content-Length: 5") + b"hello", [b"hello"])
case("length zero", head("Content-Length: 0"), [b""])
case("length with zeros", head("Content-Length: 0000005") + b"hello", [b"hello"])
case("length case", head("cOnTeNt-LeNgTh: 5") + b"hello", [b"hello"])
case("length with white space", head("Content-Length: \t5 ") + b"hello", [b"hello"])
case("length of GET", head("Content-Length: 5", line=GET) + b"hello", [b"hello"])
case("length missing, bytes follow", head() + b"GET / HTTP/1.1\r\n", [b""])
case("length empty", head("Content-Length:"), 400)
case("length plus", head("Content-Length: +5") + b"hello", 400)
case("length minus", head("Content-Length: -5") + b"hello", 400)
case("length minus zero", head("Content-Length: -0"), 400)
case("length hexadecimal", head("Content-Length: 0x5") + b"hello", 400)
case("length hexadecimal digits", head("Content-Length: a") + b"0123456789", 400)
case("length fraction", head("Content-Length: 5.0") + b"hello", 400)
case("length exponent", head("Content-Length: 1e1") + b"0123456789", 400)
case("length underscore", head("Content-Length: 1_0") + b"0123456789", 400)
case("length with space inside", head("Content-Length: 1 0") + b"0123456789", 400)
case("length quoted", head('Content-Length: "5"') + b"hello", 400)
case("length list, same", head("Content-Length: 5, 5") + b"hello", 400)
case("length list, different", head("Content-Length: 5, 6") + b"hello", 400)
case("length trailing comma", head("Content-Length: 5,") + b"hello", 400)
case("length leading comma", head("Content-Length: ,5") + b"hello", 400)
case("length Arabic digits", head("Content-Length: \u0665".encode()) + b"hello", 400)
case("length twice, same", head("Content-Length: 5", "Content-Length: 5") + b"hello", 400)
case("length twice, different", head("Content-Length: 5", "Content-Length: 6") + b"hello", 400)
case("length twice, case", head("Content-Length: 5", "content-length: 5") + b"hello", 400)
case("length too long", head("Content-Length: 1001"), 413)
case("length of 19 digits", head("Content-Length: 9999999999999999999"), 413)
case("length of 20 digits", head("Content-Length: 18446744073709551621"), 400)
case("length of 20 zeros and 5", head("Content-Length: " + "0" * 20 + "5") + b"hello", 400)
case("length of 300 digits", head("Content-Length: " + "9" * 300), 400)
case("length of a body that is cut", head("Content-Length: 5") + b"hell", [])
case("length in 1.0", head("Content-Length: 2", line=b"POST / HTTP/1.0") + b"hi", [b"hi"])

# -- Transfer-Encoding
chunked("chunked", b"5\r\nhello\r\n0\r\n\r\n", [b"hello"])
case("coding case", head("transfer-encoding: CHUNKED") + b"0\r\n\r\n", [b""])
case("coding with white space", head("Transfer-Encoding:  chunked \t") + b"0\r\n\r\n", [b""])
case("coding of GET", head(CHUNKED, line=GET) + b"1\r\na\r\n0\r\n\r\n", [b"a"])
case("coding empty", head("Transfer-Encoding:"), 400)
case("coding gzip", head("Transfer-Encoding: gzip"), 400)
case("coding identity", head("Transfer-Encoding: identity"), 400)
case("coding gzip, chunked", head("Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", 501)
case("coding chunked, gzip", head("Transfer-Encoding: chunked, gzip") + b"0\r\n\r\n", 400)
case("coding chunked, identity", head("Transfer-Encoding: chunked, identity"), 400)
case("coding identity, chunked", head("Transfer-Encoding: identity, chunked"), 501)
case("coding chunked, chunked", head("Transfer-Encoding: chunked, chunked"), 501)
case("coding twice", head(CHUNKED, CHUNKED) + b"0\r\n\r\n", 400)
case("coding twice, gzip first", head("Transfer-Encoding: gzip", CHUNKED), 400)
case("coding twice, identity last", head(CHUNKED, "Transfer-Encoding: identity"), 400)
case("coding leading comma", head("Transfer-Encoding: , chunked"), 400)
case("coding trailing comma", head("Transfer-Encoding: chunked,"), 400)
case("coding quoted", head('Transfer-Encoding: "chunked"'), 400)
case("coding with parameter", head("Transfer-Encoding: chunked;a=b"), 400)
case("coding prefix", head("Transfer-Encoding: xchunked"), 400)
case("coding suffix", head("Transfer-Encoding: chunkedx"), 400)
case("coding cut", head("Transfer-Encoding: chunke"), 400)
case("coding with space for comma", head("Transfer-Encoding: gzip chunked"), 400)
case("coding vertical tab", head("Transfer-Encoding: \x0bchunked"), 400)
case("coding NUL", head("Transfer-Encoding: chunked\x00"), 400)
case("coding Latin-1 space", head("Transfer-Encoding: \xa0chunked"), 400)
case("coding in 1.0", head(CHUNKED, line=b"POST / HTTP/1.0") + b"0\r\n\r\n", 400)
case(
    "coding in 1.0 kept alive", head(CHUNKED, "Connection: keep-alive", line=b"GET / HTTP/1.0"), 400
)
SMUGGLED = b"GET /admin HTTP/1.1\r\nHost: a\r\n\r\n"
case(
    "CL.TE",
    head("Content-Length: 6", CHUNKED) + b"0\r\n\r\nG",
    400,
)
case("TE.CL", head(CHUNKED, "Content-Length: 4") + b"5c\r\n" + SMUGGLED + b"0\r\n\r\n", 400)
case("CL.TE with zero", head("Content-Length: 0", CHUNKED) + b"0\r\n\r\n", 400)
case(
    "CL.TE by odd name",
    head("Content-Length: 5", "Transfer_Encoding: chunked") + b"hello",
    [b"hello"],
)
case("TE.TE", head(CHUNKED, "Transfer-Encoding: x") + b"0\r\n\r\n", 400)
case("TE.TE by case", head(CHUNKED, "transfer-encoding: cow") + b"0\r\n\r\n", 400)
case("TE by LF", head("X: y\nTransfer-Encoding: chunked", "Content-Length: 3") + b"abc", 400)
case("TE by CR", head("X: y\rTransfer-Encoding: chunked", "Content-Length: 3") + b"abc", 400)
case("TE header is another", head("TE: trailers", "Content-Length: 2") + b"hi", [b"hi"])
case("GET with smuggled request", head("Content-Length: 32", line=GET) + SMUGGLED, [SMUGGLED])

# -- chunks
chunked("chunks", b"3\r\nhel\r\n2\r\nlo\r\n0\r\n\r\n", [b"hello"])
chunked("chunk size upper case", b"A\r\n0123456789\r\n0\r\n\r\n", [b"0123456789"])
chunked("chunk size lower case", b"a\r\n0123456789\r\n0\r\n\r\n", [b"0123456789"])
chunked("chunk size with zeros", b"0005\r\nhello\r\n000\r\n\r\n", [b"hello"])
chunked("chunk size missing", b"\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size plus", b"+5\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size minus", b"-5\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size 0x", b"0x5\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size not hexadecimal", b"g\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size underscore", b"1_0\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size with space before", b" 5\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size with space behind", b"5 \r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size with tab behind", b"5\t\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size with LF", b"5\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size with CR", b"5\rhello\r\n0\r\n\r\n", 400)
chunked("chunk size with CR CR LF", b"5\r\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size with NUL", b"5\0\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size too long", b"3e9\r\n", 413)
chunked("chunk size too long together", b"3e8\r\n" + b"x" * 1000 + b"\r\n1\r\n", 413)
chunked("chunk size of 16 digits", b"ffffffffffffffff\r\n", 413)
chunked("chunk size of 17 digits", b"10000000000000005\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size of 17 digits, zeros", b"00000000000000005\r\nhello\r\n0\r\n\r\n", 400)
chunked("chunk size of 40 digits", b"f" * 40 + b"\r\n", 400)
chunked("chunk data too long", b"5\r\nhellox\r\n0\r\n\r\n", 400)
chunked("chunk data too short", b"5\r\nhell\r\n0\r\n\r\n", 400)
chunked("chunk data with LF behind", b"5\r\nhello\n0\r\n\r\n", 400)
chunked("chunk data with CR behind", b"5\r\nhello\r0\r\n\r\n", 400)
chunked("chunk data with two line ends behind", b"5\r\nhello\r\n\r\n0\r\n\r\n", 400)
chunked("chunk data that looks like a chunk", b"5\r\n0\r\n\r\n\r\n0\r\n\r\n", [b"0\r\n\r\n"])
chunked("last chunk missing", b"5\r\nhello\r\n", [])
chunked("last chunk cut", b"5\r\nhello\r\n0\r\n\r", [])
chunked("last chunk with LF", b"5\r\nhello\r\n0\r\n\n", 400)
chunked("last chunk without line", b"5\r\nhello\r\n0\r\nX", [])
chunked("last chunk with CR", b"5\r\nhello\r\n0\r\n\rX", 400)
chunked("extension", b"5;a\r\nhello\r\n0\r\n\r\n", [b"hello"])
chunked("extension with value", b"5;a=b\r\nhello\r\n0;c=d;e\r\n\r\n", [b"hello"])
chunked("extension quoted", b'5;a="b;\\"\t"\r\nhello\r\n0\r\n\r\n', [b"hello"])
chunked("extension with white space", b"5 ;\ta = b ; c\r\nhello\r\n0\r\n\r\n", [b"hello"])
chunked("extension with trailing space", b"5;a \r\nhello\r\n0\r\n\r\n", 400)
chunked("extension empty", b"5;\r\nhello\r\n0\r\n\r\n", 400)
chunked("extension of semicolons", b"5;;\r\nhello\r\n0\r\n\r\n", 400)
chunked("extension value empty", b"5;a=\r\nhello\r\n0\r\n\r\n", 400)
chunked("extension quote open", b'5;a="b\r\nhello\r\n0\r\n\r\n', 400)
chunked("extension behind quote", b'5;a="b"c\r\nhello\r\n0\r\n\r\n', 400)
chunked("extension with LF", b"5;a\nhello\r\n0\r\n\r\n", 400)
chunked("extension with LF in quotes", b'5;a="\n"\r\nhello\r\n0\r\n\r\n', 400)
chunked("extension with CR", b"5;a\rb\r\nhello\r\n0\r\n\r\n", 400)
chunked("extension with NUL", b"5;a=\0\r\nhello\r\n0\r\n\r\n", 400)
chunked("extension with brackets", b"5;a=<b>\r\nhello\r\n0\r\n\r\n", 400)
chunked("extension too long", b"5;" + b"a" * 17000 + b"\r\nhello\r\n0\r\n\r\n", 431)
chunked("trailer", b"5\r\nhello\r\n0\r\nX: y\r\n\r\n", [b"hello"])
chunked("trailers", b"5\r\nhello\r\n0\r\nX: y\r\nZ:\r\n\r\n", [b"hello"])
chunked("trailer Content-Length", b"5\r\nhello\r\n0\r\nContent-Length: 3\r\n\r\n", [b"hello"])
chunked("trailer Transfer-Encoding", b"5\r\nhello\r\n0\r\nTransfer-Encoding: x\r\n\r\n", [b"hello"])
chunked("trailer Host", b"5\r\nhello\r\n0\r\nHost: evil\r\n\r\n", [b"hello"])
chunked("trailer without colon", b"5\r\nhello\r\n0\r\nX\r\n\r\n", 400)
chunked("trailer empty name", b"5\r\nhello\r\n0\r\n: y\r\n\r\n", 400)
chunked("trailer folded", b"5\r\nhello\r\n0\r\nX: y\r\n z\r\n\r\n", 400)
chunked("trailer with space before colon", b"5\r\nhello\r\n0\r\nX : y\r\n\r\n", 400)
chunked("trailer with LF", b"5\r\nhello\r\n0\r\nX: y\n\r\n", 400)
chunked("trailer with CR", b"5\r\nhello\r\n0\r\nX: y\rz\r\n\r\n", 400)
chunked("trailer with NUL", b"5\r\nhello\r\n0\r\nX: \0\r\n\r\n", 400)
chunked("trailer first is a request", b"0\r\n" + SMUGGLED, 400)
chunked("trailer too long", b"0\r\nX: " + b"y" * 17000 + b"\r\n\r\n", 431)

# -- connections
case("two requests", head(line=GET) + head(line=GET), [b"", b""])
case("two requests with bodies", 2 * (head("Content-Length: 2") + b"hi"), [b"hi", b"hi"])
case("two requests, empty line between", head("Content-Length: 1") + b"x\r\n" + head(), [b"x", b""])
case("chunked, then another", head(CHUNKED) + b"1\r\na\r\n0\r\n\r\n" + head(line=GET), [b"a", b""])
case("behind close", head("Connection: close", line=GET) + head(line=GET), [b""])
case("behind close in a list", head("Connection: x, CLOSE", line=GET) + head(line=GET), [b""])
case("behind 1.0", head(line=b"GET / HTTP/1.0") + head(line=GET), [b""])
case(
    "behind 1.0 kept alive",
    head("Connection: Keep-Alive", line=b"GET / HTTP/1.0") + head(line=GET),
    [b"", b""],
)
case("close and keep-alive", head("Connection: keep-alive", "Connection: close") + head(), [b""])
case("garbage behind a body", head("Content-Length: 2") + b"hi\0\0", 400)
case("Expect", head("Expect: 100-Continue", "Content-Length: 2") + b"hi", [b"hi"])
case("Expect another", head("Expect: 200-ok", "Content-Length: 2") + b"hi", 417)
case("Expect list", head("Expect: 100-continue, x", "Content-Length: 2") + b"hi", 417)
case("Expect in 1.0", head("Expect: x", line=b"GET / HTTP/1.0"), [b""])
case("100 fields", head(*(f"X{i}: a" for i in range(99))), [b""])
case("101 fields", head(*(f"X{i}: a" for i in range(100))), 431)
case("head of 16384 bytes", head("X: " + "a" * (16384 - len(head("X: ")))), [b""])
case("head of 16385 bytes", head("X: " + "a" * (16385 - len(head("X: ")))), 431)
case("head that does not end", b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70000, 431)
case("name that does not end", b"GET / HTTP/1.1\r\n" + b"a" * 70000, 431)
case("cut in the request line", b"GET /mc", [])
case("cut in a field", b"GET / HTTP/1.1\r\nHost: a\r\nX: ", [])
case("cut before the last newline", head()[:-1], [])
case("nothing", b"", [])

# Parser, what it does where we do not, why, and the cases: patterns of fnmatch.
DIFFERENCES: list[Difference] = [
    Difference(
        "llhttp",
        "refuses",
        "it has a list of methods; we answer 405 or 501",
        ["method unknown", "method lower case"],
    ),
    Difference(
        "llhttp",
        "takes",
        "CONNECT is for proxies",
        ["method CONNECT"],
    ),
    Difference(
        "llhttp",
        "takes",
        "RFC 9112 section 3: one space; others split the line elsewhere",
        ["two spaces before version"],
    ),
    Difference(
        "llhttp",
        "takes",
        "it reads HTTP/0.9, which has no fields",
        ["version missing"],
    ),
    Difference(
        "llhttp",
        "waits",
        "it reads HTTP/0.9, which has no fields",
        ["version HTTP/0.9 form"],
    ),
    Difference(
        "llhttp",
        "takes",
        "it leaves the version to its user; we speak 1.0 and 1.1",
        ["version 0.9", "version 2.0"],
    ),
    Difference(
        "llhttp",
        "takes",
        "it reads RTSP and ICE, too",
        ["version of another protocol"],
    ),
    Difference(
        "llhttp",
        "takes",
        "RFC 9112 section 3.2: a target has no fragment",
        ["target with fragment"],
    ),
    Difference(
        "llhttp",
        "takes",
        "RFC 3986: a URI has no such character, and browsers escape it",
        ["target with quotes", "target with angle brackets"],
    ),
    Difference(
        "llhttp",
        "takes",
        "RFC 9112 section 3.2.4: the asterisk alone, for OPTIONS",
        ["target asterisk with GET", "target two asterisks"],
    ),
    Difference(
        "llhttp",
        "takes",
        "RFC 9110 section 4.2: an http URL has a host, and a user in it is an error",
        ["target URL without host", "target URL with user", "target URL with port alone"],
    ),
    Difference(
        "llhttp",
        "takes",
        "we are the origin of http URLs",
        ["target URL ftp"],
    ),
    Difference(
        "llhttp",
        "takes",
        "it has no limit; its user counts",
        [
            "target of 8193 bytes",
            "101 fields",
            "head of 16385 bytes",
            "extension too long",
            "trailer too long",
        ],
    ),
    Difference(
        "llhttp",
        "waits",
        "it has no limit; its user counts",
        [
            "head that does not end",
            "name that does not end",
            "length too long",
            "length of 19 digits",
            "chunk size too long",
            "chunk size too long together",
            "chunk size of 16 digits",
        ],
    ),
    Difference(
        "llhttp",
        "takes",
        "it skips line ends of any number and form; RFC 9112 section 2.2 asks for one empty line",
        ["two empty lines before", "newline before"],
    ),
    Difference(
        "llhttp",
        "takes",
        "it leaves the Host field to its user",
        ["Host *"],
    ),
    Difference(
        "llhttp",
        "takes",
        "zeros in front count as digits for us: no sender writes so many",
        ["length of 20 zeros and 5", "chunk size of 17 digits, zeros"],
    ),
    Difference(
        "llhttp",
        "refuses",
        "it does not take white space behind chunked (RFC 9110 section 5.5 does)",
        ["coding with white space"],
    ),
    Difference(
        "llhttp",
        "takes",
        "it leaves other codings to its user; we decode none",
        ["coding gzip, chunked"],
    ),
    Difference(
        "llhttp",
        "waits",
        "it leaves other codings to its user, and takes empty members of lists",
        ["coding identity, chunked", "coding leading comma", "coding twice, gzip first"],
    ),
    Difference(
        "llhttp",
        "takes",
        "RFC 9112 section 6.1: the framing of such a message is faulty",
        ["coding in 1.0"],
    ),
    Difference(
        "llhttp",
        "waits",
        "RFC 9112 section 6.1: the framing of such a message is faulty",
        ["coding in 1.0 kept alive"],
    ),
    Difference(
        "llhttp",
        "refuses",
        "RFC 9112 section 7.1.1: a recipient takes white space around names and values",
        ["extension with white space"],
    ),
    Difference(
        "llhttp",
        "takes",
        "RFC 9112 section 7.1.1: a value is a token or quoted",
        ["extension value empty"],
    ),
    Difference(
        "llhttp",
        "refuses",
        "we leave trailers out, whatever their names are",
        ["trailer Content-Length", "trailer Transfer-Encoding"],
    ),
    Difference(
        "llhttp",
        "refuses",
        "RFC 9112 section 9.6: what follows a close is ignored; to refuse it would lose the answer",
        ["behind close", "behind close in a list", "behind 1.0", "close and keep-alive"],
    ),
    Difference(
        "llhttp",
        "takes",
        "it leaves expectations to its user; RFC 9110 section 10.1.1 permits 417",
        ["Expect another", "Expect list"],
    ),
    Difference(
        "h11",
        "takes",
        "it limits the bytes of a head alone",
        [
            "method of 33 characters",
            "target of 8193 bytes",
            "101 fields",
            "extension too long",
            "trailer too long",
        ],
    ),
    Difference(
        "h11",
        "takes",
        "it limits a head only while the head is not whole",
        ["head of 16385 bytes"],
    ),
    Difference(
        "h11",
        "waits",
        "it has no limit of bodies; its numbers may have 20 digits",
        [
            "length too long",
            "length of 19 digits",
            "length of 20 digits",
            "chunk size too long",
            "chunk size too long together",
            "chunk size of 16 digits",
            "chunk size of 17 digits",
        ],
    ),
    Difference(
        "h11",
        "takes",
        "zeros in front count as digits for us: no sender writes so many",
        ["chunk size of 17 digits, zeros"],
    ),
    Difference(
        "h11",
        "takes",
        "CONNECT is for proxies",
        ["method CONNECT"],
    ),
    Difference(
        "h11",
        "takes",
        "it leaves the version to its user; we speak 1.0 and 1.1",
        ["version 0.9", "version 1.2", "version 2.0"],
    ),
    Difference(
        "h11",
        "takes",
        "RFC 9112 section 3.2: a target has no fragment",
        ["target with fragment"],
    ),
    Difference(
        "h11",
        "takes",
        "RFC 3986: a URI has no such character, and browsers escape it",
        ["target with quotes", "target with angle brackets"],
    ),
    Difference(
        "h11",
        "takes",
        "it leaves the form of the target to its user (RFC 9112 section 3.2)",
        [
            "target without slash",
            "target of dots",
            "target authority",
            "target asterisk with GET",
            "target two asterisks",
            "target URL *",
        ],
    ),
    Difference(
        "h11",
        "takes",
        "RFC 9112 section 2.2 permits it; readers that do not take it see another message",
        [
            "bare LF everywhere",
            "bare LF behind request line",
            "bare LF behind field",
            "bare LF at end",
            "last chunk with LF",
            "trailer with LF",
        ],
    ),
    Difference(
        "h11",
        "waits",
        "it judges a head or a chunk line only when the end of it has come",
        [
            "bare LF behind end's CR missing",
            "TE by LF",
            "version HTTP/0.9 form",
            "JSON",
            "last chunk with CR",
            "TE.CL",
        ],
    ),
    Difference(
        "h11",
        "takes",
        "RFC 9112 section 5.2: a server answers 400, or replaces the fold",
        ["folded *", "trailer folded"],
    ),
    Difference(
        "h11",
        "takes",
        "RFC 9110 section 5.5: a control character makes a value invalid; to h11 only NUL, VT, FF",
        ["value with DEL", "control ?? in value"],
    ),
    Difference(
        "h11",
        "takes",
        "it leaves the value of Host to its user",
        ["Host IPv6 cut", "Host port not a number", "Host list", "Host with *"],
    ),
    Difference(
        "h11",
        "takes",
        "RFC 9112 section 6.3 permits it where all are the same; we take no list",
        ["length list, same", "length twice, same", "length twice, case"],
    ),
    Difference(
        "h11",
        "takes",
        "RFC 9112 section 6.1: the framing of such a message is faulty",
        ["coding in 1.0"],
    ),
    Difference(
        "h11",
        "waits",
        "RFC 9112 section 6.1: the framing of such a message is faulty",
        ["coding in 1.0 kept alive"],
    ),
    Difference(
        "h11",
        "takes",
        "RFC 9112 section 6.3 permits Transfer-Encoding to win; we refuse both",
        ["CL.TE", "CL.TE with zero"],
    ),
    Difference(
        "h11",
        "takes",
        "RFC 9112 section 7.1.1 has white space before a semicolon alone",
        [
            "chunk size with space behind",
            "chunk size with tab behind",
            "extension with trailing space",
        ],
    ),
    Difference(
        "h11",
        "takes",
        "it takes any extension",
        [
            "extension empty",
            "extension of semicolons",
            "extension value empty",
            "extension quote open",
            "extension behind quote",
            "extension with CR",
            "extension with NUL",
            "extension with brackets",
        ],
    ),
    Difference(
        "h11",
        "refuses",
        "RFC 9112 section 7.1.1: a recipient takes white space around names and values",
        ["extension with white space"],
    ),
    Difference(
        "h11",
        "refuses",
        "we leave trailers out, whatever their names are",
        ["trailer Transfer-Encoding"],
    ),
    Difference(
        "h11",
        "takes",
        "it leaves expectations to its user; RFC 9110 section 10.1.1 permits 417",
        ["Expect another", "Expect list"],
    ),
    Difference(
        "h11",
        "refuses",
        "RFC 9112 section 2.2: a server skips an empty line before a request",
        ["empty line before", "two requests, empty line between"],
    ),
    Difference(
        "h11",
        "refuses",
        "RFC 9112 section 9.6: what follows a close is ignored; to refuse it would lose the answer",
        ["behind close", "behind close in a list", "behind 1.0", "close and keep-alive"],
    ),
    Difference(
        "h11",
        "refuses",
        "it does not keep connections of HTTP/1.0",
        ["behind 1.0 kept alive"],
    ),
]
