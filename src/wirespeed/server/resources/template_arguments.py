"""Arguments of a resource's function from a URI: parameters are variables of the template.

Values are percent-decoded and then decoded to the type of the parameter
(`wirespeed.schema.from_strings` has the rules). A value that does not fit means that there is no
such resource. A parameter annotated as a path of `pathlib` takes plain relative paths only: see
`wirespeed.server.resources.folder.relative_path`; so does ``PurePosixPath | None``.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from wirespeed.errors import SignatureError
from wirespeed.protocol.uri_template import Matcher, UriTemplate
from wirespeed.schema.from_strings import TextSlot, slots_of
from wirespeed.server.resources.folder import relative_path

if TYPE_CHECKING:
    from wirespeed.server.tools.signature import ToolSpec

__all__ = ["TemplateArguments", "check_fixed", "defaults"]


class TemplateArguments:
    """Finds the arguments of a template's function in a URI.

    Args:
        template: The template (see `wirespeed.protocol.uri_template.Matcher`).
        spec: The function.
        safe: Whether values that could lead a path out of its folder match nothing.

    Raises:
        ValueError: The template cannot be matched.
        SignatureError: A variable is not a parameter, or a parameter without default is not a
            variable.
    """

    __slots__ = ("_matcher", "_others", "_paths", "_prefix", "slots")

    def __init__(self, template: UriTemplate, spec: ToolSpec, *, safe: bool = True) -> None:
        self._prefix = ""
        self._matcher = Matcher(template, safe=safe)
        slots = slots_of(spec)
        parameters = {slot.name: slot for slot in slots}
        for name in template.names:
            if name not in parameters:
                raise SignatureError(
                    f"resource {spec.name!r}: {template} has a variable {name!r}, but the function "
                    "has no parameter of this name"
                )
        for slot in slots:
            if slot.name not in template.names and slot.default is None:
                raise SignatureError(
                    f"resource {spec.name!r}: parameter {slot.name!r} is not a variable of "
                    f"{template}"
                )
        for name in self._matcher.lists:
            if not parameters[name].is_list:
                raise SignatureError(
                    f"resource {spec.name!r}: {{{name}*}} of {template} is a list, so annotate "
                    f"parameter {name!r} as one, such as list[str]"
                )
        self.slots: dict[str, TextSlot] = {name: parameters[name] for name in template.names}
        self._others = [slot for slot in slots if slot.name not in self.slots]
        self._paths = frozenset(
            name
            for name, slot in self.slots.items()
            if _holds_path(msgspec.inspect.type_info(slot.type), name in self._matcher.lists)
        )

    def behind(self, prefix: str) -> TemplateArguments:
        """The same for URIs with a prefix."""
        other = copy.copy(self)
        other._prefix = prefix + self._prefix
        return other

    def match(self, uri: str) -> dict[str, Any] | None:
        """The arguments by attribute; None if the URI does not match this template."""
        if self._prefix:
            if not uri.startswith(self._prefix):
                return None
            uri = uri[len(self._prefix) :]
        found = self._matcher.match(uri)
        if found is None:
            return None
        values = defaults(self._others)
        for name, slot in self.slots.items():
            text = found.get(name)  # of a list: the texts
            if text is None:  # a part of a query, or a fragment, that is not there
                if slot.default is None:
                    return None
                values[slot.attribute] = slot.default()
                continue
            try:
                texts = text if isinstance(text, list) else [text]
                if name in self._paths:
                    for one in texts:
                        relative_path(one)
                parse: Any = slot.parse_list if text is texts else slot.parse
                values[slot.attribute] = parse(text)
            except ValueError:  # ArgumentError is one
                return None
        return values


def _holds_path(info: msgspec.inspect.Type, in_list: bool) -> bool:
    """Whether a value may be a path, or a list of paths if ``in_list``."""
    if isinstance(info, msgspec.inspect.Metadata):
        return _holds_path(info.type, in_list)
    if isinstance(info, msgspec.inspect.UnionType):
        return any(_holds_path(member, in_list) for member in info.types)
    if isinstance(info, msgspec.inspect.CollectionType):
        return in_list and _holds_path(info.item_type, False)
    module = getattr(getattr(info, "cls", None), "__module__", "")
    return isinstance(info, msgspec.inspect.CustomType) and module.partition(".")[0] == "pathlib"


def defaults(slots: Iterable[TextSlot]) -> dict[str, Any]:
    """The default of each parameter that has one, by attribute."""
    return {slot.attribute: slot.default() for slot in slots if slot.default is not None}


def check_fixed(slots: Iterable[TextSlot], spec: ToolSpec, uri: str) -> None:
    """SignatureError: the function of a resource under one URI has a parameter without default."""
    for slot in slots:
        if slot.default is None:
            raise SignatureError(
                f"resource {spec.name!r}: parameter {slot.name!r} has no default, and {uri} "
                f"has no variable {{{slot.name}}} for it"
            )
