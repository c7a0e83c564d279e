"""An authorization server, made of Authlib and Flask.

python authlib_server.py [--alg RS256|ES256] [--lifetime SECONDS] [--no-registration]
    [--client ID[:SECRET]]… [--reader ID:SECRET]

It listens for HTTP on loopback and prints its issuer. It has the authorization code grant with
PKCE, client credentials, refresh tokens that are used once, dynamic registration, a page with a
form to log in, metadata, a key set, introspection and revocation. Access tokens are JWTs; the
audience is the `resource` that was asked for.

--alg: the algorithm of the signatures. --lifetime: the seconds of an access token. --client: a
client that is registered beforehand; without SECRET a public one, redirected to loopback.
--reader: who may introspect tokens. GET /journal has what happened, for tests to look at.
"""

import argparse
import os
import secrets
import threading
import time
from typing import Any
from urllib.parse import urlsplit

os.environ["AUTHLIB_INSECURE_TRANSPORT"] = "1"  # loopback has no TLS

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2 import OAuth2Error
from authlib.oauth2.rfc6749 import InvalidGrantError, InvalidRequestError, grants
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7591 import ClientRegistrationEndpoint
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from authlib.oauth2.rfc9207 import IssuerParameter
from flask import Flask, Response, g, jsonify, render_template_string, request
from joserfc.jwk import ECKey, KeySet, RSAKey
from werkzeug.serving import WSGIRequestHandler, make_server

PASSWORDS = {"ada": "lovelace", "grace": "hopper"}
SCOPES = ("mcp", "tools:read", "tools:write")
METHODS = ["none", "client_secret_post", "client_secret_basic"]
PAGE = """<!doctype html><title>Log in</title>
<h1>Log in</h1>
{% if wrong %}<p id="wrong">{{ wrong }}</p>{% endif %}
<p><b id="client">{{ client }}</b> asks for <b id="scope">{{ scope }}</b>
at <b id="resource">{{ resource }}</b>.</p>
<form method="post">
<p><label>User <input name="user" id="user" autocomplete="off"></label>
<p><label>Password <input name="password" id="password" type="password"></label>
<p><label><input name="consent" id="consent" type="checkbox" value="yes"> I allow this</label>
<p><button id="go">Log in</button> <button id="deny" name="deny" value="yes">Refuse</button>
</form>"""

parser = argparse.ArgumentParser()
parser.add_argument("--alg", choices=("RS256", "ES256"), default="RS256")
parser.add_argument("--lifetime", type=int, default=3600)
parser.add_argument("--no-registration", action="store_true")
parser.add_argument("--client", action="append", default=[])
parser.add_argument("--reader", default="")
options = parser.parse_args()


class QuietHandler(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None:
        """Say nothing."""


app = Flask(__name__)
app.json.sort_keys = False  # type: ignore[attr-defined]
server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=QuietHandler)
ISSUER = f"http://127.0.0.1:{server.server_port}"
KEY = {"RS256": lambda: RSAKey.generate_key(2048), "ES256": lambda: ECKey.generate_key("P-256")}
key = KEY[options.alg]()
key.ensure_kid()
lock = threading.RLock()
journal: list[dict[str, Any]] = []


# -- what is kept ----------------------------------------------------------------------------------


class Client:
    """Of metadata (RFC 7591)."""

    def __init__(self, client_id: str, secret: str, metadata: dict[str, Any]) -> None:
        self.client_id = client_id
        self.secret = secret
        self.metadata = metadata

    def get_client_id(self) -> str:
        return self.client_id

    def get_default_redirect_uri(self) -> None:
        return None

    def get_allowed_scope(self, scope: str | None) -> str:
        wanted = scope.split() if scope else [SCOPES[0]]
        return " ".join(name for name in wanted if name in SCOPES)

    def check_redirect_uri(self, uri: str) -> bool:
        registered = self.metadata.get("redirect_uris", [])
        return uri in registered or _without_port(uri) in map(_without_port, registered)

    def check_client_secret(self, secret: str) -> bool:
        return secrets.compare_digest(self.secret, secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == self.metadata.get("token_endpoint_auth_method", "client_secret_basic")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in self.metadata.get("grant_types", ["authorization_code"])


def _without_port(uri: str) -> str:
    """A loopback redirect may have any port (RFC 8252, section 7.3)."""
    parts = urlsplit(uri)
    if parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1"):
        return parts._replace(netloc=parts.hostname).geturl()
    return uri


class User(str):
    def get_user_id(self) -> str:
        return self


class Code:
    def __init__(self, request: Any) -> None:
        data = request.payload.data
        self.client_id = request.client.client_id
        self.redirect_uri = request.payload.redirect_uri
        self.scope = request.scope
        self.user = request.user
        self.resource = data.get("resource")
        self.code_challenge = data.get("code_challenge")
        self.code_challenge_method = data.get("code_challenge_method")
        self.expires = time.time() + 60

    def get_redirect_uri(self) -> Any:
        return self.redirect_uri

    def get_scope(self) -> Any:
        return self.scope


class Token:
    def __init__(self, values: dict[str, Any], request: Any, resource: Any, family: str) -> None:
        self.access_token = values["access_token"]
        self.refresh_token = values.get("refresh_token")
        self.client_id = request.client.client_id
        self.user = request.user
        self.scope = values.get("scope", "")
        self.resource = resource
        self.family = family
        self.issued = int(time.time())
        self.expires = self.issued + values["expires_in"]
        self.used = self.revoked = False

    def check_client(self, client: Client) -> bool:
        return self.client_id == client.client_id

    def get_scope(self) -> str:
        return str(self.scope)

    def is_expired(self) -> bool:
        return time.time() > self.expires

    def is_revoked(self) -> bool:
        return self.revoked


clients: dict[str, Client] = {}
codes: dict[str, Code] = {}
tokens: list[Token] = []


def save_token(values: dict[str, Any], request: Any) -> None:
    family = g.get("family") or values["access_token"]
    with lock:
        tokens.append(Token(values, request, g.get("resource"), family))


# -- grants and endpoints --------------------------------------------------------------------------


class CodeGrant(grants.AuthorizationCodeGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS

    def save_authorization_code(self, code: str, request: Any) -> None:
        codes[code] = Code(request)

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        with lock:
            found = codes.get(code)
            if found is None or found.client_id != client.client_id:
                return None
            if time.time() > found.expires:
                return None
            return codes.pop(code)  # once, whatever comes of it

    def delete_authorization_code(self, code: Code) -> None:
        """It is gone since it was asked for."""

    def authenticate_user(self, code: Code) -> User:
        _narrow(code.resource)
        return User(code.user)


class RefreshGrant(grants.RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> Token | None:
        with lock:
            found = next((t for t in tokens if t.refresh_token == refresh_token), None)
            if found is None or found.revoked:
                return None
            if found.used:  # stolen: nobody of the family may go on
                _revoke(found)
                return None
            found.used = True
        return found

    def authenticate_user(self, token: Token) -> User:
        _narrow(token.resource)
        g.family = token.family
        return User(token.user)

    def revoke_old_credential(self, token: Token) -> None:
        """It is used, and counts no more."""


class CredentialsGrant(grants.ClientCredentialsGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = METHODS[1:]

    def create_token_response(self) -> Any:
        _narrow(request.form.get("resource"))
        return super().create_token_response()


def _narrow(granted: str | None) -> None:
    """The resource of the token request is that of the grant."""
    asked = request.form.get("resource")
    if asked is not None and asked != granted:
        raise InvalidGrantError("The resource is not that of the authorization request.")
    g.resource = granted


def _revoke(token: Token) -> None:
    for other in tokens:
        if other.family == token.family:
            other.revoked = True


class Tokens(JWTBearerTokenGenerator):
    def get_jwks(self) -> Any:
        return KeySet([key])

    def get_audiences(self, client: Client, user: Any, scope: str) -> str:
        return g.get("resource") or client.client_id


class S256(CodeChallenge):
    SUPPORTED_CODE_CHALLENGE_METHOD = ["S256"]  # noqa: RUF012

    def validate_code_challenge(self, grant: Any, redirect_uri: str) -> None:
        super().validate_code_challenge(grant, redirect_uri)
        if not grant.request.payload.data.get("code_challenge"):
            raise InvalidRequestError("Missing 'code_challenge'", redirect_uri=redirect_uri)


class Issuer(IssuerParameter):
    def get_issuer(self) -> str:
        return ISSUER


class Registration(ClientRegistrationEndpoint):
    def authenticate_token(self, request: Any) -> str:
        return "open"

    def generate_client_id(self, request: Any) -> str:
        return secrets.token_urlsafe(16)

    def get_server_metadata(self) -> dict[str, Any]:
        return metadata()

    def save_client(self, info: dict[str, Any], about: dict[str, Any], request: Any) -> Client:
        client = Client(info["client_id"], info["client_secret"], about)
        clients[client.client_id] = client
        return client

    def create_registration_response(self, request: Any) -> Any:
        status, body, headers = super().create_registration_response(request)
        if body["token_endpoint_auth_method"] == "none":
            del body["client_secret"], body["client_secret_expires_at"]
        return status, body, headers


class Known:
    """Finds tokens by their text."""

    CLIENT_AUTH_METHODS = METHODS

    def query_token(self, text: str, hint: str | None) -> Token | None:
        return next((t for t in tokens if text in (t.access_token, t.refresh_token)), None)


class Introspection(Known, IntrospectionEndpoint):
    def check_permission(self, token: Token, client: Client, request: Any) -> bool:
        return bool(options.reader) and client.client_id == options.reader.partition(":")[0]

    def introspect_token(self, token: Token) -> dict[str, Any]:
        return {
            "client_id": token.client_id,
            "username": token.user,
            "sub": token.user,
            "scope": token.scope,
            "aud": token.resource,
            "iss": ISSUER,
            "exp": token.expires,
            "iat": token.issued,
            "token_type": "Bearer",
        }


class Revocation(Known, RevocationEndpoint):
    def revoke_token(self, token: Token, request: Any) -> None:
        _revoke(token)


oauth = AuthorizationServer(app, clients.get, save_token)
oauth.register_token_generator(
    "default",
    Tokens(
        ISSUER,
        alg=options.alg,
        refresh_token_generator=lambda **_: secrets.token_urlsafe(32),
        expires_generator=options.lifetime,
    ),
)
oauth.register_grant(CodeGrant, [S256(required=True)])
oauth.register_grant(RefreshGrant)
oauth.register_grant(CredentialsGrant)
oauth.register_extension(Issuer())
for endpoint in (Registration, Introspection, Revocation):
    oauth.register_endpoint(endpoint)


# -- pages -----------------------------------------------------------------------------------------


def metadata() -> dict[str, Any]:
    found = {
        "issuer": ISSUER,
        "authorization_endpoint": f"{ISSUER}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "jwks_uri": f"{ISSUER}/jwks",
        "registration_endpoint": f"{ISSUER}/register",
        "introspection_endpoint": f"{ISSUER}/introspect",
        "revocation_endpoint": f"{ISSUER}/revoke",
        "scopes_supported": SCOPES,
        "response_types_supported": ["code"],
        "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        "token_endpoint_auth_methods_supported": METHODS,
        "revocation_endpoint_auth_methods_supported": METHODS,
        "introspection_endpoint_auth_methods_supported": METHODS[1:],
        "code_challenge_methods_supported": ["S256"],
        "authorization_response_iss_parameter_supported": True,
    }
    if options.no_registration:
        del found["registration_endpoint"]
    return found


@app.after_request
def note(response: Response) -> Response:
    if request.path not in ("/journal", "/favicon.ico"):
        kept = ("grant_type", "resource", "scope", "client_id", "redirect_uri", "code_challenge")
        said = {name: request.values[name] for name in kept if name in request.values}
        if request.is_json:
            said = request.get_json()
        entry = {"at": f"{request.method} {request.path}", "status": response.status_code, **said}
        journal.append(entry)
    return response


@app.get("/journal")
def show_journal() -> Response:
    return jsonify(journal)


@app.get("/.well-known/oauth-authorization-server")
def show_metadata() -> Response:
    return jsonify(metadata())


@app.get("/jwks")
def show_keys() -> Response:
    return jsonify(KeySet([key]).as_dict(private=False))


@app.route("/authorize", methods=["GET", "POST"])
def authorize() -> Any:
    try:
        grant = oauth.get_consent_grant()
    except OAuth2Error as error:
        return oauth.handle_error_response(None, error)
    wrong = ""
    if request.method == "POST":
        user = request.form.get("user", "")
        if request.form.get("deny"):
            return oauth.create_authorization_response(grant_user=None, grant=grant)
        right = secrets.compare_digest(
            PASSWORDS.get(user, ""), request.form.get("password", "").strip() or "-"
        )
        if right and request.form.get("consent"):
            return oauth.create_authorization_response(grant_user=User(user), grant=grant)
        wrong = "Allow it, please." if right else "The user or the password is wrong."
    client = grant.client
    return render_template_string(
        PAGE,
        client=client.metadata.get("client_name", client.client_id),
        scope=grant.request.scope or grant.request.payload.scope or "nothing",
        resource=request.args.get("resource", "no resource"),
        wrong=wrong,
    ), 401 if wrong else 200


@app.post("/token")
def token() -> Any:
    return oauth.create_token_response()


@app.post("/register")
def register() -> Any:
    if options.no_registration:
        return Response(status=404)
    return oauth.create_endpoint_response("client_registration")


@app.post("/introspect")
def introspect() -> Any:
    return oauth.create_endpoint_response("introspection")


@app.post("/revoke")
def revoke() -> Any:
    return oauth.create_endpoint_response("revocation")


def add_client(words: str, grant_types: list[str]) -> None:
    name, _, secret = words.partition(":")
    about = {
        "client_name": name,
        "redirect_uris": ["http://127.0.0.1/callback", "http://localhost/callback"],
        "grant_types": grant_types,
        "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
    }
    clients[name] = Client(name, secret, about)


for words in options.client:
    add_client(words, ["authorization_code", "refresh_token", "client_credentials"])
if options.reader:
    add_client(options.reader, [])

if __name__ == "__main__":
    print(ISSUER, flush=True)
    server.serve_forever()
