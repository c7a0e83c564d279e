"""A resource, a template of resources, a folder of files. Loaded with the first resource.

Parameters of a template's function are variables of the template. Values are percent-decoded and
then decoded to the type of the parameter (`wirespeed.schema.from_strings` has the rules). A value
that does not fit means that there is no such resource. A parameter annotated as a path of `pathlib`
takes plain relative paths only: see `wirespeed.server.resources.folder.relative_path`; so does
``PurePosixPath | None``.
"""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from wirespeed._exports import set_public_home
from wirespeed.errors import ProtocolError, ResourceNotFound, SignatureError, shortened
from wirespeed.protocol import codes
from wirespeed.protocol.blocks import Annotations, Icon, ResourceContents
from wirespeed.protocol.messages import ResourceParams
from wirespeed.protocol.meta import check_meta
from wirespeed.protocol.results import ReadResourceResult
from wirespeed.protocol.revisions import REVISIONS, missing_members
from wirespeed.protocol.uri_template import Matcher, UriTemplate, check_uri
from wirespeed.schema.from_strings import TextSlot, slots_of
from wirespeed.server.catalog import Registrar, ResourceEntry, TemplateEntry
from wirespeed.server.completion import Completable
from wirespeed.server.permissions import check_scopes
from wirespeed.server.requests.call import context_class
from wirespeed.server.requests.operation import (
    HandlerContext,
    LimitOptions,
    call_from,
    cursor_of,
    invoke,
    make_feature,
    params_of,
)
from wirespeed.server.resources.contents import ContentsPlan, cache_hints
from wirespeed.server.resources.folder import Folder, relative_path
from wirespeed.server.tools.signature import ToolSpec, inspect_tool
from wirespeed.transport.options import checked_scopes

if TYPE_CHECKING:
    from wirespeed._core.envelope import Message
    from wirespeed.protocol.revisions import Revision
    from wirespeed.server.requests.call import Call
    from wirespeed.server.requests.reply import Body


class FolderOptions(TypedDict, total=False):
    """The options that resources and folders share; `Server.add_resource` describes them."""

    name: str | None
    title: str | None
    description: str | None
    annotations: Annotations | Mapping[str, Any] | None
    icons: Iterable[Icon] | None
    meta: Mapping[str, Any] | None
    ttl_ms: int | None
    cache_scope: str | None
    timeout: float | None
    scopes: Iterable[str]
    tags: Iterable[str]


class ResourceOptions(FolderOptions, LimitOptions, total=False):
    """The options of `Server.resource`; `Server.add_resource` describes them."""

    mime_type: str | None
    size: int | None
    safe: bool


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


_encode = msgspec.json.Encoder().encode


class _Reader:
    """Runs the function behind a resource for one URI at a time."""

    __slots__ = ("_feature", "_plan", "_spec")

    def __init__(
        self, spec: ToolSpec, plan: ContentsPlan, service: Registrar, options: LimitOptions
    ) -> None:
        self._spec = spec
        self._plan = plan
        self._feature = make_feature(spec, "resource", lambda body, _: body, service, options)

    def start(self, call: Call, message: Message, uri: str, values: Mapping[str, Any]) -> None:
        """Begin the call that answers."""
        call.begin(self._feature, message)
        work = invoke(self._feature, self._spec, values, call.context)
        call.start(self._read(call, uri, work))

    async def fetch(
        self, context: HandlerContext, uri: str, values: Mapping[str, Any]
    ) -> ReadResourceResult:
        """The result for a handler of the server."""
        value = await call_from(context, self._feature, self._spec, values)
        return self._plan.result(uri, value)

    async def _read(self, call: Call, uri: str, work: Coroutine[Any, Any, Any]) -> Body:
        try:
            value = await work
            if call.ended:
                return b"{}"  # not sent: the client was asked a question, or is gone
            given = call.input
            retried = given is not None and (
                given.inputResponses is not None or given.requestState is not None
            )
            return self._plan.encode(uri, value, call.revision, retried=retried)
        except ResourceNotFound as exc:
            raise not_found(exc.uri or uri, call.revision, exc.message) from exc


def not_found(uri: str, revision: Revision, message: str = "Resource not found") -> ProtocolError:
    """The error for a missing resource, with the code of the revision."""
    return ProtocolError(revision.resource_not_found, message, {"uri": shortened(uri)})


class Resource:
    """A resource under one URI: a function's, or fixed. `wirespeed.Server` makes them.

    Attributes:
        uri: The URI that clients read.
        entry: Its entry in resources/list.
        function: The function that returns its contents; None where they are fixed.
        scopes: What a client's token must permit; None for nothing in particular.
    """

    __slots__ = (
        "_fixed", "_pages", "_plan", "_reader", "_values", "_wholes", "entry", "function", "scopes",
        "uri",
    )  # fmt: skip

    def __init__(
        self,
        entry: ResourceEntry,
        plan: ContentsPlan | None = None,
        *,
        reader: _Reader | None = None,
        function: Callable[..., Any] | None = None,
        values: Mapping[str, Any] | None = None,
        fixed: Any = None,
        scopes: Iterable[str] = (),
    ) -> None:
        self.entry = entry
        self.scopes = checked_scopes(scopes) or None
        self.uri = entry.uri
        self.function = function
        self._plan = plan
        self._reader = reader
        self._values = values or {}
        self._fixed = fixed
        self._pages: dict[tuple[bool, frozenset[str]], Body] = {}
        self._wholes: dict[bytes, Body] = {}  # by how a server ends its results

    def __repr__(self) -> str:
        return f"<Resource {self.uri!r}>"

    def read(self, call: Call, message: Message) -> Body | None:
        """Answer a request, now or later (None)."""
        if self._reader is not None:
            self._reader.start(call, message, self.uri, self._values)
            return None
        body = self.encoded(call.revision)
        if not call.revision.modern or not isinstance(body, bytes):
            return body
        discovery = call.connection.service.discovery
        whole = self._wholes.get(discovery.modern_end)
        if whole is None:
            whole = self._wholes[discovery.modern_end] = discovery.finish(body)
        return whole

    async def fetch(self, context: HandlerContext) -> ReadResourceResult:
        """The result for a handler of the server."""
        if self._reader is not None:
            return await self._reader.fetch(context, self.uri, self._values)
        assert self._plan is not None
        return self._plan.result(self.uri, self._fixed)

    def shown_as(self, uri: str) -> Resource:
        """The same resource under another URI."""
        other = copy.copy(self)
        other.uri = uri
        other.entry = msgspec.structs.replace(self.entry, uri=uri)
        other._pages = {}
        other._wholes = {}
        return other

    def encoded(self, revision: Revision) -> Body:
        """The result for fixed contents, encoded once for all revisions with the same members."""
        assert self._plan is not None
        key = (
            "resources/read" in revision.cached_methods,
            missing_members("ResourceContents", revision.version),
        )
        page = self._pages.get(key)
        if page is None:
            page = self._plan.encode(self.uri, self._fixed, revision)
            self._pages[key] = page
        return page


class ResourceTemplate(Completable):
    """Resources whose URIs fit a template, its `key`. `wirespeed.Server` makes them.

    Attributes:
        entry: Its entry in resources/templates/list.
    """

    __slots__ = ("_arguments", "_reader", "entry")

    def __init__(
        self,
        entry: TemplateEntry,
        arguments: TemplateArguments,
        reader: _Reader,
        function: Callable[..., Any],
        scopes: Iterable[str],
    ) -> None:
        super().__init__(entry.uri_template, function, arguments.slots, scopes)
        self.entry = entry
        self._arguments = arguments
        self._reader = reader

    def __repr__(self) -> str:
        return f"<ResourceTemplate {self.key!r}>"

    def shown_behind(self, prefix: str) -> ResourceTemplate:
        """The same template with a prefix before its URIs; it has the same completers."""
        other = copy.copy(self)
        other.key = prefix + self.key
        other.entry = msgspec.structs.replace(self.entry, uri_template=other.key)
        other._arguments = self._arguments.behind(prefix)
        return other

    def match(self, uri: str) -> dict[str, Any] | None:
        """The function's arguments for a URI; None if the URI does not match this template."""
        return self._arguments.match(uri)

    def read(self, call: Call, message: Message, uri: str, values: Mapping[str, Any]) -> None:
        """Begin the call that answers."""
        self._reader.start(call, message, uri, values)

    async def fetch(
        self, context: HandlerContext, uri: str, values: Mapping[str, Any]
    ) -> ReadResourceResult:
        """The result for a handler of the server."""
        return await self._reader.fetch(context, uri, values)


# -- registration ---------------------------------------------------------------------------------


def make_resource(
    service: Registrar, uri: str, content: Any, options: ResourceOptions
) -> Resource | ResourceTemplate:
    """Make a resource; `Server.add_resource` describes the options and the errors."""
    mime_type, size = options.get("mime_type"), options.get("size")
    hints = cache_hints(service.discovery.hints, options.get("ttl_ms"), options.get("cache_scope"))
    icons, scopes = options.get("icons"), options.get("scopes", ())
    shown: dict[str, Any] = {
        "title": options.get("title"),
        "description": options.get("description"),
        "mime_type": mime_type,
        "annotations": _annotations(options.get("annotations")),
        "icons": None if icons is None else list(icons),
        "meta": check_meta(options.get("meta")),
    }
    if not callable(content):
        check_uri(uri)
        if size is None:
            size = _size(content)
        entry = ResourceEntry(uri, options.get("name") or _last_segment(uri), size=size, **shown)
        resource = Resource(entry, ContentsPlan(mime_type, hints), fixed=content, scopes=scopes)
        # encoded now: errors are raised here, and later changes of the value do not show
        once = isinstance(content, (str, bytes))
        versions = service.discovery.versions
        for version in versions[:1] if once else versions:
            resource.encoded(REVISIONS[version])
        return resource
    spec = inspect_tool(
        content,
        name=options.get("name"),
        description=options.get("description"),
        context_class=context_class(),
        kind="resource",
        dependencies=service.injecting(),
        threads=service.threads,
    )
    shown["description"] = spec.description
    reader = _Reader(spec, ContentsPlan(mime_type, hints, spec.returns), service, options)
    if "{" not in uri:
        check_uri(uri)
        slots = slots_of(spec)
        check_fixed(slots, spec, uri)
        entry = ResourceEntry(uri, spec.name, size=size, **shown)
        values = defaults(slots)
        return Resource(entry, reader=reader, function=content, values=values, scopes=scopes)
    if size is not None:
        raise ValueError(f"{uri}: the resources of a template have no common size")
    arguments = TemplateArguments(UriTemplate(uri), spec, safe=options.get("safe", True))
    template = TemplateEntry(uri, spec.name, **shown)
    return ResourceTemplate(template, arguments, reader, content, scopes)


def folder_template(
    uri_prefix: str, path: str | os.PathLike[str], *, hidden: bool, max_size: int
) -> tuple[str, str, Callable[..., Any], Callable[[str], list[str]]]:
    """The template of `Server.add_folder`, a name for it, the function that reads a file, and that
    which completes its path."""
    check_uri(uri_prefix)
    folder = Folder(path, hidden=hidden, max_size=max_size)

    def read(path: PurePosixPath) -> ResourceContents | None:
        try:
            file = folder.read(path)
        except OSError as exc:
            if exc.errno != errno.EFBIG:
                raise
            raise ProtocolError(
                codes.INTERNAL_ERROR, f"The resource is longer than {max_size} bytes"
            ) from exc
        if file is None:
            return None
        if file.is_text:
            return ResourceContents("", file.mime_type, text=file.data.decode())
        return ResourceContents("", file.mime_type, blob=file.data)

    slash = "" if uri_prefix.endswith("/") else "/"
    name = os.path.basename(folder.root) or "files"
    return f"{uri_prefix}{slash}{{+path}}", name, read, folder.complete


def _annotations(
    given: Annotations | Mapping[str, Any] | None,
) -> Annotations | dict[str, Any] | None:
    """Check annotations. ValueError: they are not valid."""
    if given is None or isinstance(given, Annotations):
        return given
    try:
        msgspec.convert(given, Annotations)
    except msgspec.ValidationError as exc:
        raise ValueError(f"annotations: {exc}") from None
    return dict(given)


def _size(content: Any) -> int | None:
    if isinstance(content, str):
        return len(content.encode("utf-8", "surrogatepass"))
    if isinstance(content, (bytes, bytearray, memoryview)):
        return memoryview(content).nbytes
    return None


def _last_segment(uri: str) -> str:
    """The default name of a resource: the last segment of its URI."""
    return uri.rstrip("/").rpartition("/")[2].rpartition(":")[2] or uri


# -- requests -------------------------------------------------------------------------------------


def list_resources(call: Call, message: Message) -> Body:
    """resources/list: pre-encoded pages."""
    service = call.connection.service
    shows = service.visibility.of("resources", call)
    return service.resources.fixed.page(call.revision, cursor_of(message), shows)


def list_templates(call: Call, message: Message) -> Body:
    """resources/templates/list: pre-encoded pages."""
    service = call.connection.service
    shows = service.visibility.of("templates", call)
    return service.resources.templates.page(call.revision, cursor_of(message), shows)


def read(call: Call, message: Message) -> Body | None:
    """resources/read: a resource under this URI, or the first template that the URI matches."""
    uri: str = params_of(message, _read).uri
    found = call.connection.service.resources.find(uri, call)
    if found is None:
        raise not_found(uri, call.revision)
    scopes = found.scopes if isinstance(found, Resource) else found[0].scopes
    if scopes is not None:
        check_scopes(call, scopes, f"the resource {shortened(uri)}")
    if isinstance(found, Resource):
        return found.read(call, message)
    template, values = found
    template.read(call, message, uri, values)
    return None


_read = msgspec.json.Decoder(ResourceParams)


set_public_home(globals())
