"""Authorization of MCP over HTTP (OAuth 2.1): what a server checks, how a client logs in.

The module of a name is loaded at the first use of the name. What checks and signs JWTs needs
``pip install 'wirespeed[auth]'``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from wirespeed._exports import exports

if TYPE_CHECKING:  # isort: off
    from wirespeed.auth.access_token import (
        AccessToken as AccessToken,
        Verifier as Verifier,
    )
    from wirespeed.auth.client.authorization import (
        Authorization as Authorization,
        AuthorizationSession as AuthorizationSession,
    )
    from wirespeed.auth.client.client_credentials import (
        ClientCredentials as ClientCredentials,
    )
    from wirespeed.auth.client.enterprise import (
        EnterpriseManaged as EnterpriseManaged,
    )
    from wirespeed.auth.client.jwt_bearer import (
        JwtBearer as JwtBearer,
    )
    from wirespeed.auth.client.file_storage import FileStorage as FileStorage
    from wirespeed.auth.client.keyring_storage import KeyringStorage as KeyringStorage
    from wirespeed.auth.client.oauth import OAuth as OAuth
    from wirespeed.auth.client.storage import (
        MemoryStorage as MemoryStorage,
        TokenStorage as TokenStorage,
    )
    from wirespeed.auth.verifiers.any_of import AnyOf as AnyOf
    from wirespeed.auth.verifiers.hashes import (
        TokenHash as TokenHash,
        TokenHashes as TokenHashes,
        hash_token as hash_token,
        new_token as new_token,
    )
    from wirespeed.auth.verifiers.introspection import (
        IntrospectionVerifier as IntrospectionVerifier,
    )
    from wirespeed.auth.verifiers.jwt import JwtVerifier as JwtVerifier
    from wirespeed.auth.resource_server import ResourceServer as ResourceServer
else:  # type checkers would take any name
    __all__, __getattr__ = exports(__name__)
