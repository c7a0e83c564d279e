"""How far inside an address lies."""

from __future__ import annotations

import pytest
from lab.rows import every

from wirespeed.auth.fetch import Reach, reach_of, reach_of_host

pytestmark = pytest.mark.smoke

PLACES = {
    Reach.PUBLIC: [
        "8.8.8.8", "172.15.0.1", "172.32.0.1", "100.63.0.1", "100.128.0.1", "2606:4700::1111",
        "64:ff9b::8.8.8.8", "2002:808:808::1", "::ffff:8.8.8.8",
    ],
    Reach.PRIVATE: [
        "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "100.64.0.1", "fc00::1",
        "fd00:ec2::254", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1", "2002:a00:1::1",
    ],
    Reach.LOOPBACK: ["127.0.0.1", "127.255.255.254", "::1", "::ffff:127.0.0.1", "64:ff9b::7f00:1"],
    Reach.SPECIAL: [
        "169.254.169.254", "fe80::1", "fe80::1%eth0", "0.0.0.0", "::", "224.0.0.1", "ff02::1",
        "240.0.0.1", "255.255.255.255", "192.0.2.1", "2001:db8::1", "fec0::1",
        "::ffff:169.254.169.254", "64:ff9b:1::a00:1", "::127.0.0.1", "198.18.0.1",
        "not an address", "",
    ],
}  # fmt: skip


@every(("address", "reach"), [(one, reach) for reach, many in PLACES.items() for one in many])
def test_the_reach_of_an_address(address: str, reach: Reach) -> None:
    assert reach_of(address) is reach


async def test_the_reach_of_a_host() -> None:
    assert await reach_of_host("localhost") is Reach.LOOPBACK
    assert await reach_of_host("10.1.2.3") is Reach.PRIVATE
    assert await reach_of_host("8.8.8.8") is Reach.PUBLIC


@every("host", ["no-such-host.invalid", "x" * 300, "a..b"])
async def test_a_host_that_cannot_be_looked_up_is_public(host: str) -> None:
    assert await reach_of_host(host) is Reach.PUBLIC
