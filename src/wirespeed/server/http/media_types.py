"""What a body is, and what a client accepts (RFC 9110 sections 8.3.1 and 12.5.1)."""

from __future__ import annotations

import re

_REFUSED = re.compile(r"q=0(?:\.0{0,3})?\Z")


def is_json(content_type: str) -> bool:
    """Whether a Content-Type is JSON."""
    return content_type.partition(";")[0].strip(" \t").lower() == "application/json"


def accepts(accept: str) -> tuple[bool, bool]:
    """Whether an Accept allows JSON, and whether it allows a stream of events."""
    json = events = False
    for item in accept.lower().split(","):
        kind, *parameters = (part.strip(" \t") for part in item.split(";"))
        if any(_REFUSED.match(parameter) for parameter in parameters):
            continue
        json = json or kind in ("*/*", "application/*", "application/json")
        events = events or kind in ("*/*", "text/*", "text/event-stream")
    return json, events
