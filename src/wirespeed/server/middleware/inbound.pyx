"""A request and its answer as middleware sees them."""

cimport cython

import msgspec

from wirespeed._core._simd cimport (
    WS_ARGUMENTS, WS_META, WS_META_CLIENT_CAPABILITIES, WS_META_CLIENT_INFO,
    WS_META_PROTOCOL_VERSION, WS_PARAMS,
)
from wirespeed._core.envelope cimport REQUEST, Message, is_modern
from wirespeed.server.requests.params cimport name_of
from wirespeed.server.tools.encode cimport object_line_c

from wirespeed._core.envelope import parse
from wirespeed.protocol.revisions import understood
from wirespeed.server.permissions import is_open_to_all
from wirespeed.server.requests.reply import COMPLETE
from wirespeed.server.tools.results import check_finite, to_json

cdef enum:
    MAX_DEPTH = 1024           # of params that middleware replaces

cdef object encode = msgspec.json.Encoder().encode
cdef object decode_any = msgspec.json.Decoder().decode
cdef object decode_members = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@cython.final
@cython.freelist(64)
cdef class Reply:
    """The answer to a request: the JSON text of its result.

    ``call_next`` returns a complete reply, as it would be sent. A reply of your own, made by
    `result`, gets the members of its era (``resultType``, the server's identity) that it lacks.
    An error is not a reply: it is raised as `wirespeed.errors.ProtocolError`.
    """

    def __init__(self):
        raise TypeError("replies are made by Reply.result")

    def __repr__(self):
        return f"<Reply of {len(self.data)} bytes>"

    @staticmethod
    def result(value):
        """A reply with this result: the JSON text of an object as bytes, or what encodes to one.

        TypeError, ValueError: the value is not a JSON object.
        """
        cdef Reply reply = Reply.__new__(Reply)
        cdef bytes text
        if isinstance(value, (bytes, bytearray, memoryview)):
            text = object_line_c(value)
        else:
            text = encode(value)
            if text[0] != c"{":
                raise TypeError(f"a result must be a JSON object, not {type(value).__name__}")
            if text.find(b"null") >= 0:  # `in` takes twice as long
                check_finite(value)
        reply.data = text
        return reply

    def decode(self, type=dict):
        """The result as a dict, or as another type that msgspec knows.

        msgspec.DecodeError: it does not fit.
        """
        return msgspec.json.decode(self.data, type=type)

    @property
    def is_error(self):
        """Of tools/call: whether the tool failed (``isError``)."""
        return b'"isError"' in self.data and decode_any(self.data).get("isError") is True


@cython.final
@cython.freelist(64)
cdef class InboundRequest:
    """A request as middleware sees it: before anything of it is decoded.

    The request and its leases keep the input memory of the message: do not keep them after the
    request.
    """

    def __init__(self):
        raise TypeError("requests are made by the connection")

    def __repr__(self):
        return f"<InboundRequest {self.method} id={self.raw_id.decode('utf-8', 'replace')[:40]}>"

    @property
    def method(self):
        """The method."""
        return self.message.method

    @property
    def id(self):
        """The id, int or str."""
        return self.message.id

    @property
    def raw_id(self):
        """The id's exact JSON text."""
        return self.message.raw_id

    @property
    def params(self):
        """The params where they lie, a bytes-like `wirespeed.core.Lease` of JSON text; or None."""
        return self.message.lease_c(WS_PARAMS)

    @property
    def name(self):
        """The target of the request, or None: ``params.uri`` for methods of resources, else
        ``params.name`` (of the tool or prompt)."""
        return name_of(self.message)

    @property
    def arguments(self):
        """The arguments of tools/call or prompts/get, decoded into a new dict; empty if there are
        none."""
        cdef object lease = self.message.lease_c(WS_ARGUMENTS)
        found = None if lease is None else decode_any(lease)
        return found if isinstance(found, dict) else {}

    def decode(self, type=dict):
        """The params as a dict, or as another type that msgspec knows.

        msgspec.DecodeError: they do not fit.
        """
        cdef object lease = self.message.lease_c(WS_PARAMS)
        return msgspec.json.decode(b"{}" if lease is None else lease, type=type)

    def replace(self, *, name=None, arguments=None, params=None, meta=None):
        """The same request with other params, for ``call_next``. The method and the id stay, and
        so do members of the params that are not given::

            return await call_next(request.replace(arguments={**request.arguments, "limit": 10}))

        Args:
            name: The target: of the tool or prompt the name, of a resource the URI.
            arguments: The arguments of tools/call or prompts/get, a dict.
            params: All params, as a dict, another object that encodes to one, or the JSON text of
                one. Their ``_meta`` is added to that of the request.
            meta: Members to add to ``_meta``.

        Raises:
            ValueError: The method has no name or no arguments, or the params are nested too deeply.
            TypeError, ResultError, msgspec.DecodeError: The params are not a JSON object.
        """
        cdef Message m = self.message, other
        cdef InboundRequest request
        cdef str method = m.method
        cdef object lease = m.lease_c(WS_PARAMS)
        cdef dict members = {} if lease is None else decode_members(lease), own
        lease = m.lease_c(WS_META)
        try:
            own = {} if lease is None else decode_members(lease)
        except msgspec.ValidationError:  # of a legacy client, where it is not checked
            own = {}
        if params is not None:
            text = params if isinstance(params, (bytes, bytearray, memoryview)) else to_json(params)
            members = decode_members(text)
            own |= decode_members(members.get("_meta", b"{}"))
        if name is not None:
            if name_of(m) is None:
                raise ValueError(f"{method} has no name to replace: use params")
            members["uri" if method.startswith("resources/") else "name"] = name
        if arguments is not None:
            if method not in ("tools/call", "prompts/get"):
                raise ValueError(f"{method} has no arguments to replace: use params")
            members["arguments"] = arguments
        if meta is not None:
            own |= meta
        if own:
            members["_meta"] = own
        other = parse(
            b'{"jsonrpc":"2.0","id":%b,"method":%b,"params":%b}'
            % (m.raw_id, encode(method), to_json(members)),
            max_depth=MAX_DEPTH,
        )
        if other.kind_c != REQUEST:
            raise ValueError(f"the params cannot be sent: {other.reason}")
        other.ref = m.ref
        request = InboundRequest.__new__(InboundRequest)
        request.connection = self.connection
        request.message = other
        request.client = self.client
        request.shared = self.state
        request.replaced = self if self.replaced is None else self.replaced
        return request

    @property
    def meta(self):
        """The ``_meta`` of the params, decoded into a new dict; empty if there is none."""
        cdef object lease = self.message.lease_c(WS_META)
        found = None if lease is None else decode_any(lease)
        return found if isinstance(found, dict) else {}

    @property
    def protocol_version(self):
        """The revision that the request names, or that was negotiated; None before that."""
        if self.message.scan.poi[WS_META_PROTOCOL_VERSION].len:
            return self.message.text_c(WS_META_PROTOCOL_VERSION)
        revision = self.connection.revision
        return None if revision is None else revision.version

    @property
    def modern(self):
        """Whether the request is of the era without a handshake (2026-07-28 on)."""
        return is_modern(self.message)

    @property
    def client_info(self):
        """The client's name and version, as the client reports them; None if it does not."""
        return self._told(WS_META_CLIENT_INFO, self.connection.state.client_info)

    @property
    def client_capabilities(self):
        """The capabilities that the client declared."""
        cdef object capabilities = self.connection.state.capabilities
        if is_modern(self.message):
            lease = self.message.lease_c(WS_META_CLIENT_CAPABILITIES)
            capabilities = understood(None if lease is None else decode_any(lease))
        return capabilities

    cdef object _told(self, int which, object legacy):
        cdef Message m = self.message
        if not is_modern(m):
            return legacy
        lease = m.lease_c(which)
        told = None if lease is None else decode_any(lease)
        return told if isinstance(told, dict) else None

    @property
    def principal(self):
        """A digest of the client's credential, as bytes; None without a credential."""
        return self.connection.principal

    @property
    def open_to_all(self):
        """Whether every client may use the tool, prompt or resource that is named: it needs no
        scopes, and no filter and nothing that was disabled decides who sees it."""
        return is_open_to_all(self.connection, self.message.method, name_of(self.message))

    @property
    def user(self):
        """The user that ``authenticate`` returned for this client; None without one."""
        return None if self.client is None else self.client.user

    @property
    def peer(self):
        """The address of the client, as text for people; None on stdio and in memory."""
        return None if self.client is None else self.client.address

    @property
    def headers(self):
        """The header fields of the client's HTTP request (the upgrade to WebSocket); empty on
        other transports."""
        if self.client is None:
            from wirespeed.transport.headers import Headers

            return Headers()
        return self.client.headers

    @property
    def state(self):
        """A dict for whatever middleware, dependencies and the handler of this request share;
        handlers see it as `Context.state`."""
        if self.shared is None:
            self.shared = {}
        return self.shared

    @property
    def connection_id(self):
        """The serial number of the connection, unique in this process."""
        return self.connection.serial


cdef Reply whole_reply(bytes data):
    """The reply of a handler: a complete result."""
    cdef Reply reply = Reply.__new__(Reply)
    reply.data = data
    reply.whole = True
    return reply


cdef tuple body_of(Reply reply):
    """A reply that middleware made, for a modern client (see `wirespeed.server.requests.reply`)."""
    cdef dict members = decode_members(reply.data)
    cdef object kind = members.pop("resultType", COMPLETE), meta = members.pop("_meta", b"{}")
    return encode(members), bytes(meta), bytes(kind)
