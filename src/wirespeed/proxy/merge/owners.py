"""Whose a resource is: the server that lists it, or that has a template for it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from wirespeed.protocol.uri_template import Matcher, UriTemplate

if TYPE_CHECKING:
    from wirespeed.proxy.merge.lists import Merged


def owner_of(uri: str, resources: Merged | None, templates: Merged | None) -> str | None:
    """Return the server that lists a URI, else the first with a template that matches it."""
    if resources is not None and uri in resources.owners:
        return resources.owners[uri]
    if templates is not None:
        if uri in templates.owners:  # completions name the template itself
            return templates.owners[uri]
        for template, server in templates.owners.items():
            if _matches(template, uri):
                return server
    return None


def _matches(template: str, uri: str) -> bool:
    try:
        return _matcher(template).match(uri) is not None
    except ValueError:  # not a template of RFC 6570
        return False


@functools.lru_cache(1024)
def _matcher(template: str) -> Matcher:
    return Matcher(UriTemplate(template), safe=False)
