"""Arguments that a tool's decoder refused, looked at once more. Loaded by the first such call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from wirespeed.schema.from_strings import slots_of
from wirespeed.schema.python_types import lax_dec_hook
from wirespeed.schema.whole_numbers import WholeNumbers

if TYPE_CHECKING:
    from wirespeed.server.tools.signature import ToolSpec


# What msgspec says of a string in the place of an object or array, and the steps of its place.
_GOT_TEXT = re.compile(r"(Expected `[^`]*\b(?:object|array)\b[^`]*`, got `str`)( - at `\$(.*)`)?")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class SecondLook:
    """Decodes arguments of one tool that are written in another way."""

    def __init__(self, spec: ToolSpec) -> None:
        self._decode: Callable[[bytes], msgspec.Struct] = spec.decoder.decode
        self._whole = WholeNumbers(spec.input_schema)
        self._decode_lax: Callable[[bytes], msgspec.Struct] | None = None
        if spec.coerce:
            lax = msgspec.json.Decoder(spec.struct, strict=False, dec_hook=lax_dec_hook)
            self._decode_lax = lax.decode
            self._names = [s.name for s in slots_of(spec) if s.is_json and not s.takes_text]

    def decode(self, text: bytes, refusal: msgspec.ValidationError) -> msgspec.Struct:
        """The arguments; ``refusal`` is why the decoder did not take them. ValidationError: they do
        not fit."""
        in_digits = self._whole.in_digits(text)
        if in_digits is not None:
            text = in_digits
            try:
                return self._decode(text)
            except msgspec.ValidationError as exc:
                refusal = exc
        if self._decode_lax is None:
            raise _with_hint(refusal, text)
        return self._decode_lax(self._whole.in_digits_of_texts(self._unquoted(text)))

    def _unquoted(self, text: bytes) -> bytes:
        """The text with the lists and objects that strings contain, where an argument cannot be a
        string. msgspec reads other strings itself."""
        given = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        for name in self._names:
            raw = bytes(given.get(name, b""))
            if not raw.startswith(b'"'):
                continue
            inner: str = msgspec.json.decode(raw)
            if _is_container(inner):
                given[name] = msgspec.Raw(inner.encode())
        return msgspec.json.encode(given)


def _with_hint(refusal: msgspec.ValidationError, text: bytes) -> msgspec.ValidationError:
    """Return the refusal; of a JSON text where an object or array is expected, with that fact."""
    found = _GOT_TEXT.fullmatch(str(refusal))
    if found is None:
        return refusal
    reason, at, path = found.groups()
    value = msgspec.json.decode(text)
    for name, index in _STEP.findall(path or ""):
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            return refusal
    if not isinstance(value, str) or not _is_container(value):
        return refusal
    hint = "a JSON text: send the value itself (a server takes texts with coerce=True)"
    hinted = msgspec.ValidationError(f"{reason}, {hint}{at or ''}")
    hinted.__cause__ = refusal.__cause__
    return hinted


def _is_container(text: str) -> bool:
    if not text.lstrip().startswith(("[", "{")):
        return False
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except msgspec.DecodeError:
        return False
    return True
