"""``wirespeed login`` and ``wirespeed logout``, as far as no authorization server is needed. The
rest is in tests/interop/test_authorization.py."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from cli_lab import error_of, listening, one_line, wirespeed

from wirespeed.auth import FileStorage
from wirespeed.cli.failures import Exit

SECRET = "open-Sesame.123"
NOWHERE = "http://127.0.0.1:1/mcp"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logins are kept below a folder of the test."""
    for name in ("HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    monkeypatch.delenv("WIRESPEED_TOKEN", raising=False)
    return tmp_path / "home"


def stored() -> FileStorage:
    """The store of the commands."""
    return FileStorage()


@pytest.mark.parametrize("scheme", ["http", "ws"])
def test_a_server_without_protection(server_file: Path, scheme: str) -> None:
    with listening(str(server_file), "--on", f"{scheme}://127.0.0.1:0/mcp") as url:
        done = wirespeed("login", url, "--no-browser")
        assert (done.returncode, one_line(done)) == (0, f"{url} asks for no login")
        done = wirespeed("login", url, "--no-browser", "--json")
        server = url.replace("ws:", "http:")
        assert json.loads(done.stdout) == {"server": server, "login": False}
    assert stored().servers() == []


def test_a_websocket_has_the_login_of_its_http_url(server_file: Path) -> None:
    arguments = (str(server_file), "--on", "ws://127.0.0.1:0/mcp")
    with listening(*arguments, WIRESPEED_TOKEN=SECRET) as url:
        assert wirespeed("list", url).returncode == Exit.UNREACHABLE
        server = url.replace("ws:", "http:")
        login = {"server": server, "issuer": server, "tokens": {"access_token": SECRET}}
        stored().save(server, json.dumps(login))
        done = wirespeed("list", url)
        assert done.returncode == 0, done.stderr
        done = wirespeed("logout", url)
    assert done.stdout == f"logged out of {server}\n"
    assert stored().servers() == []


def test_a_logout_without_a_login() -> None:
    done = wirespeed("logout", NOWHERE)
    assert (done.returncode, one_line(done)) == (0, f"there is no login at {NOWHERE}")
    done = wirespeed("logout", NOWHERE, "--json")
    assert json.loads(done.stdout) == {"server": NOWHERE, "login": False, "revoked": False}


def test_a_server_that_cannot_be_reached() -> None:
    done = wirespeed("login", NOWHERE, "--no-browser", "--json")
    assert done.returncode == Exit.UNREACHABLE
    assert "127.0.0.1:1" in error_of(done)["message"]


def test_a_store_that_others_can_read_is_not_used() -> None:
    storage = stored()
    storage.save(NOWHERE, json.dumps({"server": NOWHERE, "tokens": {"access_token": SECRET}}))
    (file,) = storage.folder.glob("*.json")
    os.chmod(file, 0o644)
    done = wirespeed("list", NOWHERE)
    assert done.returncode == Exit.UNREACHABLE
    assert f"others can read {file}" in one_line(done)
    assert SECRET not in done.stderr


def test_a_token_goes_before_a_login(server_file: Path) -> None:
    """The stored login has a token that the server refuses, the variable has the right one."""
    arguments = (str(server_file), "--on", "http://127.0.0.1:0/mcp")
    with listening(*arguments, WIRESPEED_TOKEN=SECRET) as url:
        stored().save(
            url, json.dumps({"server": url, "issuer": url, "tokens": {"access_token": "other"}})
        )
        assert wirespeed("list", url, WIRESPEED_TOKEN=SECRET).returncode == 0
        done = wirespeed("list", url)
        assert done.returncode == Exit.UNREACHABLE
        assert "other" not in done.stderr


LITE = """
from wirespeed.litemcp import LiteServer

server = LiteServer()

@server.tool
async def add(a: int, b: int) -> int:
    return a + b
"""


def test_litemcp_has_no_logins(tmp_path: Path) -> None:
    file = tmp_path / "lite.py"
    file.write_text(LITE)
    with listening(str(file), "--lite", "--on", "http://127.0.0.1:0/add") as url:
        stored().save(
            url, json.dumps({"server": url, "issuer": url, "tokens": {"access_token": SECRET}})
        )
        done = wirespeed("call", "--lite", url, "add", "[1, 2]")
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"a": {"url": NOWHERE, "auth": "oauth"}}}))
    done = wirespeed("list", "--lite", str(config))
    assert done.returncode == Exit.USAGE
    assert one_line(done).startswith("--lite: LiteMCP has no logins")


CONFIG = {
    "mcpServers": {
        "job": {
            "url": NOWHERE,
            "auth": {"type": "client_credentials", "clientId": "job", "clientSecret": SECRET},
        },
        "fixed": {"url": NOWHERE, "auth": SECRET},
        "child": {"command": "x"},
        "socket": {"url": "unix:/tmp/x"},
    }
}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["login"], "Missing argument"),
        (["login", "unix:/tmp/x"], "unix:/tmp/x takes no login: a login is for URLs of HTTP"),
        (["logout", "tcp://127.0.0.1:1"], "tcp://127.0.0.1:1 takes no login"),
        (["login", "mcp.json#child"], "mcp.json#child takes no login"),
        (["login", "mcp.json#socket"], "mcp.json#socket takes no login"),
        (["login", "mcp.json#fixed"], "mcp.json#fixed takes no login"),
        (["logout", "mcp.json#job"], "mcp.json#job takes no login"),
        (["login", "https://h:0/mcp"], "port"),
        (["login", NOWHERE, "--redirect-uri", "https://h/"], "redirect_uri must lead to this"),
        (["login", NOWHERE, "--client-secret-file", "secret"], "needs --client-id"),
        (
            ["login", NOWHERE, "--client-id", "a", "--client-secret-file", "none"],
            "cannot read the --client-secret-file none: No such file",
        ),
        (
            ["login", NOWHERE, "--client-id", "a", "--client-secret-file", "two"],
            "the --client-secret-file two has 2 lines; the secret is one",
        ),
    ],
)
def test_wrong_lines(arguments: list[str], text: str, tmp_path: Path) -> None:
    (tmp_path / "mcp.json").write_text(json.dumps(CONFIG))
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    (tmp_path / "two").write_text(f"{SECRET}\n{SECRET}\n")
    done = wirespeed(*arguments, cwd=tmp_path)
    assert done.returncode == Exit.USAGE
    assert text in done.stderr.splitlines()[-1]
    assert SECRET not in done.stdout + done.stderr
