"""Sums over many sides: a proxy may have thousands of clients, and is not to stop for a scrape."""

from wirespeed.proxy.side cimport Route, Side


def totals(sides):
    """Sum up the counters of sides, and what they hold now.

    ``waiting``: requests of these sides that were not passed on yet; ``asked``: requests that these
    sides are asked; ``unsent``: bytes; ``turns``: those that these sides have given.
    """
    cdef Side side
    cdef long long messages_in = 0, messages_out = 0, bytes_in = 0, bytes_out = 0, faults = 0
    cdef long long refused = 0, late = 0, dropped = 0, passed = 0, waiting = 0, asked = 0
    cdef long long unsent = 0, over_rate = 0, turns = 0
    for side in sides:
        messages_in += side.session.messages_in
        messages_out += side.session.messages_out
        bytes_in += side.session.bytes_in
        bytes_out += side.session.bytes_out
        faults += side.session.faults
        refused += side.session.refused
        late += side.n_late + side.session.late_responses
        dropped += side.n_dropped
        passed += side.n_passed
        over_rate += side.n_over_rate
        turns += side.n_turns
        if side.session.inflight.live:
            waiting += side.session.inflight.live
            for token in side.session.inflight.tokens:
                waiting -= type(token) is Route
        asked += side.session.pending.live
        unsent += <long long> side.session.outbox.size
    return {
        "messages_in": messages_in,
        "messages_out": messages_out,
        "bytes_in": bytes_in,
        "bytes_out": bytes_out,
        "faults": faults,
        "refused": refused,
        "late": late,
        "dropped": dropped,
        "passed": passed,
        "over_rate": over_rate,
        "turns": turns,
        "waiting": waiting,
        "asked": asked,
        "unsent": unsent,
    }
