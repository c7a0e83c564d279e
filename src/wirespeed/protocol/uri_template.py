"""URI templates (RFC 6570): expansion at all four levels, and the reverse of the usual ones.

>>> UriTemplate("file:///{+path}{?line}").expand(path="a/b.py", line=3)
'file:///a/b.py?line=3'
>>> Matcher(UriTemplate("users://{id}/posts/{post}")).match("users://a%40b/posts/7")
{'id': 'a@b', 'post': '7'}

RFC 6570 defines no matching (section 1.4): what `Matcher` does is described there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, unquote_to_bytes

MAX_URI = 16384  # characters; a longer URI matches no template

_UNRESERVED = "-._~"  # beside letters and digits: RFC 3986 section 2.3
_RESERVED = ":/?#[]@!$&'()*+,;="  # RFC 3986 section 2.2
_DELIMITERS = "/?#"  # what ends a simple variable when a URI is matched

_NAME = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*"
_VARIABLE = re.compile(rf"(?P<name>{_NAME})(?::(?P<length>[1-9][0-9]{{0,3}})|(?P<explode>\*))?")
_ESCAPE = re.compile(r"(%[0-9A-Fa-f]{2})")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_BAD_LITERAL = re.compile(r'[\x00-\x20\x7f"<>\\^`|}]|%(?![0-9A-Fa-f]{2})')
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_NOT_URI = re.compile(rf"[^A-Za-z0-9{re.escape(_UNRESERVED + _RESERVED)}%]|%(?![0-9A-Fa-f]{{2}})")


class _Operator(NamedTuple):
    """A row of the table in RFC 6570, appendix A."""

    first: str
    separator: str
    named: bool
    if_empty: str
    reserved: bool


_OPERATORS = {
    "": _Operator("", ",", False, "", False),
    "+": _Operator("", ",", False, "", True),
    "#": _Operator("#", ",", False, "", True),
    ".": _Operator(".", ".", False, "", False),
    "/": _Operator("/", "/", False, "", False),
    ";": _Operator(";", ";", True, "", False),
    "?": _Operator("?", "&", True, "=", False),
    "&": _Operator("&", "&", True, "=", False),
}


class _Variable(NamedTuple):
    name: str
    length: int | None
    explode: bool


class _Expression(NamedTuple):
    operator: str
    variables: tuple[_Variable, ...]

    def __str__(self) -> str:
        return f"{{{self.operator}{','.join(v.name for v in self.variables)}}}"


def check_uri(uri: str) -> None:
    """Check that a text is a URI with a scheme (RFC 3986): ValueError says what is wrong."""
    if not isinstance(uri, str):
        raise TypeError(f"a URI is a string, not {type(uri).__name__}")
    if not _SCHEME.match(uri):
        raise ValueError(f"{uri!r} is not a URI: it does not begin with a scheme, such as 'file:'")
    if bad := _NOT_URI.search(uri):
        raise ValueError(
            f"{uri!r} is not a URI: percent-encode {bad[0]!r} as {quote(bad[0], safe='')}"
        )


class UriTemplate:
    """A parsed template.

    Attributes:
        text: The template as it was written.
        names: Its variables, each once, in the order in which they first stand there.

    ValueError if it breaks the grammar of RFC 6570, section 2.
    """

    __slots__ = ("names", "parts", "text")

    def __init__(self, text: str) -> None:
        if not isinstance(text, str):
            raise TypeError(f"a URI template is a string, not {type(text).__name__}")
        self.text = text
        parts: list[str | _Expression] = []
        at = 0
        while at < len(text):
            start = text.find("{", at)
            literal = text[at:] if start < 0 else text[at:start]
            if literal:
                parts.append(self._literal(literal))
            if start < 0:
                break
            end = text.find("}", start)
            if end < 0:
                raise self._error(f"'{{' at {start} has no '}}'")
            parts.append(self._expression(text[start + 1 : end]))
            at = end + 1
        self.parts = tuple(parts)
        expressions = (part for part in parts if isinstance(part, _Expression))
        self.names = tuple(dict.fromkeys(v.name for e in expressions for v in e.variables))

    def __repr__(self) -> str:
        return f"UriTemplate({self.text!r})"

    def __str__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return self.text == other.text if isinstance(other, UriTemplate) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.text)

    def _error(self, what: str) -> ValueError:
        return ValueError(f"URI template {self.text!r}: {what}")

    def _literal(self, text: str) -> str:
        """A literal as it stands in every URI (section 3.1)."""
        if bad := _BAD_LITERAL.search(text):
            raise self._error(f"{bad[0]!r} may not stand outside an expression")
        return _encode_reserved(text)

    def _expression(self, body: str) -> _Expression:
        operator = body[:1] if body[:1] in _OPERATORS else ""
        if body[:1] in ("=", ",", "!", "@", "|"):
            raise self._error(f"operator {body[:1]!r} is reserved")
        if len(body) == len(operator):
            raise self._error("an expression without a variable")
        variables = []
        for spec in body[len(operator) :].split(","):
            found = _VARIABLE.fullmatch(spec)
            if found is None:
                raise self._error(f"{spec!r} is not a variable")
            length = found["length"]
            variables.append(
                _Variable(found["name"], int(length) if length else None, bool(found["explode"]))
            )
        return _Expression(operator, tuple(variables))

    def expand(self, values: Mapping[str, Any] | None = None, /, **more: Any) -> str:
        """The URI for these values (section 3).

        A value is a string, a number, a boolean (``true``, ``false``), a list, or a mapping. What
        is missing, None, or an empty list or mapping is undefined and leaves nothing behind.

        Raises:
            ValueError: A prefix (``{var:3}``) of a list or mapping, or text that is not UTF-8.
            TypeError: A value of another kind.
        """
        given = {**(values or {}), **more}
        return "".join(
            part if isinstance(part, str) else self._expand(part, given) for part in self.parts
        )

    def _expand(self, expression: _Expression, given: Mapping[str, Any]) -> str:
        operator = _OPERATORS[expression.operator]
        encode = _encode_reserved if operator.reserved else _encode
        pieces: list[str] = []
        for variable in expression.variables:
            value = given.get(variable.name)
            if value is None or (not isinstance(value, str) and _is_empty(value)):
                continue
            if isinstance(value, Mapping) or _is_list(value):
                if variable.length is not None:
                    raise self._error(f"{variable.name}: only text has a prefix")
                pieces += _expand_many(variable, value, operator, encode)
                continue
            text = _text(value, variable.name)
            pieces.append(_named(variable.name, encode(text[: variable.length]), operator))
        return operator.first + operator.separator.join(pieces) if pieces else ""


def _is_list(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _is_empty(value: object) -> bool:
    return (isinstance(value, Mapping) or _is_list(value)) and not value


def _text(value: object, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return str(value)
    raise TypeError(f"variable {name!r} cannot be {type(value).__name__}")


def _named(name: str, text: str, operator: _Operator) -> str:
    if not operator.named:
        return text
    return f"{name}={text}" if text else name + operator.if_empty


def _expand_many(
    variable: _Variable, value: Any, operator: _Operator, encode: Callable[[str], str]
) -> list[str]:
    """A list or mapping: the pieces that the operator's separator joins."""
    name = variable.name
    if isinstance(value, Mapping):
        pairs = [(encode(_text(k, name)), encode(_text(v, name))) for k, v in value.items()]
        if variable.explode:
            if operator.named:
                return [_named(key, text, operator) for key, text in pairs]
            return [f"{key}={text}" for key, text in pairs]
        items: Iterable[str] = (part for pair in pairs for part in pair)
    else:
        items = [encode(_text(item, name)) for item in value if item is not None]
        if variable.explode:
            return [_named(name, item, operator) for item in items]
    return [_named(name, ",".join(items), operator)]


def _encode(text: str) -> str:
    return quote(text, safe=_UNRESERVED)


def _encode_reserved(text: str) -> str:
    """Reserved characters, and what is encoded already, stay as they are."""
    pieces = _ESCAPE.split(text)
    pieces[::2] = [quote(piece, safe=_UNRESERVED + _RESERVED) for piece in pieces[::2]]
    return "".join(pieces)


# -- matching -------------------------------------------------------------------------------------


def is_path_escape(value: str) -> bool:
    """Whether text has a segment ``..``, whatever separates it, or a NUL: as part of a file's path
    it would lead out of its folder, or end early."""
    if "\0" in value:
        return True
    return ".." in value and ".." in value.replace("\\", "/").split("/")


class Matcher:
    """Finds the values of a template's variables in a URI: the reverse of expansion.

    * Templates of levels 1 and 2: ``{var}``, ``{+var}`` and, at the end, ``{#var}``; each variable
      once; between two of them some literal text. Before ``{#var}`` may stand a form-style query of
      level 3: ``{?a,b*}``, or ``{&a,b*}`` behind a literal one (``?lang=en{&a}``). Anything else is
      a ValueError.
    * ``{var}`` takes characters other than ``/``, ``?`` and ``#``; ``{+var}`` takes any. Each takes
      at least one. Where a URI can be divided in several ways, the first variable takes as much as
      it can, then the second. ``{#var}`` takes what is behind the first ``#``, and may be missing.
    * A query is what is behind the first ``?``: its pairs stand in any order, and each variable may
      be missing. A name that is not in the template, or that stands there twice, matches nothing.
      ``{?var*}`` is a list: its name may stand there again. ``+`` is a plus sign.
    * Values are percent-decoded once, as UTF-8. A broken escape matches nothing.
    * Unless ``safe=False``, values that could lead a path out of its folder match nothing either:
      a segment ``..``, a NUL and, but for ``{+var}`` and ``{#var}``, a slash or backslash in front.

    The time is linear in the length of the URI, of which `MAX_URI` characters at most are read.

    Attributes:
        template: The template.
        lists: The variables whose values are lists.
    """

    __slots__ = (
        "_fixed", "_fragment", "_head", "_pattern", "_query", "_safe", "_tail", "_variables",
        "lists", "template",
    )  # fmt: skip

    def __init__(self, template: UriTemplate, *, safe: bool = True) -> None:
        self.template = template
        self._safe = safe
        parts = list(template.parts)
        self._fragment: str | None = None
        if parts and isinstance(last := parts[-1], _Expression) and last.operator == "#":
            self._fragment = self._single(last)
            del parts[-1]
            if any(isinstance(part, str) and "#" in part for part in parts):
                raise template._error("two fragments")
        self._query: tuple[str, ...] = ()
        self.lists: frozenset[str] = frozenset()
        self._fixed: list[str] = []  # the pairs of a literal query
        if parts and isinstance(last := parts[-1], _Expression) and last.operator in ("?", "&"):
            self.lists = frozenset(v.name for v in last.variables if v.explode)
            self._query = tuple(self._plain(v._replace(explode=False)) for v in last.variables)
            del parts[-1]
            if last.operator == "&":
                literal = parts.pop() if parts and isinstance(parts[-1], str) else ""
                path, mark, fixed = str(literal).partition("?")
                if not mark:
                    raise template._error(f"{last} stands behind a literal query, such as '?a=b'")
                self._fixed = fixed.split("&")
                parts += [path] if path else []
            if any(isinstance(part, str) and "?" in part for part in parts):
                raise template._error("two queries")
        self._head = self._tail = ""
        if parts and isinstance(first := parts[0], str):
            self._head = first
            del parts[0]
        if parts and isinstance(last := parts[-1], str):
            self._tail = last
            del parts[-1]
        # name, whether simple, and the literal behind it
        variables: list[tuple[str, bool, str]] = []
        for part in parts:
            if isinstance(part, str):
                name, simple, _ = variables.pop()
                variables.append((name, simple, part))
                continue
            if part.operator in ("#", "?", "&"):
                raise template._error(
                    f"{{{part.operator}…}} stands at the end: one query, then one fragment"
                )
            name = self._single(part)
            if variables and not variables[-1][2]:
                raise template._error(
                    f"{part} stands right behind another variable: where one ends and the other "
                    "begins cannot be told; put some text between them"
                )
            variables.append((name, not part.operator, ""))
        self._variables = tuple(variables)
        names = [*(name for name, _, _ in variables), *self._query]
        if self._fragment is not None:
            names.append(self._fragment)
        for name in names:
            if names.count(name) > 1:
                raise template._error(f"variable {name!r} stands there twice")
        self._pattern = self._compile()

    def _single(self, expression: _Expression) -> str:
        error = self.template._error
        if expression.operator not in ("", "+", "#"):
            raise error(
                f"{{{expression.operator}…}} cannot be matched: only {{var}}, {{+var}}, {{#var}}, "
                "{?var} and {&var}"
            )
        if len(expression.variables) > 1:
            raise error(f"{expression} cannot be matched: one variable to an expression")
        return self._plain(expression.variables[0])

    def _plain(self, variable: _Variable) -> str:
        if variable.explode or variable.length is not None:
            raise self.template._error(
                f"variable {variable.name!r} cannot be matched with a modifier (:n, or * but in a "
                "query)"
            )
        return variable.name

    def _compile(self) -> re.Pattern[str] | None:
        """An expression that never backtracks, if there is one: every variable but the last ends
        where a character stands that it cannot take."""
        pieces = []
        for _, simple, literal in self._variables[:-1]:
            if not simple or literal[0] not in _DELIMITERS:
                return None
            pieces.append(f"([^{_DELIMITERS}]++){re.escape(literal)}")
        if self._variables:
            pieces.append(f"([^{_DELIMITERS}]++)" if self._variables[-1][1] else "(.++)")
        return re.compile("".join(pieces), re.DOTALL)

    def match(self, uri: str) -> dict[str, str | list[str]] | None:
        """The decoded values by name, or None. What is missing of a query, and a missing
        ``{#var}``, is left out."""
        head, tail = self._head, self._tail
        if not uri.startswith(head) or len(uri) > MAX_URI:
            return None
        fragment: str | None = None
        if self._fragment is not None:
            uri, found, behind = uri.partition("#")
            fragment = behind if found else None
        query = ""
        if self._query:
            uri, _, query = uri.partition("?")
        end = len(uri) - len(tail)
        if end < len(head) or not uri.endswith(tail):
            return None
        text = uri[len(head) : end]
        raw: Sequence[str] | None
        if self._pattern is not None:
            found_all = self._pattern.fullmatch(text)
            raw = None if found_all is None else found_all.groups()
        else:
            raw = self._divide(text)
        if raw is None:
            return None
        values: dict[str, str | list[str]] = {}
        for (name, simple, _), encoded in zip(self._variables, raw, strict=True):
            value = self._decode(encoded, simple)
            if value is None:
                return None
            values[name] = value
        if self._query and not self._read_query(query, values):
            return None
        if fragment is not None and self._fragment is not None:
            value = self._decode(fragment, False)
            if value is None:
                return None
            values[self._fragment] = value
        return values

    def _read_query(self, query: str, values: dict[str, str | list[str]]) -> bool:
        """Add the values of a query. Returns whether it is one of this template."""
        pairs = query.split("&") if query else []
        for pair in self._fixed:
            if pair not in pairs:
                return False
            pairs.remove(pair)
        for pair in pairs:
            name, _, encoded = pair.partition("=")
            value = self._decode(encoded, True)
            if value is None or name not in self._query:
                return False
            if name in self.lists:
                items = values.setdefault(name, [])
                assert type(items) is list
                items.append(value)
            elif name in values:
                return False
            else:
                values[name] = value
        return True

    def _decode(self, encoded: str, simple: bool) -> str | None:
        value = encoded
        if "%" in encoded:
            if _BAD_ESCAPE.search(encoded):
                return None
            try:
                value = unquote_to_bytes(encoded).decode()
            except UnicodeDecodeError:
                return None
        if self._safe and (is_path_escape(value) or (simple and value[:1] in ("/", "\\"))):
            return None
        return value

    def _divide(self, text: str) -> list[str] | None:
        """The longest-first division, in one pass from the right for each variable.

        ``ends[p]`` is the furthest place where a variable that begins at p may end so that the rest
        of the text fits what follows; -1 if there is none.
        """
        n = len(text)
        all_ends: list[list[int]] = []
        behind: list[int] | None = None
        for _, simple, literal in reversed(self._variables):
            ends = [-1] * (n + 1)
            reach = -1  # the furthest good end that can be reached from p + 1
            for p in range(n, -1, -1):
                stops = p == n or (simple and text[p] in _DELIMITERS)
                if stops:
                    reach = -1
                else:
                    ends[p] = reach
                if reach < 0:
                    if behind is None:
                        good = p == n
                    else:
                        good = text.startswith(literal, p) and behind[p + len(literal)] >= 0
                    if good:
                        reach = p
            all_ends.append(ends)
            behind = ends
        values: list[str] = []
        at = 0
        for ends, (_, _, literal) in zip(reversed(all_ends), self._variables, strict=True):
            end = ends[at]
            if end < 0:
                return None
            values.append(text[at:end])
            at = end + len(literal)
        return values
