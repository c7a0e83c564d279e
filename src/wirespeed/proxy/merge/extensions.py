"""Extensions at the endpoint of several servers: which of them it declares, and whose a method is.

The methods of most extensions do not say which server they are for. So an extension is declared to
a client if one server has it that the client may use, in a revision that is known: that server gets
its requests and notifications. An extension of which the proxy knows nothing is not declared; at
``/servers/NAME`` everything passes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from wirespeed.protocol.meta import APPS_EXTENSION, TASKS_EXTENSION
from wirespeed.proxy.merge.skill_uris import merged_settings
from wirespeed.skills.model import SKILLS_EXTENSION

if TYPE_CHECKING:
    from wirespeed.proxy.merge.member import Hello
    from wirespeed.server.extensions import Extension

logger = logging.getLogger("wirespeed.proxy")


def offered_tasks(capabilities: Mapping[str, Any], modern: bool) -> bool:
    """Whether a server has tasks, in an era."""
    if not modern:
        return "tasks" in capabilities
    extensions = capabilities.get("extensions")
    return isinstance(extensions, dict) and TASKS_EXTENSION in extensions


class MergedExtensions:
    """The extensions that the proxy was given."""

    def __init__(self, extensions: tuple[Extension, ...]) -> None:
        self.given = extensions
        self._of_requests = {method: one for one in extensions for method in one.handlers}
        self._of_notifications = {method: one for one in extensions for method in one.notifications}
        self._told: set[str] = set()

    def of_request(self, method: str) -> Extension | None:
        """The extension that has a method for requests of clients."""
        return self._of_requests.get(method)

    def of_notification(self, method: str) -> Extension | None:
        """The same for notifications of clients."""
        return self._of_notifications.get(method)

    def declared(self, hellos: Mapping[str, Hello], modern: bool) -> dict[str, Any]:
        """The settings of the extensions that the endpoint declares for these servers."""
        found = {name: hello["capabilities"] for name, hello in hellos.items()}
        by_server = {name: one.get("extensions") for name, one in found.items()}
        settings = [one for one in by_server.values() if isinstance(one, dict)]
        union: dict[str, Any] = {}
        for name in (APPS_EXTENSION, TASKS_EXTENSION):
            having = [one[name] for one in settings if name in one]
            if having and (name != TASKS_EXTENSION or len(having) == 1):
                union[name] = having[0]
        if (skills := merged_settings(found.values())) is not None:
            union[SKILLS_EXTENSION] = skills
        for extension in self.given:
            server = self._server_of(extension, hellos, modern)
            if server is not None:
                union[extension.name] = by_server[server][extension.name]
        while lacking := [
            one.name
            for one in self.given
            if one.name in union and not union.keys() >= {*one.depends}
        ]:
            for name in lacking:
                del union[name]
        return union

    def server_of(
        self, extension: Extension, hellos: Mapping[str, Hello], modern: bool
    ) -> str | None:
        """The server that gets what is for an extension; None: the extension is not declared."""
        if extension.name not in self.declared(hellos, modern):
            return None
        return self._server_of(extension, hellos, modern)

    def _server_of(
        self, extension: Extension, hellos: Mapping[str, Hello], modern: bool
    ) -> str | None:
        """The server that has an extension; None: no server has it, or several have it, which is
        logged once."""
        if ("modern" if modern else "legacy") not in extension.eras:
            return None
        having = [name for name, hello in hellos.items() if _has(extension, name, hello)]
        if not having:
            return None
        if extension.listening:
            self._tell(f"the extension {extension.name} is not declared: it adds to subscriptions")
            return None
        if len(having) > 1 and (extension.handlers or extension.notifications):
            self._tell(
                f"the extension {extension.name} is not declared: {', '.join(having)} have it, and "
                "its requests do not say whose they are"
            )
            return None
        return having[0]

    def _tell(self, text: str) -> None:
        if text not in self._told and len(self._told) < 100:
            self._told.add(text)
            logger.warning("%s", text)


def _has(extension: Extension, name: str, hello: Hello) -> bool:
    declared = hello["capabilities"].get("extensions")
    settings = declared.get(extension.name) if isinstance(declared, dict) else None
    return isinstance(settings, dict) and extension.knows(settings, f"the server {name}")
