"""Apps: pages that a server gives hosts for the results of its tools (SEP-1865, the extension
``io.modelcontextprotocol/ui``, revision 2026-01-26)."""

import re
from collections.abc import Iterable
from typing import Any, Literal, Self

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.protocol.blocks import ResourceContents
from wirespeed.protocol.meta import META_PREFIX
from wirespeed.protocol.results import ReadResourceResult

UI_EXTENSION = META_PREFIX + "ui"
UI_SCHEME = "ui://"
MIME_TYPE = "text/html;profile=mcp-app"

AppPermission = Literal["camera", "microphone", "geolocation", "clipboardWrite"]
"""A permission that a page may ask a browser for."""

# The names of the permissions in the `allow` of an iframe.
_FEATURES = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}
_NONE, _SELF = "'none'", "'self'"
_ORIGIN = re.compile(
    r"(?:https?|wss?)://(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]*)(?::(?:[0-9]+|\*))?/?"
)


class AppCsp(msgspec.Struct, frozen=True, omit_defaults=True):
    """The origins that a page uses, such as ``https://a.example`` or ``https://*.example``. A host
    lets it reach no others. ValueError: one is not an origin.

    Attributes:
        connect: Of requests: fetch, XMLHttpRequest, WebSocket.
        resources: Of scripts, styles, images, fonts and media.
        frames: Of frames in the page.
        base_uris: Of the document's base.
    """

    connect: tuple[str, ...] = msgspec.field(name="connectDomains", default=())
    resources: tuple[str, ...] = msgspec.field(name="resourceDomains", default=())
    frames: tuple[str, ...] = msgspec.field(name="frameDomains", default=())
    base_uris: tuple[str, ...] = msgspec.field(name="baseUriDomains", default=())

    def __post_init__(self) -> None:
        for origins in msgspec.structs.astuple(self):
            if isinstance(origins, str):
                raise TypeError("origins are a sequence of strings, not one string")
            for origin in origins:
                if not _ORIGIN.fullmatch(origin):  # it becomes part of a header field
                    raise ValueError(f"{origin!r} is not an origin")


class _Ui(msgspec.Struct, omit_defaults=True, rename="camel"):
    csp: AppCsp | None = None
    permissions: dict[str, dict[str, Any]] = {}
    domain: str | None = None
    prefers_border: bool | None = None


class App(msgspec.Struct, frozen=True):
    """A page that hosts show for the results of tools, in a frame of its own: `Server.add_app`
    serves it, and `App.of` reads it from a server.

    >>> clock = App("ui://clock/page.html", Path("clock.html").read_text())
    >>> server.add_app(clock)
    >>> @server.tool(meta=clock.meta())
    ... async def now() -> datetime: ...

    Attributes:
        uri: The URI of its resource, with the scheme ``ui``.
        html: The document.
        name, title, description: As of a resource; ``name`` is the URI by default.
        csp: The origins that it uses; None for none: all is in the document.
        permissions: What it asks the browser for. A host may say no.
        domain: The origin that it is shown at, in a form that the host defines.
        prefers_border: Whether the host draws a border and a background; None: as it likes.

    ValueError: the URI has another scheme, there is no such permission, or the domain has
    characters that cannot be printed.
    """

    uri: str
    html: str
    name: str | None = None
    title: str | None = None
    description: str | None = None
    csp: AppCsp | None = None
    permissions: tuple[AppPermission, ...] = ()
    domain: str | None = None
    prefers_border: bool | None = None

    def __post_init__(self) -> None:
        if not self.uri.startswith(UI_SCHEME):
            raise ValueError(f"the URI of an app begins with {UI_SCHEME}, not {self.uri!r:.100}")
        if self.domain is not None and not self.domain.isprintable():  # hosts write it into fields
            raise ValueError(f"{self.domain!r:.100} is not a domain")
        if unknown := [one for one in self.permissions if one not in _FEATURES]:
            raise ValueError(f"{unknown[0]!r} is not a permission: {', '.join(_FEATURES)}")

    # -- of a server -----------------------------------------------------------------------------

    def meta(self, visibility: Iterable[Literal["model", "app"]] | None = None) -> dict[str, Any]:
        """The ``_meta`` of a tool whose results the page shows.

        Args:
            visibility: Who may call the tool: the model, the page, or both, which is the default.
                The host sees to it: a server cannot tell one from the other.
        """
        ui: dict[str, Any] = {"resourceUri": self.uri}
        if visibility is not None:
            ui["visibility"] = list(visibility)
            if not ui["visibility"] or not {"model", "app"}.issuperset(ui["visibility"]):
                raise ValueError('visibility has "model", "app", or both')
        return {"ui": ui}

    @property
    def contents(self) -> ResourceContents:
        """The contents of its resource."""
        wanted: dict[str, dict[str, Any]] = {one: {} for one in self.permissions}
        ui = msgspec.to_builtins(_Ui(self.csp, wanted, self.domain, self.prefers_border))
        return ResourceContents(
            self.uri, MIME_TYPE, text=self.html, meta={"ui": ui} if ui else None
        )

    # -- of a host -------------------------------------------------------------------------------

    @classmethod
    def of(cls, result: ReadResourceResult) -> Self:
        """The app that a server gave. ValueError: it is not one, or what it asks for is not
        valid."""
        found = next((one for one in result.contents if one.mime_type == MIME_TYPE), None)
        if found is None:
            raise ValueError(f"no contents have the type {MIME_TYPE}")
        try:
            html = found.text if found.blob is None else found.blob.decode()
            ui = msgspec.convert((found.meta or {}).get("ui", {}), _Ui)
        except (UnicodeDecodeError, msgspec.ValidationError) as exc:
            raise ValueError(f"the app {found.uri!r:.100} is not valid: {exc}") from None
        known: Any = tuple(one for one in ui.permissions if one in _FEATURES)
        return cls(
            found.uri,
            html or "",
            csp=ui.csp,
            permissions=known,
            domain=ui.domain,
            prefers_border=ui.prefers_border,
        )

    @property
    def policy(self) -> str:
        """The Content-Security-Policy under which a host shows it: what the page declares, and
        nothing else. A host may restrict it further."""
        csp = AppCsp() if self.csp is None else self.csp
        sources = " ".join(("", *csp.resources))
        connect, frames, base = map(" ".join, (csp.connect, csp.frames, csp.base_uris))
        return "; ".join(
            (
                "default-src 'none'",
                f"script-src 'self' 'unsafe-inline'{sources}",
                f"style-src 'self' 'unsafe-inline'{sources}",
                f"img-src 'self' data:{sources}",
                f"font-src 'self'{sources}",
                f"media-src 'self' data:{sources}",
                f"connect-src {connect or _NONE}",
                f"frame-src {frames or _NONE}",
                "object-src 'none'",
                f"base-uri {base or _SELF}",
                "form-action 'none'",
            )
        )

    @property
    def allow(self) -> str:
        """The ``allow`` of the iframe in which a host shows it, if the host permits all of it."""
        return "; ".join(_FEATURES[one] for one in self.permissions)


set_public_home(globals())
