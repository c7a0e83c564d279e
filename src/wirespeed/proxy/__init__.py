"""Many clients on few servers: see `Proxy`.

The module of a name is loaded at the first use of the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed._exports import exports

if TYPE_CHECKING:  # isort: off
    from wirespeed.proxy.backend_config import (
        BackendConfig as BackendConfig,
        BreakerConfig as BreakerConfig,
        FlowConfig as FlowConfig,
        HealthConfig as HealthConfig,
        RateConfig as RateConfig,
        RecycleConfig as RecycleConfig,
        RetryConfig as RetryConfig,
        ToolRules as ToolRules,
        ToolsConfig as ToolsConfig,
    )
    from wirespeed.proxy.config import (
        AdminConfig as AdminConfig,
        AuditConfig as AuditConfig,
        AuthorizationConfig as AuthorizationConfig,
        IntrospectionConfig as IntrospectionConfig,
        ListenConfig as ListenConfig,
        PrincipalConfig as PrincipalConfig,
        ProxyConfig as ProxyConfig,
    )
    from wirespeed.proxy.mirror import Mirror as Mirror
    from wirespeed.proxy.proxy import Proxy as Proxy
    from wirespeed.proxy.reload import Changes as Changes, Reloads as Reloads
else:  # type checkers would take any name
    __all__, __getattr__ = exports(__name__)
