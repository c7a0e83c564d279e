"""The adapter of the official SDK, in the environment of the SDK: the checks of its programs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import logins
import peers
import pytest

import wirespeed

SECONDS = 120.0
SUITE_SECONDS = 280.0
CHECKS = {
    "sdk_call_checks": ["clients_apart", "same_checks", "same_results", "replaced_parts"],
    "sdk_checks": [
        *("seams", "clients", "targets", "over_http", "transcripts", "no_asyncio"),
    ],
    "sdk_http_checks": [
        *("event_stores", "token_verifiers", "mounted", "lifespans", "workers", "proxied"),
    ],
    "sdk_client_checks": ["restarts"],
    "sdk_faults": [
        *("access", "children", "lifespans", "over_sse", "renewals", "requests"),
        *("statuses", "users"),
    ],
}


def environment(sdk: str = "python2") -> dict[str, str]:
    """The variables of a child that has this wirespeed and an SDK."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    python = peers.python(sdk)
    packages = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    ours = str(Path(wirespeed.__file__).parents[1])
    kept = {key: value for key, value in os.environ.items() if not key.startswith("WIRESPEED_")}
    return kept | {"PYTHONPATH": os.pathsep.join([packages.stdout.strip(), ours])}


def checked(program: str, *arguments: str, sdk: str = "python2") -> None:
    """Run a check."""
    done = subprocess.run(
        [sys.executable, str(peers.PROGRAMS / f"{program}.py"), *arguments],
        env=environment(sdk),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("ok\n")


# Those of a run with --full alone.
FULL = {"mounted", "proxied"}
full = pytest.mark.full("another part of the adapter")


def test_a_server_that_asks_without_end_does_not_fill_the_memory() -> None:
    checked("sdk1_faults", "flood", sdk="python1")


@pytest.mark.parametrize(
    ("program", "check"),
    [
        pytest.param(program, check, marks=[full] if check in FULL else [])
        for program, checks in CHECKS.items()
        for check in checks
    ],
)
def test_the_adapter(program: str, check: str) -> None:
    checked(program, check)


@pytest.mark.parametrize(
    ("peer", "check"), [("ours", "logins"), ("python2", "logins"), ("ours", "slow_logins")]
)
async def test_the_adapter_logs_in(peer: str, check: str) -> None:
    """A client of the SDK, by the adapter, at a server of ours and at one of the SDK."""
    async with logins.issuing() as issuer, logins.protected(peer, issuer) as url:
        await asyncio.to_thread(checked, "sdk_client_checks", check, url)
        (registered,) = await issuer.journal("POST /register")
    assert registered["token_endpoint_auth_method"] == "none"


def suited(place: str) -> None:
    """Run the official suite at one place, on stock and on the adapter."""
    program = peers.HERE.parent / "conformance" / "sdk.py"
    done = subprocess.run(
        [sys.executable, str(program), "--place", place],
        capture_output=True,
        text=True,
        timeout=SUITE_SECONDS,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert "0 faults" in done.stdout


@pytest.mark.parametrize(
    "place",
    [
        pytest.param(place, marks=pytest.mark.full("the official suite, twice"))
        for place in (
            *("http-2025-11-25", "http-2026-07-28", "http-own"),
            *("stdio-2025-11-25", "stdio-2026-07-28"),
        )
    ],
)
async def test_the_official_suite(place: str) -> None:
    """No check of it that the SDK's own server passes is lost on the adapter."""
    await asyncio.to_thread(suited, place)
