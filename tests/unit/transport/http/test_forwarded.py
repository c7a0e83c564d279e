"""The client behind proxies: nearest hop that is not trusted, and never what a client claims."""

from __future__ import annotations

from lab.rows import every

from wirespeed.transport.gate import Forwarded
from wirespeed.transport.headers import Headers

PROXIES = Forwarded(["10.0.0.0/8", "::1"])
PROXY = "10.0.0.1:40000"


@every(
    ("sender", "fields", "client"),
    [
        # nobody is trusted but proxies
        ("203.0.113.9:5", {"X-Forwarded-For": "1.2.3.4"}, "203.0.113.9:5"),
        ("[2001:db8::9]:5", {"Forwarded": "for=1.2.3.4"}, "[2001:db8::9]:5"),
        ("a local socket", {"X-Forwarded-For": "1.2.3.4"}, "a local socket"),
        (PROXY, {}, PROXY),
        # the right-most hop that is not a proxy: what stands left of it is the client's claim
        (PROXY, {"X-Forwarded-For": "1.2.3.4"}, "1.2.3.4"),
        (PROXY, {"X-Forwarded-For": "6.6.6.6, 1.2.3.4"}, "1.2.3.4"),
        (PROXY, {"X-Forwarded-For": "6.6.6.6, 1.2.3.4, 10.0.0.2"}, "1.2.3.4"),
        (PROXY, {"X-Forwarded-For": "10.0.0.3, 10.0.0.2"}, "10.0.0.3"),
        ("[::1]:9", {"X-Forwarded-For": "2001:db8::1"}, "2001:db8::1"),
        ("[::ffff:10.0.0.1]:9", {"X-Forwarded-For": "1.2.3.4"}, "1.2.3.4"),
        (PROXY, {"X-Forwarded-For": "1.2.3.4:567"}, "1.2.3.4"),
        (PROXY, {"X-Forwarded-For": "[2001:db8::1]:567"}, "2001:db8::1"),
        # hidden or broken hops: the proxy that named them is all that is known
        (PROXY, {"X-Forwarded-For": "1.2.3.4, unknown"}, PROXY),
        (PROXY, {"X-Forwarded-For": "1.2.3.4, unknown, 10.0.0.2"}, "10.0.0.2"),
        (PROXY, {"X-Forwarded-For": ""}, PROXY),
        (PROXY, {"X-Forwarded-For": "1.2.3.4,"}, PROXY),
        (PROXY, {"Forwarded": "for=_hidden"}, PROXY),
        # RFC 7239
        (PROXY, {"Forwarded": "for=1.2.3.4;proto=https;by=10.0.0.1"}, "1.2.3.4"),
        (PROXY, {"Forwarded": 'proto=https; For="[2001:db8::1]:4711"'}, "2001:db8::1"),
        (PROXY, {"Forwarded": "for=6.6.6.6, for=1.2.3.4, for=10.0.0.2"}, "1.2.3.4"),
        (PROXY, {"Forwarded": 'for="6.6.6.6, for=1.2.3.4'}, "1.2.3.4"),
        (PROXY, {"Forwarded": "for=6.6.6.6;for=1.2.3.4"}, PROXY),
        (PROXY, {"Forwarded": "proto=https"}, PROXY),
        # of two fields that differ one is the client's own
        (PROXY, {"X-Forwarded-For": "1.2.3.4", "Forwarded": "for=6.6.6.6"}, PROXY),
        (PROXY, {"X-Forwarded-For": "1.2.3.4", "Forwarded": "for=1.2.3.4"}, "1.2.3.4"),
    ],
)
def test_who_the_client_is(sender: str, fields: dict[str, str], client: str) -> None:
    assert PROXIES.peer(sender, Headers(fields)) == client


def test_several_fields_are_one_list() -> None:
    fields = [("X-Forwarded-For", "6.6.6.6"), ("X-Forwarded-For", "1.2.3.4")]
    assert PROXIES.peer(PROXY, Headers(fields)) == "1.2.3.4"
