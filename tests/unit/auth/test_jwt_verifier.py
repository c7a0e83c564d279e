"""JWTs as access tokens: what a good one says, what is refused."""

from __future__ import annotations

import base64
import contextlib
import json
import subprocess
import sys
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.issuer import AUDIENCE, NOW, Clock, Issuer, public, signed, verified
from lab.origin import Origin
from lab.rows import every
from lab.wording import raises

from wirespeed.auth import AccessToken, JwtVerifier
from wirespeed.auth.jose import ASYMMETRIC, new_key, secret_key, sign
from wirespeed.errors import CannotVerify, InvalidToken

pytestmark = pytest.mark.smoke

ISSUER = "https://auth.example"


def fixed(issuer: Issuer, **options: Any) -> JwtVerifier:
    """A verifier that needs no requests."""
    options = {"keys": issuer.key_set(), "clock": Clock(), **options}
    return JwtVerifier(ISSUER, AUDIENCE, **options)


def test_what_a_token_says() -> None:
    issuer = Issuer()
    claims = {"client_id": "c", "scope": "a b", "cnf": {"jkt": "t", "x5t#S256": "x"}, "more": [1]}
    access = fixed(issuer).verify(issuer.token(**claims))
    assert isinstance(access, AccessToken)
    assert (access.subject, access.client_id, access.issuer) == ("anne", "c", ISSUER)
    assert access.scopes == {"a", "b"}
    assert (access.key_thumbprint, access.certificate_thumbprint) == ("t", "x")
    assert access.expires == NOW + 60
    assert access.claims["more"] == [1]
    assert "more" not in repr(access)
    assert "more" not in str(access.__rich_repr__())


@pytest.mark.parametrize("algorithm", [a for a in ASYMMETRIC if a[2:] in ("256", "DSA", "25519")])
def test_every_kind_of_key(algorithm: str) -> None:
    issuer = Issuer(algorithm)
    access = fixed(issuer).verify(issuer.token())
    assert isinstance(access, AccessToken)
    with raises(InvalidToken):
        fixed(issuer, algorithms=["RS512"]).verify(issuer.token())


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "Ed25519"])
def test_a_key_as_pem(algorithm: str) -> None:
    issuer = Issuer(algorithm)
    for private in (True, False):
        verifier = fixed(issuer, keys=issuer.keys["1"].as_pem(private=private))
        assert isinstance(verifier.verify(issuer.token()), AccessToken)


@every(
    ("claims", "scopes"),
    [
        ({}, set()),
        ({"scope": ""}, set()),
        ({"scope": " a  b "}, {"a", "b"}),
        ({"scope": ["a", "b", 1]}, {"a", "b"}),
        ({"scp": ["a"]}, {"a"}),
        ({"scp": "a b", "scope": "c"}, {"a", "b", "c"}),
        ({"scope": 5, "scp": {"a": 1}}, set()),
        ({"roles": ["r"]}, set()),
    ],
)
def test_scopes(claims: dict[str, Any], scopes: set[str]) -> None:
    issuer = Issuer()
    access = fixed(issuer).verify(issuer.token(**claims))
    assert isinstance(access, AccessToken)
    assert access.scopes == scopes


def test_other_claims_may_name_scopes() -> None:
    issuer = Issuer()
    access = fixed(issuer, scope_claims=["roles"]).verify(issuer.token(roles=["r"], scope="s"))
    assert isinstance(access, AccessToken)
    assert access.scopes == {"r"}


@every(
    ("claims", "subject", "client"),
    [
        ({"client_id": "c"}, "anne", "c"),
        ({"sub": None, "client_id": "c"}, "client:c", "c"),
        ({"sub": None, "azp": "z"}, "client:z", "z"),
        ({"client_id": "c", "azp": "z"}, "anne", "c"),
        ({"appid": "a"}, "anne", "a"),
        ({"cid": "o"}, "anne", "o"),
        ({}, "anne", None),
    ],
)
def test_subjects_and_clients(claims: dict[str, Any], subject: str, client: str | None) -> None:
    issuer = Issuer()
    access = fixed(issuer).verify(issuer.token(**claims))
    assert isinstance(access, AccessToken)
    assert (access.subject, access.client_id) == (subject, client)


@every(
    ("claims", "reason"),
    [
        ({"iss": "https://other.example"}, "has the issuer 'https://other.example'"),
        ({"iss": ISSUER + "/"}, "has the issuer"),
        ({"iss": None}, "has the issuer None"),
        ({"iss": [ISSUER]}, "iss of the token is not text"),
        ({"aud": "https://other.example/mcp"}, "has the audience 'https://other.example/mcp'"),
        ({"aud": AUDIENCE + "/"}, "has the audience"),
        ({"aud": None}, "has the audience None"),
        ({"aud": []}, "has the audience"),
        ({"aud": [["x"], {"a": 1}, 5]}, "has the audience"),
        ({"exp": None}, "no time of expiry"),
        ({"exp": NOW - 31}, "has expired"),
        ({"exp": NOW - 30}, "has expired"),
        ({"exp": "2030"}, "exp of the token is not a time"),
        ({"exp": True}, "exp of the token is not a time"),
        ({"exp": 10**400}, "exp of the token is not a time"),
        ({"nbf": NOW + 31}, "from the future"),
        ({"iat": NOW + 31}, "from the future"),
        ({"nbf": [1]}, "nbf of the token is not a time"),
        ({"sub": None}, "neither a subject nor a client"),
        ({"sub": ""}, "neither a subject nor a client"),
        ({"sub": "client:c"}, "begins as the subject of a client does"),
        ({"sub": 5}, "sub of the token is not text"),
        ({"client_id": {}}, "client_id of the token is not text"),
        ({"cnf": "jkt"}, "cnf of the token is not an object"),
        ({"cnf": {}}, "bound to something that is not known here"),
        ({"cnf": {"jwk": {}}}, "bound to something that is not known here"),
        ({"cnf": {"jkt": ["a"]}}, "bound to something that is not known here"),
    ],
)
def test_claims_that_are_refused(claims: dict[str, Any], reason: str) -> None:
    issuer = Issuer()
    with pytest.raises(InvalidToken, match=reason):
        fixed(issuer).verify(issuer.token(**claims))


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": NOW - 29},
        {"exp": NOW + 0.5},
        {"nbf": NOW + 30, "iat": NOW + 30},
        {"nbf": 0, "iat": -1},
        {"aud": ["https://other.example", AUDIENCE]},
    ],
)
def test_claims_that_are_good(claims: dict[str, Any]) -> None:
    issuer = Issuer()
    assert isinstance(fixed(issuer).verify(issuer.token(**claims)), AccessToken)


def test_the_leeway_is_a_setting() -> None:
    issuer = Issuer()
    strict = fixed(issuer, leeway=0)
    for claims in ({"exp": NOW}, {"nbf": NOW + 1}):
        with pytest.raises(InvalidToken):
            strict.verify(issuer.token(**claims))
    assert isinstance(strict.verify(issuer.token(exp=NOW + 1, nbf=NOW)), AccessToken)


def test_several_audiences() -> None:
    issuer = Issuer()
    verifier = JwtVerifier(ISSUER, ["a", "b"], keys=issuer.key_set(), clock=Clock())
    for audience in ("a", "b", ["x", "b"]):
        assert isinstance(verifier.verify(issuer.token(aud=audience)), AccessToken)
    with raises(InvalidToken):
        verifier.verify(issuer.token(aud="c"))


@every(
    ("typ", "accepted", "required"),
    [
        ("at+jwt", True, True),
        ("AT+JWT", True, True),
        ("application/at+jwt", True, True),
        ("JWT", True, False),
        (None, True, False),
        ("dpop+jwt", False, False),
        ("logout+jwt", False, False),
        ("id+jwt", False, False),
    ],
)
def test_types(typ: Any, accepted: bool, required: bool) -> None:
    issuer = Issuer()
    token = issuer.token(header={"typ": typ})
    for good, verifier in (
        (accepted, fixed(issuer)),
        (required, fixed(issuer, require_at_jwt=True)),
    ):
        if good:
            assert isinstance(verifier.verify(token), AccessToken)
        else:
            with raises(InvalidToken):
                verifier.verify(token)


def test_the_answer_is_fresh_for_some_minutes() -> None:
    issuer = Issuer()
    for exp, fresh in ((NOW + 10, NOW + 40), (NOW + 3600, NOW + 300)):
        access = fixed(issuer).verify(issuer.token(exp=exp))
        assert isinstance(access, AccessToken)
        assert (access.expires, access.fresh_until) == (exp, fresh)


@every(
    "token", ["", "a", "a.b.c", "e30.e30.", "..", "é.e30.x", "e30.e30.e30.e30.e30", "x" * 20_000]
)
async def test_texts_that_are_not_tokens(token: str) -> None:
    with pytest.raises(InvalidToken):
        await verified(fixed(Issuer()), token)


@every("payload", [b"", b"[]", b'"x"', b"{", b"[" * 9000, b'{"exp": NaN}'])
def test_payloads_that_are_not_claims(payload: bytes) -> None:
    issuer = Issuer()
    token = sign({"alg": "ES256", "kid": "1"}, payload, issuer.keys["1"])
    with pytest.raises(InvalidToken, match=r"has no claims|not a signed JWT"):
        fixed(issuer).verify(token)


@every(
    ("header", "reason"),
    [
        ({"typ": 5}, "type of the token is not text"),
        ({"kid": 5}, "id of the token's key is not text"),
        ({"alg": ["ES256"]}, "algorithm is not accepted"),
        ({"alg": "es256"}, "algorithm is not accepted"),
        ({"alg": None}, "algorithm is not accepted|not a signed JWT"),
        ({"crit": ["exp"]}, "critical"),
        ({"crit": ["b64"], "b64": False}, "critical|not a signed JWT"),
    ],
)
def test_headers_that_are_refused(header: dict[str, Any], reason: str) -> None:
    """The header is not signed here: it is refused before the signature is looked at."""
    issuer = Issuer()
    _, claims, signature = issuer.token().split(".")
    whole = {"alg": "ES256", "kid": "1", "typ": "JWT", **header}
    head = base64.urlsafe_b64encode(msgspec.json.encode(whole)).rstrip(b"=").decode()
    with pytest.raises(InvalidToken, match=reason):
        fixed(issuer).verify(f"{head}.{claims}.{signature}")


def test_a_header_that_is_not_an_object() -> None:
    for value in ("alg", ["alg"], 5, None):
        head = base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()
        with pytest.raises(InvalidToken):
            fixed(Issuer()).verify(f"{head}.e30.AAAA")


def test_header_parameters_that_are_not_known_are_ignored() -> None:
    issuer = Issuer()
    token = issuer.token(header={"nonce": "x", "x5t": "y", "jku": "https://evil.example"})
    assert isinstance(fixed(issuer).verify(token), AccessToken)


async def test_secrets() -> None:
    secret = "s" * 32
    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": NOW + 60, "sub": "anne"}
    verifier = JwtVerifier(ISSUER, AUDIENCE, secret=secret, clock=Clock())
    for algorithm in ("HS256", "HS384", "HS512"):
        token = signed({"alg": algorithm}, claims, secret_key(secret))
        assert isinstance(verifier.verify(token), AccessToken)
    other = signed({"alg": "HS256"}, claims, secret_key("t" * 32))
    with raises(InvalidToken):
        await verified(verifier, other)
    asymmetric = signed({"alg": "ES256"}, claims, new_key("ES256"))
    with raises(InvalidToken):
        verifier.verify(asymmetric)


@every(
    ("options", "reason"),
    [
        ({"secret": "short"}, "a secret has at least 32 bytes"),
        ({"secret": "s" * 32, "jwks_url": "https://a"}, "give only one of"),
        ({"keys": {}, "jwks_url": "https://a"}, "give only one of"),
        ({"keys": {}}, "it is not a JWK Set"),
        ({"keys": {"keys": []}}, "none of its keys can be used"),
        ({"keys": "no key"}, "not a public key in PEM form"),
        ({"jwks_url": "http://a.example/"}, "https is needed"),
        ({"algorithms": []}, "algorithms are some of RS256"),
        ({"algorithms": ["none"]}, "algorithms are some of RS256"),
        ({"algorithms": ["RS256", "HS256"]}, "algorithms are some of RS256"),
        ({"secret": "s" * 32, "algorithms": ["HS256", "RS256"]}, "algorithms are some of HS256"),
        ({"leeway": -1}, "leeway is seconds"),
        ({"leeway": float("inf")}, "leeway is seconds"),
        ({"audience": []}, "audience is one or more texts"),
        ({"audience": ""}, "audience is one or more texts"),
        ({"issuer": "http://auth.example"}, "https is needed"),
        ({"issuer": "auth"}, "is not a URL"),
    ],
)
def test_arguments_that_are_refused(options: dict[str, Any], reason: str) -> None:
    arguments = {"issuer": ISSUER, "audience": AUDIENCE, **options}
    with pytest.raises(ValueError, match=reason):
        JwtVerifier(**arguments)


def test_without_joserfc() -> None:
    program = (
        "import sys; sys.modules['joserfc'] = None\n"
        "from wirespeed.auth import AccessToken\n"
        "from wirespeed.auth import JwtVerifier\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    text = "ModuleNotFoundError: authorization needs the package joserfc: "
    assert done.stderr.splitlines()[-1] == text + "pip install 'wirespeed[auth]'"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=6,
)
NAMES = ["iss", "aud", "exp", "nbf", "iat", "sub", "client_id", "azp", "scope", "scp", "cnf"]
SIGNING = Issuer()
FIXED = fixed(SIGNING)


@given(st.dictionaries(st.sampled_from(NAMES), JSON, max_size=3))
def test_claims_of_any_kind(claims: dict[str, Any]) -> None:
    with contextlib.suppress(InvalidToken):
        assert isinstance(FIXED.verify(SIGNING.token(**claims)), AccessToken)


@given(
    st.dictionaries(st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk"]), JSON) | JSON,
    st.binary(max_size=20) | JSON.map(lambda value: json.dumps(value).encode()),
    st.text(st.sampled_from("Aa0-_=.+"), max_size=90),
)
def test_texts_of_any_kind(header: Any, payload: bytes, signature: str) -> None:
    parts = (json.dumps(header).encode(), payload)
    encoded = [base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts]
    with pytest.raises(InvalidToken):
        FIXED.verify(".".join([*encoded, signature]))


async def test_keys_at_a_url() -> None:
    async with Issuer() as issuer:
        verifier = JwtVerifier(ISSUER, AUDIENCE, jwks_url=f"{issuer.url}/keys", clock=Clock())
        access = await verified(verifier, issuer.token(iss=ISSUER))
        assert access.issuer == ISSUER
        assert issuer.asked == ["/keys"]
        await verifier.close()


async def test_a_key_of_another_use_is_not_used() -> None:
    issuer = Issuer()
    key = public(issuer.keys["1"], "1")
    for other in ({"use": "enc"}, {"key_ops": ["encrypt"]}, {"alg": "ES384"}):
        decoy = {"keys": [{**key, **other}, public(new_key("ES256"), "2")]}
        with pytest.raises(InvalidToken):
            await verified(fixed(issuer, keys=decoy), issuer.token())
    good = {"keys": [{**key, "use": "sig", "key_ops": ["verify"], "alg": "ES256"}]}
    assert isinstance(fixed(issuer, keys=good).verify(issuer.token()), AccessToken)


async def test_an_authorization_server_that_is_down() -> None:
    async with Origin(lambda request: request.write(b"")) as origin:  # type: ignore[arg-type]
        url = f"http://127.0.0.1:{origin.port}"
    verifier = JwtVerifier(url, AUDIENCE, clock=Clock())
    with raises(CannotVerify):
        await verified(verifier, Issuer().token(iss=url))
    await verifier.close()
