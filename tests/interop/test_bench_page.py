"""The page of ``wirespeed bench`` in a real browser: its plots, and that no text of others runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import browser
import pytest
from lab.bench import a_result

from wirespeed.bench.load import Window
from wirespeed.bench.page import page
from wirespeed.bench.recorder import Counts
from wirespeed.bench.series import encoded

PROGRAM = browser.find()
pytestmark = pytest.mark.skipif(
    PROGRAM is None, reason="no chromium: install one, or name it in WIRESPEED_CHROMIUM"
)
HOSTILE = (
    """</script><script>document.title = "owned"</script>"""
    """<img src=x onerror="document.title='owned'">"""
)
SIZES = ((1400, False), (412, True))


async def test_page(tmp_path: Path) -> None:
    counts = Counts()
    for value in range(1000, 1_000_000, 500):
        counts.add(value)
    series = [Window(float(t), 1000, t % 2, 5.0 * t, 50.0 * t, 99.0 * t) for t in range(1, 20)]
    results = [
        a_result(
            rate=asked * 0.99, asked=asked, target=HOSTILE, series=series,
            latency_histogram=encoded(counts), counts=a_result().counts | {"wrong": 5},
        )
        for asked in (1000.0, 2000.0, 4000.0)
    ]  # fmt: skip
    path = tmp_path / "page.html"
    path.write_text(page(results, HOSTILE, [], 0.0), "utf-8")
    assert PROGRAM is not None
    async with (
        asyncio.timeout(browser.SECONDS),
        browser.opened(PROGRAM, tmp_path / "profile") as window,
        window.page(path.as_uri()) as opened,
    ):
        assert await opened.evaluated("document.title") == f"wirespeed bench: {HOSTILE}"
        assert await opened.evaluated("document.querySelectorAll('img').length") == 0
        # a plot is drawn if its canvas has other colours than one
        drawn = (
            "[...document.querySelectorAll('.uplot canvas')].map(c => new Set(new Uint32Array("
            "c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size > 9)"
        )
        assert await opened.evaluated(drawn) == [True] * 4
        assert await opened.evaluated("document.querySelectorAll('rect').length") == 1
        assert "keeps up to 4,000" in await opened.evaluated("document.body.innerText")
        # a plot of another run
        choose = "document.querySelector('select').value = 2; "
        choose += "document.querySelector('select').dispatchEvent(new Event('change')); "
        await opened.evaluated(choose)
        assert (
            await opened.evaluated("document.getElementById('of-run').textContent") == "of 4,000/s"
        )
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            await opened.ask("Emulation.setEmulatedMedia", features=[feature])
            for width, mobile in SIZES:
                await opened.ask(
                    "Emulation.setDeviceMetricsOverride",
                    width=width, height=900, deviceScaleFactor=1, mobile=mobile,
                )  # fmt: skip
                # a plot follows its place after a frame
                await opened.until(
                    f"document.documentElement.scrollWidth <= {width} && "
                    "[...document.querySelectorAll('.plot')].every(p => !p.clientWidth || "
                    "p.firstChild.clientWidth === p.clientWidth)"
                )
        assert await opened.evaluated("document.title") == f"wirespeed bench: {HOSTILE}"
