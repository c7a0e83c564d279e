"""Elicitation: ask the user to fill in a form or to open a link (client/elicitation of each
revision)."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeAlias, TypeVar

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError
from wirespeed.protocol import codes
from wirespeed.protocol.asking import ELICIT, RULES, ElicitRequestParams, ElicitResult, Params
from wirespeed.schema.forms import form_of
from wirespeed.server.asking.asker import InputRequest, missing

T = TypeVar("T")
U = TypeVar("U")

_result = msgspec.json.Decoder(ElicitResult).decode


class AcceptedElicitation(msgspec.Struct, Generic[T], frozen=True):
    """The user sent the form, or agreed to open the link (not that anything was done there). True
    as a condition.

    Attributes:
        content: The content of the form, as the class that was asked for, a dict for a JSON Schema;
            None for a link, and for a form that only asks for consent.
        action: "accept".
        accepted: True.
    """

    content: T
    action: ClassVar[Literal["accept"]] = "accept"
    accepted: ClassVar[Literal[True]] = True

    def __bool__(self) -> Literal[True]:
        return True

    @property
    def data(self) -> T:
        """The content, by its name in other SDKs."""
        return self.content

    def as_form(self, form: type[U]) -> U:
        """The content as this class, for answers to `InputRequired`, whose content is a dict.
        InvalidResponse: the content does not fit."""
        content: Any = self.content
        decoded: U = form_of(form).decode(content)
        return decoded


class _Refused(msgspec.Struct, frozen=True):
    content: ClassVar[None] = None
    accepted: ClassVar[Literal[False]] = False

    def __bool__(self) -> Literal[False]:
        return False

    def as_form(self, form: type[U]) -> None:
        """None."""
        return None


class DeclinedElicitation(_Refused, frozen=True):
    """The user refused. False as a condition.

    Attributes:
        content: None.
        action: "decline".
        accepted: False.
    """

    action: ClassVar[Literal["decline"]] = "decline"


class CancelledElicitation(_Refused, frozen=True):
    """The user closed the form or the link without a choice. False as a condition.

    Attributes:
        content: None.
        action: "cancel".
        accepted: False.
    """

    action: ClassVar[Literal["cancel"]] = "cancel"


Elicited: TypeAlias = AcceptedElicitation[T] | DeclinedElicitation | CancelledElicitation
"""The user's reaction to a form or a link. Type checkers know that there is content after
``if answer:``, ``answer.action == "accept"`` and ``case AcceptedElicitation(content=…)``."""

_REFUSED: dict[str, DeclinedElicitation | CancelledElicitation] = {
    "decline": DeclinedElicitation(),
    "cancel": CancelledElicitation(),
}


class ElicitRequest(InputRequest):
    """Ask the user to fill in a form, or with *url* to open a link.

    *form* is a class with flat fields, or the JSON Schema of a form, as a dict (see
    `wirespeed.schema.forms`); None only asks for consent.
    *elicitation_id* identifies the elicitation in 2025-11-25, the only revision that has it. It is
    random by default.
    """

    __slots__ = ("elicitation_id", "form", "message", "url")

    method = ELICIT
    kind = "elicit"

    def __init__(
        self,
        message: str,
        form: Any = None,
        *,
        url: str | None = None,
        elicitation_id: str | None = None,
    ) -> None:
        if url is not None and form is not None:
            raise ValueError("an elicitation has a form or a url, not both")
        self.message = message
        self.url = url
        self.form = form_of(form) if url is None else None
        self.elicitation_id = elicitation_id

    def params(self) -> ElicitRequestParams:
        if self.form is None:
            return ElicitRequestParams(self.message, "url", url=self.url)
        return ElicitRequestParams(self.message, requested_schema=self.form.schema)

    def fit(self, params: Params, version: str, capabilities: Mapping[str, Any]) -> Params:
        rules = RULES[version]
        if self.form is None:
            if not rules.elicitation_id:
                return params
            chosen = self.elicitation_id or os.urandom(16).hex()
            return ElicitRequestParams(self.message, "url", url=self.url, elicitation_id=chosen)
        if rules.rich_forms:
            return params
        if self.form.plain_schema is None:
            raise missing(
                {"elicitation": {"form": {}}},
                version,
                f"Forms of {version} have no field for several choices ({self.form.unplain})",
            )
        return ElicitRequestParams(self.message, requested_schema=self.form.plain_schema)

    @staticmethod
    def decode(data: Any) -> Elicited[dict[str, Any]]:
        result = _result(data)
        if result.action == "accept":
            return AcceptedElicitation(result.content or {})
        return _REFUSED[result.action]

    def answer(self, data: bytes) -> Any:
        result: Elicited[dict[str, Any]] = self.plain_answer(data)
        if not result:
            return result
        form = self.form
        return AcceptedElicitation(None if form is None else form.decode(result.content))


def links_required(
    links: Sequence[ElicitRequest], capabilities: Mapping[str, Any], version: str
) -> ProtocolError:
    """Error -32042 with these links. `MissingCapability` for a client of another revision."""
    encoded = [link.encoded(capabilities, version) for link in links]
    if not RULES[version].elicitation_id:
        return missing(
            {"elicitation": {"url": {}}},
            version,
            f"Clients of {version} do not retry a request after a link: use elicit_url",
        )
    data = {"elicitations": [msgspec.json.decode(link) for link in encoded]}
    return ProtocolError(codes.URL_ELICITATION_REQUIRED, "The user has to open a link first", data)


set_public_home(globals())
