"""The page of a login at a server behind the proxy, in a real browser."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import browser
import pytest
from lab.gateway import gateway
from lab.principals import TOKENS, principal
from lab.users import Bank, exchanger

from wirespeed import Http
from wirespeed.errors import RemoteError, VersionMismatch
from wirespeed.proxy import BackendConfig, IdentityConfig

PROGRAM = browser.find()
pytestmark = [
    pytest.mark.off_schema,
    pytest.mark.skipif(
        PROGRAM is None, reason="no chromium: install one, or name it in WIRESPEED_CHROMIUM"
    ),
]


async def test_a_person_logs_in(tmp_path: Path) -> None:
    assert PROGRAM is not None
    probe = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    async with exchanger() as issuer, Bank(issuer, versions=("2026-07-28",)).serving() as url:
        identity = IdentityConfig(
            type="login",
            issuer=issuer.issuer,
            redirect_uri=f"http://127.0.0.1:{port}/login/bank",
            keys=("a key of thirty-two characters or more",),
            folder=str(tmp_path / "logins"),
        )
        async with (
            asyncio.timeout(browser.SECONDS),
            gateway(
                BackendConfig(target=Http(url), name="bank", identity=identity),
                listen=f"http://127.0.0.1:{port}/mcp",
                principals=tuple(map(principal, TOKENS)),
            ) as gate,
            browser.opened(PROGRAM, tmp_path / "profile") as window,
        ):
            with pytest.raises((RemoteError, VersionMismatch)) as refused:
                async with gate.client("anne") as client:
                    await client.call_tool("whoami")
            error: Any = refused.value
            error = error.__cause__ if isinstance(error, VersionMismatch) else error
            issuer.browsing = "anne"
            async with window.page(error.data["elicitations"][0]["url"]) as page:
                await page.click("button[value=in]")
                await page.until("document.title === 'Logged in'")
            async with gate.client("anne") as client:
                assert (await client.call_tool("whoami")).text == "anne"
