"""How the proxy listens: what `wirespeed.serve` is given for one listener."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from wirespeed.proxy.config import ListenConfig
from wirespeed.transport.address import parse
from wirespeed.transport.http.options import HttpOptions

if TYPE_CHECKING:
    from wirespeed.transport.net.tls import Certificate
    from wirespeed.transport.options import ListenFields


def options_of(
    listen: ListenConfig, password: Callable[[str], str] | None = None
) -> tuple[ListenFields, Certificate | None]:
    """Return the options of a listener, and its certificate as the files are now, if it has one.

    ``password``: Returns that of an encrypted key, by the path of the key.

    Raises:
        ValueError: The URL, an option or a file is wrong.
    """
    address = parse(listen.url)
    fields: ListenFields = {}
    certificate: Certificate | None = None
    if listen.tokens:
        fields["token"] = listen.tokens
    if listen.origins is not None:
        fields["origins"] = listen.origins
    if listen.hosts is not None:
        fields["hosts"] = listen.hosts
    if listen.headers:
        fields["headers"] = listen.headers
    if listen.max_connections is not None:
        fields["max_connections"] = listen.max_connections
    if listen.max_input_bytes is not None:
        fields["max_input_bytes"] = listen.max_input_bytes
    if listen.access_log is not None:
        fields["access_log"] = listen.access_log
    if address.is_http:
        idle: dict[str, Any] = {}
        if listen.session_idle is not None:
            idle["session_ttl"] = listen.session_idle
        fields["http"] = HttpOptions(
            **idle,
            trusted_proxies=listen.trusted_proxies,
            sse_path=listen.sse_path,
            access_log=listen.access_log,
            access_log_sample=listen.access_log_sample,
        )
    else:
        for given in ("trusted_proxies", "sse_path", "session_idle", "access_log_sample"):
            if getattr(listen, given) != ListenConfig.__dataclass_fields__[given].default:
                only = "is for http:// and https:// only"
                raise ValueError(f"{given} {only}, not for {address.scheme}:")
    if listen.certfile is not None:
        from wirespeed.transport.net.tls import Certificate

        if not address.secure:
            raise ValueError(f"certfile is for https:// and wss:// only, not for {address.scheme}:")
        certificate = Certificate(listen.certfile, listen.keyfile, password)
        fields["ssl"] = certificate.context
    elif listen.keyfile is not None:
        raise ValueError("keyfile needs certfile")
    return fields, certificate
