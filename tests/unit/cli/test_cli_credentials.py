"""Tokens and headers of the command line: where they come from, and that they never show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.cli import wirespeed, wirespeed_each
from lab.rows import every
from lab.wording import raises

from wirespeed.cli import credentials
from wirespeed.cli.failures import Exit, Failure

SECRET = "open-Sesame.123"


def refused(*args: str | None) -> str:
    with pytest.raises(Failure) as caught:
        credentials.find(*args)
    assert caught.value.code == Exit.USAGE
    assert SECRET not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(credentials.ENVIRON, credentials.ENVIRONMENT, raising=False)


def test_the_option_goes_before_the_variable(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert credentials.find(None, None) is None
    monkeypatch.setitem(credentials.ENVIRON, credentials.ENVIRONMENT, "")
    assert credentials.find(None, None) is None
    monkeypatch.setitem(credentials.ENVIRON, credentials.ENVIRONMENT, "other")
    found = credentials.find(None, None)
    assert found is not None
    assert (found.only, found.source, found.from_option) == ("other", "WIRESPEED_TOKEN", False)
    assert capsys.readouterr().err == ""
    for serves in (False, True):
        found = credentials.find(SECRET, None, serves=serves)
        assert found is not None
        assert (found.only, found.from_option) == (SECRET, True)
        warning = "wirespeed: process lists show --token; use WIRESPEED_TOKEN or --token-file\n"
        assert capsys.readouterr().err == (warning if serves else ""), "stderr is no terminal"
        assert SECRET not in repr(found)


def test_a_file_has_one_token_a_line(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_bytes(b"\xef\xbb\xbf" + SECRET.encode() + b"\r\n")
    found = credentials.find(None, str(path))
    assert found is not None
    assert (found.only, found.tokens, found.from_option) == (SECRET, (SECRET,), True)
    path.write_text(f"\n {SECRET} \n\nnext\n")
    found = credentials.find(None, str(path))
    assert found is not None
    assert found.tokens == (SECRET, "next")
    with raises(Failure):
        _ = found.only


def test_tokens_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    assert refused(SECRET, str(path)) == "give --token or --token-file, not both"
    assert refused("", None) == "the token of --token is empty"
    for bad in (f"{SECRET} x", f"{SECRET}\n", f"{SECRET}é", f"\x00{SECRET}"):
        assert refused(bad, None).startswith("the token of --token has blanks or")
    assert refused(None, str(path)) == (
        f"cannot read the --token-file {path}: No such file or directory"
    )
    path.write_bytes(b"\n\n")
    assert refused(None, str(path)) == f"the token of {path} is empty"
    path.write_bytes(b"\xff" + SECRET.encode())
    assert refused(None, str(path)) == f"the --token-file {path} is not text"
    monkeypatch.setitem(credentials.ENVIRON, credentials.ENVIRONMENT, f"a {SECRET}")
    assert refused(None, None).startswith("the token of WIRESPEED_TOKEN has blanks or")


def test_headers() -> None:
    assert credentials.headers([]) == {}
    lines = ["X-Trace: a: b ", "x-empty:", "Authorization:\tBearer x"]
    assert credentials.headers(lines) == {
        "X-Trace": "a: b",
        "x-empty": "",
        "Authorization": "Bearer x",
    }


@pytest.mark.parametrize("line", [SECRET, "", f"Authorization {SECRET}: x", f": {SECRET}"])
def test_what_is_no_header_is_not_repeated(line: str) -> None:
    with raises(Failure):
        credentials.headers(["A: b", line])


WRONG = [
    (
        ["list", "ws://127.0.0.1:1/", "--header", f"A: {SECRET}", "--header", "A: x"],
        "is given twice",
    ),
    (["list", "ws://127.0.0.1:1/", "--header", f"A: {SECRET}\n"], "line break"),
    (["list", "ws://127.0.0.1:1/", "--header", f"Host: {SECRET}"], "handshake itself writes"),
    (
        ["list", "ws://127.0.0.1:1/", "--header", f"Authorization: {SECRET}", "--token", SECRET],
        "say the same",
    ),
    (["list", "ws://127.0.0.1:1/", "--token", f"{SECRET} x"], "blanks"),
    (["call", "unix:/tmp/none", "add", "--token", SECRET], "a token is for targets of"),
    (["info", "tcp://127.0.0.1:1", "--header", f"A: {SECRET}"], "--header is for targets of"),
    (["list", "x.json", "--token", SECRET, "--token-file", "x"], "not both"),
    (["list", "--token", SECRET, "--", "prog"], "a command is reached over stdio"),
    (["list", "ws://127.0.0.1:1/", SECRET], "one TARGET is enough"),
    (["list", f"ws://me:{SECRET}@127.0.0.1/"], "must not hold a user or password"),
    (["list", f"ws://me:{SECRET}@127.0.0.1:99999/"], "port"),
    (["list", f"ws://127.0.0.1/?t={SECRET}#x"], "fragment"),
    (["list", "ws://127.0.0.1:1/", f"--tokn={SECRET}"], "No such option"),
    (["list", "ws://127.0.0.1:1/", "--ca", "/no/such", "--token", SECRET], "--ca is for https://"),
    (["serve", "x.py", "--token", SECRET], "--token needs --on URL"),
    (["serve", "x.py", "--on", "unix:x", "--token", SECRET], "a token is for HTTP and WebSocket"),
    (["serve", "x.py", "--on", f"ws://me:{SECRET}@h/"], "must not hold a user or password"),
    (["serve", "x.py", "--on", f"ftp://me:{SECRET}@h/"], "is not a URL to listen at"),
]


MORE: list[tuple[str, ...]] = [(), ("--debug",), ("--json",)]


def line(args: list[str], more: tuple[str, ...]) -> tuple[str, ...]:
    if more == ("--json",) and args[0] == "serve":
        more = ()
    at = args.index("--") if "--" in args else len(args)
    return *args[:at], *more, *args[at:]


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The outputs of the wrong lines."""
    lines = [line(args, more) for args, _ in WRONG for more in MORE]
    return wirespeed_each(lines, tmp_path_factory.mktemp("wrong"))


@every(("args", "text"), WRONG, ids=[text for _, text in WRONG])
@every("more", MORE, ids=["", "debug", "json"])
def test_a_wrong_line_never_shows_the_secret(
    args: list[str], text: str, more: tuple[str, ...], wrong: Any
) -> None:
    done = wrong[line(args, more)]
    assert done.returncode == Exit.USAGE
    assert text in (done.stdout if "--json" in done.args else done.stderr.splitlines()[-1])
    assert SECRET not in done.stdout + done.stderr


def test_facts_do_not_hold_the_token() -> None:
    for words in (["info"], ["info", "--json"], ["demo", "--calls", "1"], ["--help"]):
        done = wirespeed(*words, WIRESPEED_TOKEN=SECRET)
        assert done.returncode == 0
        assert SECRET not in done.stdout + done.stderr
