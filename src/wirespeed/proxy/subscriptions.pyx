"""The requests ``subscriptions/listen`` of a side, which several servers may have."""

from wirespeed._core.inflight cimport InFlightSlot, inflight_id
from wirespeed._core.span cimport Span
from wirespeed.proxy.side cimport Route, Side, abandon
from wirespeed.server.requests.observer cimport CANCELLED

from wirespeed.proxy.tags import SUBSCRIPTION_OVER


def subscriptions_of(Side side not None):
    """Return the subscriptions of a side that further servers may get, as they came."""
    messages = [(<Route> route).message for route in routes_of(side)]
    return [message for message in messages if message is not None]


def n_unfinished(Side side not None):
    """Return how many requests a side has not answered. A subscription that another server has
    acknowledged is not counted."""
    cdef Route route, one
    cdef size_t n = side.session.pending.live
    for token in side.session.pending.tokens or ():
        if type(token) is not Route or not (<Route> token).listens:
            continue
        route = <Route> token
        held = route.asker.session.inflight.token_c(route.ref)
        one = <Route> held if type(held) is Route else None
        while one is not None and (one is route or not one.acknowledged):
            one = one.next
        n -= one is not None
    return n


def end_subscriptions(Side side not None):
    """Give a side the last word on each of its subscriptions. Their servers are told."""
    cdef Route route
    cdef InFlightSlot *slot
    cdef Span id
    for route in routes_of(side):
        abandon(route, "the proxy is shutting down", CANCELLED)
        slot = side.session.inflight.slot_c(route.ref)
        if slot is NULL:
            continue
        id = inflight_id(slot)
        text = (<const char *> id.p)[:id.n]
        side.session.send_notification(
            "notifications/cancelled", b'{"requestId":%b}' % text, about=route.ref
        )
        side.session.result_c(route.ref, SUBSCRIPTION_OVER % text)
    if side.link is not None:
        side.link.wrote_c()


cdef list routes_of(Side side):
    """The last route of each subscription."""
    return [
        token
        for token in side.session.inflight.tokens
        if type(token) is Route and (<Route> token).listens
    ]
