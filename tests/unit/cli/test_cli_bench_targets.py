"""``wirespeed bench`` on each kind of target that ``wirespeed call`` takes: answers are echoes."""

from __future__ import annotations

import json
from pathlib import Path

from lab.cli import Serving, serving, wirespeed_each

CERTIFICATE = Path(__file__).resolve().parent.parent / "client" / "certificate.pem"
ECHO = ("echo", '{"text": "$text:40"}')
PROGRAM = """
from {module} import {kind}

server = {kind}("{name}")


@server.tool
async def echo(text: str) -> str:
    return text


if __name__ == "__main__":
    server.run()
"""


def urls(running: Serving, n: int) -> list[str]:
    return [running.line(r" on ([^\s;]+)")[1] for _ in range(n)]


def test_every_kind_of_target(tmp_path: Path) -> None:
    program, lite = tmp_path / "server.py", tmp_path / "lite.py"
    program.write_text(PROGRAM.format(module="wirespeed", kind="Server", name="s"))
    lite.write_text(PROGRAM.format(module="wirespeed.litemcp", kind="LiteServer", name="echo"))
    places = ("http://127.0.0.1:0/mcp", "ws://127.0.0.1:0/mcp", "tcp://127.0.0.1:0")
    on = [word for url in (*places, f"unix:{tmp_path}/s") for word in ("--on", url)]
    of_lite = [word for url in (*places, f"unix:{tmp_path}/l") for word in ("--on", url)]
    tls = ["--on", "https://localhost:0/mcp", "--on", "wss://localhost:0/mcp"]
    with (
        serving(*on, command="bench-target") as one,
        serving(
            *tls, "--certfile", str(CERTIFICATE), command="bench-target", WIRESPEED_TOKEN="sesame"
        ) as other,
        serving(str(lite), *of_lite, "--lite") as third,
    ):
        open_urls, tls_urls, lite_urls = urls(one, 4), urls(other, 2), urls(third, 4)
        http = next(url for url in open_urls if url.startswith("http"))
        https = next(url for url in tls_urls if url.startswith("https"))
        servers = {
            "first": {"url": http},
            "second": {"url": https, "headers": {"Authorization": "Bearer sesame"}},
            "third": {"command": "wirespeed", "args": ["serve", "server.py"], "enabled": False},
        }
        config = tmp_path / "servers.json"
        config.write_text(json.dumps({"mcpServers": servers}))
        common = ("bench", "--calls", "60", "--expect", "echo=text", "--json", "-")
        trusted = ("--ca", str(CERTIFICATE))
        lines = {
            "stdio": [*common, str(program), *ECHO],
            **{f"{url} auto": [*common, url, *ECHO] for url in open_urls},
            **{f"{url} legacy": [*common, "--era", "legacy", url, *ECHO] for url in open_urls},
            **{
                f"{url} token": [*common, *trusted, "--token", "sesame", url, *ECHO]
                for url in tls_urls
            },
            "header": [
                *(*common, *trusted, "--header", "Authorization: Bearer sesame"),
                *(https, *ECHO),
            ],
            "config": [*common, f"{config}#first", *ECHO],
            "config with a header": [*common, *trusted, f"{config}#second", *ECHO],
            **{f"{url} lite": [*common, "--lite", url, *ECHO] for url in lite_urls},
            "a file lite": [*common, "--lite", str(lite), *ECHO],
        }
        done = wirespeed_each(lines.values(), tmp_path)
    for name, line in lines.items():
        result = done[tuple(line)]
        assert result.returncode == 0, (name, result.stderr)
        found = json.loads(result.stdout)
        assert found["counts"]["ok"] == found["calls"] == 60, name
        era = found["era"]
        assert era == ("lite" if "lite" in name else "legacy" if "legacy" in name else "modern")
        assert found["bytes"]["sent"] > 60 * 40, name


def test_a_target_that_wants_a_token(tmp_path: Path) -> None:
    with serving(
        *("--on", "http://127.0.0.1:0/mcp"), command="bench-target", WIRESPEED_TOKEN="sesame"
    ) as running:
        (url,) = urls(running, 1)
        line = ["bench", "--calls", "5", url, *ECHO]
        done = wirespeed_each([line], tmp_path)[tuple(line)]
    assert done.returncode == 3 and "401" in done.stderr
