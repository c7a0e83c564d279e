"""Configurations whose fields have values of wrong types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from lab.rows import every

from wirespeed import Http, Limits, Server, Stdio
from wirespeed.proxy import (
    AdminConfig,
    AuditConfig,
    AuthorizationConfig,
    BackendConfig,
    BreakerConfig,
    FlowConfig,
    HealthConfig,
    IntrospectionConfig,
    ListenConfig,
    PrincipalConfig,
    ProxyConfig,
    RateConfig,
    RecycleConfig,
    RetryConfig,
    ToolRules,
    ToolsConfig,
)

TARGET = Stdio("x")
ONE = BackendConfig(target=TARGET)
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a class": (
        lambda: BackendConfig(target=str),  # type: ignore[arg-type]
        "must be Stdio | Http | WebSocket | Socket | Server, not the class str",
    ),
    "a string": (lambda: BackendConfig(target="x"), "target of BackendConfig"),  # type: ignore[arg-type]
    "nothing": (lambda: BackendConfig(target=None), "not NoneType"),  # type: ignore[arg-type]
    "a part": (lambda: BackendConfig(target=TARGET, tools=ToolRules()), "tools of BackendConfig"),  # type: ignore[arg-type]
    "a name": (lambda: BackendConfig(target=TARGET, name=5), "name of BackendConfig"),  # type: ignore[arg-type]
    "a word": (lambda: BackendConfig(target=TARGET, isolation=1), "isolation of"),  # type: ignore[arg-type]
    "a number": (lambda: BackendConfig(target=TARGET, size=True), "size of BackendConfig"),
    "characters": (lambda: BackendConfig(target=TARGET, lite="x"), "lite of BackendConfig"),  # type: ignore[arg-type]
    "rules": (lambda: ToolRules(allow="*"), "allow of ToolRules must be tuple[str, ...], not str"),  # type: ignore[arg-type]
    "tools": (lambda: ToolsConfig(rename={"a": 1}), "rename of ToolsConfig"),  # type: ignore[dict-item]
    "flow": (lambda: FlowConfig(tools={"a": 1.5}), "tools of FlowConfig"),  # type: ignore[dict-item]
    "rate": (lambda: RateConfig(requests="1"), "requests of RateConfig must be float, not str"),  # type: ignore[arg-type]
    "health": (lambda: HealthConfig(interval=None), "interval of HealthConfig"),  # type: ignore[arg-type]
    "recycle": (lambda: RecycleConfig(max_requests=1.5), "max_requests of RecycleConfig"),  # type: ignore[arg-type]
    "retry": (lambda: RetryConfig(tools="x"), "tools of RetryConfig"),  # type: ignore[arg-type]
    "breaker": (lambda: BreakerConfig(failures="5"), "failures of BreakerConfig"),  # type: ignore[arg-type]
    "listen": (lambda: ListenConfig(url="unix:s", hosts="h"), "hosts of ListenConfig"),  # type: ignore[arg-type]
    "principal": (lambda: PrincipalConfig(name="a", servers="*"), "servers of PrincipalConfig"),  # type: ignore[arg-type]
    "introspection": (lambda: IntrospectionConfig(url=b"x"), "url of IntrospectionConfig"),  # type: ignore[arg-type]
    "auth": (lambda: AuthorizationConfig(resource="r", issuers="i"), "issuers of Authorization"),  # type: ignore[arg-type]
    "audit": (lambda: AuditConfig(to=1), "to of AuditConfig"),  # type: ignore[arg-type]
    "admin": (lambda: AdminConfig(listen=1), "listen of AdminConfig"),  # type: ignore[arg-type]
    "backends": (lambda: ProxyConfig(backends=ONE, listen=()), "backends of ProxyConfig"),  # type: ignore[arg-type]
    "targets": (lambda: ProxyConfig(backends=(TARGET,), listen=()), "backends of ProxyConfig"),  # type: ignore[arg-type]
    "urls": (lambda: ProxyConfig(backends=(ONE,), listen="unix:s"), "listen of ProxyConfig"),  # type: ignore[arg-type]
    "limits": (lambda: ProxyConfig(backends=(ONE,), listen=(), limits={}), "limits of ProxyConfig"),  # type: ignore[arg-type]
}


@every("what", WRONG)
def test_a_wrong_type_is_named_where_the_value_is_made(what: str) -> None:
    make, text = WRONG[what]
    with pytest.raises(TypeError) as caught:
        make()
    assert text in str(caught.value)


def test_secrets_are_not_shown() -> None:
    with pytest.raises(TypeError) as caught:
        ListenConfig(url="unix:s", tokens="s3cret")  # type: ignore[arg-type]
    assert "s3cret" not in str(caught.value)


def test_lists_and_whole_numbers_will_do() -> None:
    backends: Any = [ONE, BackendConfig(target=Http("http://h"), name="b", start_timeout=1)]
    urls: Any = ["unix:s"]
    config = ProxyConfig(backends=backends, listen=urls, limits=Limits(), shutdown_grace=1)
    assert config.backends[1].start_timeout == 1


def test_a_server_of_this_process_will_do() -> None:
    here = Server("here")
    assert BackendConfig(target=here).target is here
