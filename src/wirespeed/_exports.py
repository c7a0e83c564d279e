"""The public names of every package, and how a package loads each at its first use.

The file that defines a class may move; the name from which users import the class stays. That name
is the one that `repr`, tracebacks and pickles show.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is loaded when something needs it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# By package, by module that defines them: names with blanks between. What is called to make servers
# and clients is in `wirespeed`, the values of their API in `wirespeed.types`, each name once. A
# module without names is itself public.
HOMES = {
    "wirespeed": {
        "wirespeed.client.answering.progress": "report_progress",
        "wirespeed.client.client": "Client",
        "wirespeed.client.sync": "SyncClient",
        "wirespeed.client.targets.remote": "Http Socket WebSocket",
        "wirespeed.client.tasks.calls": "TASKS",
        "wirespeed.client.timeouts": "CLIENT_DEFAULT",
        "wirespeed.config": "",
        "wirespeed.core": "",
        "wirespeed.errors": "",
        "wirespeed.limits": "Limits",
        "wirespeed.schema.header_param": "HeaderParam",
        "wirespeed.server.context": "Context",
        "wirespeed.server.dependencies.provider": "Depends",
        "wirespeed.server.extensions": "Extension",
        "wirespeed.server.http.event_store": "EventStore MemoryEventStore",
        "wirespeed.server.http.sqlite_events": "SQLiteEventStore",
        "wirespeed.server.server": "Server",
        "wirespeed.transport.child.command": "Stdio",
        "wirespeed.transport.child.privileges": "ProcessLimits",
        "wirespeed.transport.http.options": "HttpOptions",
        "wirespeed.transport.http.response": "HttpResponse",
        "wirespeed.transport.net.serve": "run serve",
        "wirespeed.transport.options": "HttpRequest ListenOptions Refusal User",
        "wirespeed.transport": "",
        "wirespeed.types": "",
    },
    "wirespeed.config": {
        "wirespeed.config.document": "load loads",
        "wirespeed.config.servers": "AuthConfig Era ServerConfig",
        "wirespeed.config.shapes": "Transport",
    },
    "wirespeed.transport": {
        "wirespeed.transport.child.process": "Child",
        "wirespeed.transport.fd": "FdLink",
        "wirespeed.transport.files": "FileLink",
        "wirespeed.transport.link": "Endpoint Link",
        "wirespeed.transport.memory": "MemoryLink pair",
        "wirespeed.transport.service": "Connection Peer Service",
        "wirespeed.transport.stdio": "claimed non_blocking pollable",
        "wirespeed.transport.taskpool": "Running TaskPool",
        "wirespeed.transport.taskpool_choice": "close_pool open_pool",
    },
    "wirespeed.types": {
        "wirespeed.client.answering.types": "Accept ElicitParams SampleResult",
        "wirespeed.client.requests.middleware": "ClientMiddleware OutboundNext OutboundRequest",
        "wirespeed.client.results.features": (
            "Discovery ListPromptsResult ListResourceTemplatesResult ListResourcesResult "
            "PromptArgument PromptInfo PromptRef ResourceInfo ResourceRef ResourceTemplateInfo"
        ),
        "wirespeed.client.results.tools": "ListToolsResult LogMessage ToolInfo",
        "wirespeed.client.subscriptions.events": (
            "Event Notice Overflowed PromptsChanged ResourceUpdated ResourcesChanged Resumed "
            "SubscriptionFilter ToolsChanged"
        ),
        "wirespeed.client.subscriptions.subscription": "Subscription",
        "wirespeed.client.sync": "BlockingSubscription",
        "wirespeed.client.tasks.messages": "TaskState",
        "wirespeed.client.tasks.sync": "BlockingTask",
        "wirespeed.client.tasks.task": "ToolTask",
        "wirespeed.protocol.asking": (
            "ListRootsParams ModelHint ModelPreferences Root SampleParams SamplingMessage "
            "ToolChoice ToolResultContent ToolUseContent"
        ),
        "wirespeed.protocol.blocks": (
            "Annotations Audio EmbeddedResource Icon Image ResourceContents ResourceLink Text "
            "UnknownContent"
        ),
        "wirespeed.protocol.results": (
            "CallToolResult Completion GetPromptResult PromptMessage ReadResourceResult"
        ),
        "wirespeed.schema.forms": "Email Uri titles",
        "wirespeed.server.asking.elicitation": (
            "AcceptedElicitation CancelledElicitation DeclinedElicitation ElicitRequest Elicited"
        ),
        "wirespeed.server.asking.input_required": "InputRequired",
        "wirespeed.server.asking.roots": "RootsRequest",
        "wirespeed.server.asking.roots_changes": "RootsChange",
        "wirespeed.server.asking.sampling": "SampleRequest Sampled",
        "wirespeed.server.entries": "Entry PromptEntry ResourceEntry TemplateEntry ToolEntry",
        "wirespeed.server.extensions": "ExtensionResult",
        "wirespeed.server.middleware.functions": "AskMiddleware AskNext CallNext Middleware",
        "wirespeed.server.middleware.inbound": "InboundRequest Reply",
        "wirespeed.server.middleware.stack": "ServerRequest",
        "wirespeed.server.prompts.prompt": "Prompt PromptResult",
        "wirespeed.server.resources.contents": "ResourceResult",
        "wirespeed.server.resources.resource": "Resource ResourceTemplate",
        "wirespeed.server.tools.results": "RawResult ToolResult",
        "wirespeed.server.tools.tool": "Tool",
        "wirespeed.transport.http.asgi": "AsgiApp",
    },
    "wirespeed.auth": {
        "wirespeed.auth.access_token": "AccessToken Verifier",
        "wirespeed.auth.verifiers.any_of": "AnyOf",
        "wirespeed.auth.verifiers.hashes": "TokenHash TokenHashes hash_token new_token",
        "wirespeed.auth.verifiers.introspection": "IntrospectionVerifier",
        "wirespeed.auth.verifiers.jwt": "JwtVerifier",
        "wirespeed.auth.client.authorization": "Authorization AuthorizationSession",
        "wirespeed.auth.client.client_credentials": "ClientCredentials",
        "wirespeed.auth.client.enterprise": "EnterpriseManaged",
        "wirespeed.auth.client.jwt_bearer": "JwtBearer",
        "wirespeed.auth.client.file_storage": "FileStorage",
        "wirespeed.auth.client.keyring_storage": "KeyringStorage",
        "wirespeed.auth.client.oauth": "OAuth",
        "wirespeed.auth.client.storage": "MemoryStorage TokenStorage",
        "wirespeed.auth.resource_server": "ResourceServer",
    },
    "wirespeed.tasks": {
        "wirespeed.tasks.memory": "MemoryTaskStore",
        "wirespeed.tasks.model": "Task TaskLimit TaskStateError TaskStatus",
        "wirespeed.tasks.sqlite": "SQLiteTaskStore",
        "wirespeed.tasks.store": "Page TaskStore",
    },
    "wirespeed.proxy": {
        "wirespeed.proxy.backend_config": (
            "BackendConfig BreakerConfig FlowConfig HealthConfig RateConfig RecycleConfig "
            "RetryConfig ToolRules ToolsConfig"
        ),
        "wirespeed.proxy.config": (
            "AdminConfig AuditConfig AuthorizationConfig IntrospectionConfig ListenConfig "
            "PrincipalConfig ProxyConfig"
        ),
        "wirespeed.proxy.mirror": "Mirror",
        "wirespeed.proxy.proxy": "Proxy",
        "wirespeed.proxy.reload": "Changes Reloads",
    },
    "wirespeed.litemcp": {
        "wirespeed.litemcp.client": "LiteClient",
        "wirespeed.litemcp.messages": "CallResult Content Parameter Response Tool VersionTuple",
        "wirespeed.litemcp.server": "LiteServer run serve",
        "wirespeed.litemcp.sync": "SyncLiteClient",
    },
}


def exports(package: str) -> tuple[list[str], Callable[[str], Any]]:
    """The ``__all__`` and the ``__getattr__`` of a package, which load a name when it is first
    used. The modules below the package that the table has are loaded as attributes, too."""
    homes = HOMES[package]
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        import importlib

        home = home_of.get(name)
        if home is None:
            if f"{package}.{name}" in homes:
                return importlib.import_module(f"{package}.{name}")
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(home), name)
        setattr(importlib.import_module(package), name, value)
        return value

    return sorted(home_of), load


def set_public_home(namespace: dict[str, Any]) -> None:
    """Set ``__module__`` of a module's public classes and functions to their package.

    It is the last line of each module that has some. Annotations of structs are no strings there:
    `msgspec` and `typing` look the names in strings up in ``__module__``.
    """
    module = namespace["__name__"]
    for package, homes in HOMES.items():
        for name in homes.get(module, "").split():
            value = namespace[name]
            if getattr(value, "__qualname__", None) == name and value.__module__ == module:
                value.__module__ = package
