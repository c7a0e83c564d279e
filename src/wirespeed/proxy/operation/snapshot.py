"""Numbers and states of a proxy at one moment."""

from __future__ import annotations

import time
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from wirespeed.proxy.access.skills import HeldSkill
from wirespeed.proxy.isolation.first import FirstConnection
from wirespeed.proxy.isolation.instance import Instance
from wirespeed.proxy.operation.meter import Sample, Share, each, in_parts
from wirespeed.proxy.operation.processes import ProcessEntry, StoreEntry, process_entry
from wirespeed.transport.memory import MemoryLink

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from wirespeed.peer.http.http_session import HttpSession
    from wirespeed.peer.http.sessions import Sessions
    from wirespeed.proxy.access.audit import AuditLog
    from wirespeed.proxy.access.grants import Grants
    from wirespeed.proxy.access.skills import SkillGate
    from wirespeed.proxy.backend_config import BackendConfig
    from wirespeed.proxy.downstream import Downstream
    from wirespeed.proxy.flow.admission import RequestLimits
    from wirespeed.proxy.hooks import HookedTools
    from wirespeed.proxy.isolation.assignment import Assignment
    from wirespeed.proxy.meta_tools import MetaTools
    from wirespeed.proxy.names.watch import NameWatch
    from wirespeed.proxy.operation.meter import Meter, Steps
    from wirespeed.proxy.supervision.supervisor import State, Supervisor
    from wirespeed.proxy.upstream import UpstreamOwner

MAX_CLIENTS = 100  # clients that are shown one by one, of each worker
MAX_SERVERS = 100  # servers of one endpoint that are shown one by one, of each worker
MAX_TEXT = 300  # characters of one text of a server or client

# States of one server.
STATES = ("up", "starting", "crash-loop", "leaving")
# Of an address that has failed again and again, and gets no requests for a while.
EJECTED = "ejected"
# Of an endpoint. Where several servers are in different states, it is "degraded" if one is up.
IDLE = "idle"
DRAINED = "drained"
DEGRADED = "degraded"
READY = frozenset({"up", DEGRADED, IDLE})

_WORDS: dict[State, str] = {
    "ready": "up",
    "starting": "starting",
    "restarting": "starting",
    "crash loop": "crash-loop",
    "stopped": IDLE,
}

Sums = dict[str, int]

BREAKER_STATES = ("open", "half open")
FLOW = ("in_flight", "queued", "queued_bytes")  # attributes of `RequestLimits`


class MethodEntry(msgspec.Struct):
    """The requests of one method that a server was asked, and that have ended.

    Attributes:
        buckets: By duration, as in `Series`, each for itself.
        codes: How many failed, by the code of the error; 1: cancelled.
    """

    method: str
    buckets: list[int]
    seconds: float
    codes: dict[int, int]


class ServerEntry(msgspec.Struct):
    """One server, or one connection to a server elsewhere.

    Attributes:
        url: The address; "" unless the server has several. What follows is 0 or None without one.
        weight: Its weight, which is less while it has just come.
        percent: What it gets of all requests as a canary; None: it is none.
        answered: The requests that it has answered.
        failures: How often it has failed.
    """

    worker: int
    state: str
    seconds: float  # in this state
    era: str
    pid: int | None
    starts: int
    in_flight: int
    error: str | None
    url: str = ""
    weight: float = 0.0
    percent: float | None = None
    answered: int = 0
    failures: int = 0


class ClientEntry(msgspec.Struct):
    """One client."""

    worker: int
    endpoint: str
    address: str
    user: str | None
    version: str | None
    in_flight: int
    bytes_in: int
    bytes_out: int


class SkillsEntry(msgspec.Struct):
    """The skills of a server whose skills must be approved.

    Attributes:
        approved: How many are approved.
        waiting: Those that are not, of those that the server has shown.
        fault: The fault of the file of approvals; None: it is valid.
    """

    approved: int
    waiting: list[HeldSkill]
    fault: str | None


class EndpointEntry(msgspec.Struct):
    """One endpoint: a server and its clients, or all servers as one.

    Attributes:
        isolation: None for the endpoint of all servers.
        n_sessions: The sessions over HTTP.
        longest_idle: Seconds since the last request of the one that was used least recently.
        required: Whether the proxy is not ready without it.
        supervision: What was done to the servers, and the requests that were sent again.
        garbage: The invalid messages that servers wrote, by kind.
        breakers: How many there are, by state, without those that are closed.
        flow: What the limits of the server count; empty without limits.
        refused: Requests that got an error of the proxy, by reason.
        cut: Clients that were disconnected, by reason.
        server_states: How many servers there are, by state.
        servers: The first of them.
        hour: The history by minutes.
        tools, principals: Its requests by tool and by principal.
        hooks: The counts of its hooks; empty without hooks.
        search: The number of searches and of calls by ``call_tool``; empty without a tool search.
        names: The number of look-ups of the server's name, by outcome; empty without ``resolve``.
        skills: Its skills, where they must be approved; else None.
        cached_lists: The requests that were answered from kept lists, by connections that are
            open.
        drained: Whether an operator has taken it out of use.
    """

    name: str
    isolation: str | None
    target: str
    state: str
    required: bool
    n_clients: int
    n_connected: int
    n_sessions: int
    longest_idle: float
    of_clients: Sums
    of_servers: Sums
    supervision: Sums
    garbage: Sums
    breakers: Sums
    flow: Sums
    refused: Sums
    cut: Sums
    dropped: Sums
    server_states: Sums
    requests: list[MethodEntry]
    history: list[Sample]
    servers: list[ServerEntry]
    hour: list[Sample] = []
    tools: list[Share] = []
    principals: list[Share] = []
    hooks: Sums = {}
    search: Sums = {}
    names: Sums = {}
    skills: SkillsEntry | None = None
    cached_lists: int = 0
    drained: bool = False


class Event(msgspec.Struct, array_like=True):
    """A warning or an error.

    Attributes:
        at: When it was last logged, in Unix seconds.
        times: How often in a row.
    """

    at: float
    level: str
    text: str
    times: int = 1


class Snapshot(msgspec.Struct):
    """The numbers of a proxy, or of several workers together.

    Attributes:
        started: When the first worker was started, in Unix seconds.
        n_clients: All clients, also those that are not in ``clients``.
        audit: Lines of the audit log that were written, and left out; empty without one.
        missing: The workers that did not answer.
    """

    started: float
    processes: list[ProcessEntry]
    endpoints: list[EndpointEntry]
    clients: list[ClientEntry]
    n_clients: int
    events: list[Event]
    audit: Sums
    missing: list[int] = []


class CertificateEntry(msgspec.Struct):
    """The certificate of a listener.

    Attributes:
        listen: The URL.
        expires: When it expires, in Unix seconds.
    """

    listen: str
    file: str
    expires: float


class Facts(msgspec.Struct):
    """The knowledge of a proxy besides its numbers.

    Attributes:
        name: Of the proxy.
        config: The file; None without one.
        certificates: Of the listeners.
        reloads: How often the file was read again, and how often it was refused.
        reload_error: The fault that the last reload found; None if it succeeded.
        reloaded: When the last reload ended, in Unix seconds; None before the first.
        coming: The servers that are started to take a place, and why one could not be started so
            far; "" as long as none of its starts has failed.
        draining: Whether the proxy takes no new clients and ends soon.
        configuration: The configuration in force, without secrets.
        store: The store of the hosts; None without one.
    """

    version: str
    name: str
    listen: list[str]
    config: str | None = None
    reloads: int = 0
    reloads_refused: int = 0
    reload_error: str | None = None
    reloaded: float | None = None
    coming: dict[str, str] = {}
    draining: bool = False
    certificates: list[CertificateEntry] = []
    configuration: dict[str, Any] = {}
    store: StoreEntry | None = None


class Held(Protocol):
    """What is needed, or is not."""

    @property
    def is_held(self) -> bool:
        """Whether anything needs it."""


class ProxyEndpoint(Protocol):
    """The service of a server, or of all servers as one, as far as its numbers are read."""

    name: str
    config: BackendConfig | None
    assignment: Assignment
    downstreams: dict[Downstream, None]
    flow: RequestLimits | None
    access: Grants | None
    audit: AuditLog | None
    meter: Meter
    cut: Sums
    hooks: HookedTools | None
    meta_tools: MetaTools | None
    skills: SkillGate | None
    names: NameWatch | None

    @property
    def is_drained(self) -> bool:
        """Whether an operator has taken the server out of use."""

    async def control(self, action: str, principal: str = "") -> str:
        """Drain, resume or restart the server, or log a principal out. Returns the outcome in
        words. ValueError: there is no such action."""

    @property
    def supervisors(self) -> list[Supervisor]:
        """The lives of its servers."""

    @property
    def life(self) -> Held:
        """Whether a listener needs the servers."""

    @property
    def sessions(self) -> Sequence[Sessions[HttpSession]]:
        """The tables of sessions of its listeners over HTTP."""


def take(
    services: Iterable[ProxyEndpoint],
    facts: Facts,
    started: float,
    events: list[Event],
    worker: int,
) -> Steps[Snapshot]:
    """Read the numbers of this process."""
    found = list(services)
    endpoints: list[EndpointEntry] = []
    clients: list[ClientEntry] = []
    n_clients = 0
    for service in found:
        n_of_endpoint = 0  # also those that come from another endpoint, but no lanes
        for part in in_parts(service.downstreams):
            n_of_endpoint += sum(not downstream.shared for downstream in part)
            own = [downstream for downstream in part if _is_client(downstream)]
            n_clients += len(own)
            clients += [
                _client(downstream, worker) for downstream in own[: MAX_CLIENTS - len(clients)]
            ]
            yield
        of_clients = yield from service.meter.of_clients()
        endpoints.append(_endpoint(service, worker, n_of_endpoint, of_clients))
        yield
    process = yield from process_entry(worker, facts)
    return Snapshot(started, [process], endpoints, clients, n_clients, events, _audit(found))


def _audit(services: list[ProxyEndpoint]) -> Sums:
    """They share one audit log."""
    audit = services[0].audit
    return {} if audit is None else {"written": audit.written, "dropped": audit.dropped}


def _is_client(downstream: Downstream) -> bool:
    """Return whether a downstream is a client's own connection. Lanes and the connections of the
    merged endpoint are not."""
    return not downstream.shared and not isinstance(downstream.link, MemoryLink)


def _endpoint(
    service: ProxyEndpoint, worker: int, n_clients: int, of_clients: Sums
) -> EndpointEntry:
    meter, config = service.meter, service.config
    supervisors = service.supervisors
    states: Sums = {}
    for supervisor in supervisors:
        state = word_of(supervisor)
        states[state] = states.get(state, 0) + 1
    assignment, flow = service.assignment, service.flow
    breakers = getattr(assignment, "breakers", ())
    if flow is not None:
        of_clients["waiting"] += flow.n_queued
    series = () if meter.observer is None else tuple(meter.observer.series.values())
    return EndpointEntry(
        name=service.name,
        isolation=None if config is None else config.isolation,
        target="" if config is None else _target(config.target),
        state=state_of(service),
        required=is_required(service),
        n_clients=n_clients,
        n_connected=meter.n_clients,
        n_sessions=sum(map(len, service.sessions)),
        longest_idle=max((one.longest_idle for one in service.sessions), default=0.0),
        of_clients=of_clients,
        of_servers=meter.of_servers(),
        supervision={
            **meter.starts,
            "replacements": meter.n_replaced,
            "retries": getattr(assignment, "n_retries", 0),
            "breaker_opened": sum(one.opened for one in breakers),
        },
        garbage=meter.garbage,
        breakers={state: sum(one.state == state for one in breakers) for state in BREAKER_STATES},
        flow={} if flow is None else {name: getattr(flow, f"n_{name}") for name in FLOW},
        refused={
            "connection": of_clients["refused"],
            "rate": of_clients["over_rate"],
            "quota": of_clients["over_quota"],
            "queue": 0 if flow is None else flow.n_refused,
            "access": 0 if service.access is None else service.access.n_refused,
        },
        cut=dict(service.cut),
        dropped=dict(getattr(assignment, "dropped", {})),
        server_states=states,
        requests=[
            MethodEntry(one.method, each(one.buckets), one.seconds, dict(one.codes))
            for one in series
        ],
        history=list(meter.history),
        hour=list(meter.hour),
        tools=meter.shares("tools", _tool_name),
        principals=meter.shares("principals", lambda digest: _principal_name(service, digest)),
        hooks={} if service.hooks is None else service.hooks.counts,
        search={} if service.meta_tools is None else service.meta_tools.counts,
        names={} if service.names is None else service.names.counts,
        skills=None if service.skills is None else _skills(service.skills),
        cached_lists=meter.n_cached,
        drained=service.is_drained,
        servers=[
            _server(supervisor, worker)
            for supervisor in islice(sorted(supervisors, key=_is_own), MAX_SERVERS)
        ],
    )


def _skills(gate: SkillGate) -> SkillsEntry:
    return SkillsEntry(gate.n_approved, list(gate.held.values()), gate.approvals.fault)


def _tool_name(text: bytes) -> str:
    try:
        return _cut(msgspec.json.decode(text, type=str))
    except msgspec.DecodeError:
        return "other"


def _principal_name(service: ProxyEndpoint, digest: bytes | None) -> str:
    if digest is None:
        return "nobody"
    grant = None if service.access is None else service.access.of(digest)
    return grant.name if grant is not None and grant.name else digest.hex()[:8]


def _target(target: Any) -> str:
    """Return how a server is reached, as the file writes it. Arguments may be secrets."""
    if hasattr(target, "command"):
        return _cut((target.shown or target.argv)[0])
    if not hasattr(target, "url"):  # a server of this process
        return type(target).__name__
    return _cut((target.shown or target.url).partition("?")[0])


def _is_own(supervisor: Supervisor) -> bool:
    """Return whether a server is a client's own, or a process: addresses come before these."""
    return _address_of(supervisor) is None


def _address_of(supervisor: Supervisor) -> Instance | None:
    """Return the instance whose numbers are those of an address; None: it is none."""
    owner = supervisor.owner
    found = owner.modern if isinstance(owner, FirstConnection) else owner
    return found if isinstance(found, Instance) and found.address is not None else None


def _server(supervisor: Supervisor, worker: int) -> ServerEntry:
    upstream, instance = supervisor.upstream, _address_of(supervisor)
    revision = None if upstream is None else upstream.revision
    found = ServerEntry(
        worker=worker,
        state=word_of(supervisor),
        seconds=max(0.0, time.monotonic() - supervisor.status.since),
        era="" if revision is None else "modern" if revision.modern else "legacy",
        pid=supervisor.status.pid,
        starts=supervisor.status.restarts + 1,
        in_flight=0 if upstream is None else upstream.session.pending.live,
        error=_cut(supervisor.status.error) or None,
    )
    if instance is not None and (address := instance.address) is not None:
        found.url = _cut((address.url.shown or address.url.url).partition("?")[0])
        found.weight, found.percent = address.share.weight, address.url.percent
        found.answered, found.failures = instance.n_answered, instance.n_failures
    return found


def _client(downstream: Downstream, worker: int) -> ClientEntry:
    session = downstream.session
    user = None if downstream.peer is None else downstream.peer.user
    return ClientEntry(
        worker=worker,
        endpoint=downstream.service.name,
        address="stdio" if downstream.peer is None else _cut(downstream.peer.address),
        user=None if user is None else _cut(str(user)),  # a `User` cannot be encoded
        version=None if downstream.revision is None else downstream.revision.version,
        in_flight=session.inflight.live,
        bytes_in=session.bytes_in,
        bytes_out=session.bytes_out,
    )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 1] + "…"


# -- states in one word ----------------------------------------------------------------------------


def word_of(supervisor: Supervisor) -> str:
    """Return the state of one server. A server that was replaced, and an address that was removed,
    have the state "leaving", and an address that gets no requests "ejected"."""
    if supervisor.leaves:
        return "leaving"
    address = _address_of(supervisor)
    if supervisor.status.state == "ready" and address is not None and address.is_ejected:
        return EJECTED
    return _WORDS[supervisor.status.state]


def state_of(service: ProxyEndpoint) -> str:
    """Return the state of an endpoint. A server that belongs to one client or one principal fails
    for that one alone. While a server is replaced, two run in its place: it is enough that one of
    them is up."""
    if service.is_drained:
        return DRAINED
    supervisors = [one for one in service.supervisors if not one.leaves]
    if service.config is None or service.config.identity is not None:
        return "up"
    if supervisors and not any(one.restarts for one in supervisors):
        return "up"
    if not supervisors and not service.life.is_held:
        return "starting"
    if not supervisors and service.config.resolve is not None:
        return "down"  # the name leads nowhere
    places: dict[UpstreamOwner, set[str]] = {}
    for one in supervisors:
        if one.restarts:
            places.setdefault(one.owner, set()).add(word_of(one))
    return summary({"up" if "up" in words else min(words) for words in places.values()})


def is_required(service: ProxyEndpoint) -> bool:
    """Return whether the proxy is ready only with this server. A server that an operator has
    drained does not count."""
    return not service.is_drained and (service.config is None or service.config.required)


def summary(states: set[str]) -> str:
    """Return the state of an endpoint whose servers have these states. One without a server is
    idle: a server is started when a client needs it."""
    if not states:
        return IDLE
    if len(states) == 1:
        (state,) = states
        return state
    return DEGRADED if "up" in states else "down"
