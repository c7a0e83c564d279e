"""Folders of files as resources: nothing outside of them is read."""

from __future__ import annotations

import base64
import errno
import os
import socket
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lab.caller import Caller, code_of_missing
from lab.rows import every
from lab.server import MODERN
from lab.wording import raises

from wirespeed import Server
from wirespeed.server.resources.folder import Folder, relative_path

PNG = b"\x89PNG\r\n\x1a\n\0"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder with files, and secrets beside it."""
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "a.txt").write_text("hé")
    (root / "sub" / "b.md").write_text("# B")
    (root / "sub" / "deep" / "c.json").write_text("{}")
    (root / "image.png").write_bytes(PNG)
    (root / "with space & %41.txt").write_text("odd")
    (root / ".env").write_text("SECRET=1")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("SECRET=2")
    (tmp_path / "secret.txt").write_text("SECRET=3")
    (tmp_path / "root-of-another").mkdir()
    (tmp_path / "root-of-another" / "secret.txt").write_text("SECRET=4")
    return root


def contents(client: Caller, uri: str) -> Any:
    (found,) = client.plain("resources/read", uri=uri)["contents"]
    assert found.pop("uri") == uri
    return found


def missing(client: Caller, uri: str) -> None:
    error = client.error("resources/read", uri=uri)
    assert error["code"] == code_of_missing(client.version), error
    assert error["message"] == "Resource not found"


def test_files_are_read_by_their_paths(caller: Any, server: Server, tree: Path) -> None:
    server.add_folder("docs://", tree)
    client = caller()
    (entry,) = client.plain("resources/templates/list")["resourceTemplates"]
    assert entry == {"uriTemplate": "docs://{+path}", "name": "root"}
    assert contents(client, "docs://a.txt") == {"mimeType": "text/plain", "text": "hé"}
    assert contents(client, "docs://sub/b.md") == {"mimeType": "text/markdown", "text": "# B"}
    assert contents(client, "docs://sub/deep/c.json") == {
        "mimeType": "application/json",
        "text": "{}",
    }
    assert contents(client, "docs://image.png") == {
        "mimeType": "image/png",
        "blob": base64.b64encode(PNG).decode(),
    }
    assert contents(client, "docs://with%20space%20&%20%2541.txt")["text"] == "odd"
    assert contents(client, "docs://sub%2Fb.md")["text"] == "# B"


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "sub/../../secret.txt",
        "%2e%2e/secret.txt",
        "%2E%2E%2Fsecret.txt",
        "..%2Fsecret.txt",
        "..\\secret.txt",
        "..%5Csecret.txt",
        "sub/..%5C..%5Csecret.txt",
        "../root-of-another/secret.txt",
        "/etc/passwd",
        "//etc/passwd",
        "%2Fetc%2Fpasswd",
        "file:///etc/passwd",
        "a.txt%00",
        "a.txt%00.md",
        "a.txt/",
        "a.txt/x",
        "./a.txt",
        "sub//b.md",
        "sub/./b.md",
        "sub",
        "sub/",
        ".",
        "..",
        "",
        "nothing.txt",
        "%ff.txt",
        "a%.txt",
        ".env",
        ".git/config",
        "sub/../.env",
        "A.TXT",
        "x" * 300,
        "x/" * 3000 + "y",
        "a.txt?x=1",
        "~/a.txt",
        "C:%5Cwindows",
    ],
)
def test_nothing_else_is_there(path: str, connect: Any, server: Server, tree: Path) -> None:
    server.add_folder("docs://", tree)
    missing(Caller(connect(), MODERN), f"docs://{path}")


def test_links_lead_nowhere_outside(connect: Any, server: Server, tree: Path) -> None:
    (tree / "inside.txt").symlink_to("sub/b.md")
    (tree / "absolute.txt").symlink_to(tree / "a.txt")
    (tree / "folder").symlink_to("sub/deep")
    (tree / "out.txt").symlink_to("../secret.txt")
    (tree / "out").symlink_to("..")
    (tree / "etc").symlink_to("/etc")
    (tree / "loop").symlink_to("loop")
    (tree / "dangling").symlink_to("nothing")
    (tree / "hidden.txt").symlink_to(".env")
    server.add_folder("docs://", tree)
    client = Caller(connect(), MODERN)
    assert contents(client, "docs://inside.txt")["text"] == "# B"
    assert contents(client, "docs://absolute.txt")["text"] == "hé"
    assert contents(client, "docs://folder/c.json")["text"] == "{}"
    for path in (
        "out.txt", "out/secret.txt", "out/root/a.txt/..", "etc/passwd", "etc/hostname", "loop",
        "loop/x", "dangling", "hidden.txt",
    ):  # fmt: skip
        missing(client, f"docs://{path}")


def test_a_link_that_appears_after_the_check_is_not_followed(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Folder(tree)
    resolve = os.path.realpath

    def swap(path: Any, **options: Any) -> Any:
        found = resolve(path, **options)
        target = tree / "sub"
        if not target.is_symlink():
            target.rename(tree.parent / "moved")
            target.symlink_to(tree.parent / "root-of-another")
        return found

    (tree / "sub" / "secret.txt").write_text("harmless")
    monkeypatch.setattr(os.path, "realpath", swap)
    assert folder.read(PurePosixPath("sub/secret.txt")) is None


def test_only_regular_files_are_read(connect: Any, server: Server, tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(os.path.relpath(tree / "socket"))
    server.add_folder("docs://", tree)
    client = Caller(connect(), MODERN)
    missing(client, "docs://fifo")
    missing(client, "docs://socket")


def test_hidden_files_where_they_are_wanted(connect: Any, server: Server, tree: Path) -> None:
    server.add_folder("docs://", tree, hidden=True)
    client = Caller(connect(), MODERN)
    assert contents(client, "docs://.env")["text"] == "SECRET=1"
    assert contents(client, "docs://.git/config")["text"] == "SECRET=2"
    missing(client, "docs://../secret.txt")


@pytest.mark.parametrize(
    ("name", "data", "mime_type", "is_text"),
    [
        ("x.py", b"pass", "text/x-python", True),
        ("x.html", b"<p>", "text/html", True),
        ("x.svg", b"<svg/>", "image/svg+xml", True),
        ("x.json", b"\xff", "application/json", False),
        ("x.txt", b"a\0b", "text/plain", False),
        ("x.txt", "é".encode("latin-1"), "text/plain", False),
        ("README", b"text", "text/plain", True),
        ("README", b"\xff\xfe", "application/octet-stream", False),
        ("x.unknown-kind", b"", "text/plain", True),
        ("x.tar.gz", b"\x1f\x8b", "application/gzip", False),
        ("x.png", b"text", "image/png", False),
        ("x.pdf", b"%PDF", "application/pdf", False),
    ],
)
def test_kinds_of_files(
    name: str, data: bytes, mime_type: str, is_text: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    file = Folder(tmp_path).read(PurePosixPath(name))
    assert file is not None
    assert (file.mime_type, file.is_text, file.data) == (mime_type, is_text, data)


def test_a_file_may_be_only_so_long(
    caller: Any, server: Server, tree: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tree / "four").write_bytes(b"1234")
    (tree / "five").write_bytes(b"12345")
    server.add_folder("docs://", tree, max_size=4)
    client = caller()
    assert contents(client, "docs://four")["text"] == "1234"
    error = client.error("resources/read", uri="docs://five")
    assert error == {"code": -32603, "message": "The resource is longer than 4 bytes"}


def test_a_file_that_grows_past_the_limit_while_it_is_read(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tree / "grows").write_bytes(b"12345")
    fstat = os.fstat

    def small(fd: int) -> Any:
        fields = list(fstat(fd))
        fields[6] = 0
        return os.stat_result(fields)

    monkeypatch.setattr(os, "fstat", small)
    with pytest.raises(OSError, match="longer than 4 bytes") as caught:
        Folder(tree, max_size=4).read(PurePosixPath("grows"))
    assert caught.value.errno == errno.EFBIG


def test_other_errors_are_the_servers_own(
    caller: Any,
    server: Server,
    tree: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server.add_folder("docs://", tree)
    client = caller()
    real = os.open

    def broken(path: Any, flags: int, *args: Any, **options: Any) -> int:
        if path == "a.txt":
            raise OSError(errno.EIO, "the disk is broken", str(tree / "a.txt"))
        return real(path, flags, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", broken)
        error = client.error("resources/read", uri="docs://a.txt")
    assert error == {"code": -32603, "message": "Internal error"}
    assert "resource root failed" in caplog.text


@pytest.mark.parametrize("prefix", ["file:///srv/docs", "file:///srv/docs/"])
def test_prefixes(prefix: str, connect: Any, server: Server, tree: Path) -> None:
    template = server.add_folder(prefix, tree, name="files", title="Files", meta={"k": 1})
    assert template.key == "file:///srv/docs/{+path}"
    client = Caller(connect(), MODERN)
    assert contents(client, "file:///srv/docs/a.txt")["text"] == "hé"
    missing(client, "file:///srv/docs/../secret.txt")
    missing(client, "file:///srv/a.txt")
    (entry,) = client.plain("resources/templates/list")["resourceTemplates"]
    assert entry["title"] == "Files" and entry["_meta"] == {"k": 1}
    server.remove_resource(template.key)
    missing(client, "file:///srv/docs/a.txt")


def test_what_cannot_be_served(server: Server, tree: Path) -> None:
    with pytest.raises(NotADirectoryError):
        server.add_folder("docs://", tree / "a.txt")
    with pytest.raises(NotADirectoryError):
        server.add_folder("docs://", tree / "nothing")
    with raises(ValueError):
        server.add_folder("docs", tree)
    server.add_folder("docs://", tree)
    with raises(ValueError):
        server.add_folder("docs://", tree)


def complete(client: Caller, value: str) -> list[str]:
    found = client.result(
        "completion/complete",
        ref={"type": "ref/resource", "uri": "docs://{+path}"},
        argument={"name": "path", "value": value},
    )
    values: list[str] = found["completion"]["values"]
    return values


def test_paths_complete_one_level_at_a_time(caller: Any, server: Server, tree: Path) -> None:
    os.symlink("..", tree / "up")
    server.add_folder("docs://", tree)
    client = caller()
    os.symlink("sub", tree / "same")
    everything = ["a.txt", "image.png", "same/", "sub/", "with space & %41.txt"]
    assert complete(client, "") == everything
    assert complete(client, "s") == ["same/", "sub/"]
    assert complete(client, "sub/") == ["sub/b.md", "sub/deep/"]
    assert complete(client, "sub/d") == ["sub/deep/"]
    assert complete(client, "sub/deep/") == ["sub/deep/c.json"]
    for value in (".", "..", "../", "up/", "sub/../", "/", "/etc/", "x", "sub/x/", "a.txt/", "\0"):
        assert complete(client, value) == [], value


def test_hidden_files_complete_where_they_are_served(
    connect: Any, server: Server, tree: Path
) -> None:
    server.add_folder("docs://", tree, hidden=True)
    assert complete(Caller(connect(), MODERN), ".") == [".env", ".git/"]


@every("text", ["a", "a/b", "a b", "a..b/...", "~", "-x", ".hidden", "C:"])
def test_plain_relative_paths(text: str) -> None:
    assert relative_path(text) == PurePosixPath(text)


@every(
    "text", ["", "/", "/a", "a/", "a//b", ".", "./a", "a/.", "..", "a/..", "a\\b", "a\0", "../a"]
)
def test_paths_that_are_not(text: str) -> None:
    with raises(ValueError):
        relative_path(text)


PIECES = ["..", ".", "/", "//", "\\", "%2e", "%2E%2e", "%2F", "%5c", "%00", "%", "sub", "a.txt",
          "out", "secret.txt", "root", "root-of-another", ".env", "~", "#", "?", "é"]  # fmt: skip


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a link out of it, beside secrets."""
    above = tmp_path_factory.mktemp("above")
    for name in ("root/sub", "root-of-another"):
        (above / name).mkdir(parents=True)
    (above / "root" / "out").symlink_to("..")
    (above / "root" / ".env").write_text("SECRET")
    (above / "secret.txt").write_text("SECRET")
    (above / "root-of-another" / "secret.txt").write_text("SECRET")
    (above / "root" / "a.txt").write_text("public")
    (above / "root" / "sub" / "secret.txt").write_text("public")
    return above / "root"


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_no_path_leads_to_a_secret(trap: Path, path: str) -> None:
    server = Server("folder")
    template = server.add_folder("docs://", trap)
    values = template.match(f"docs://{path}")
    folder = Folder(trap)
    if values is not None:
        file = folder.read(values["path"])
        assert file is None or file.data == b"public"
    # whatever a matcher lets through, the folder itself lets nothing out
    file = folder.read(PurePosixPath(path)) if path else None
    assert file is None or file.data == b"public"
    for found in folder.complete(path):
        assert "secret" not in found or found.startswith("sub/")


def test_completion_leaves_out_a_link_to_itself(tree: Path) -> None:
    (tree / "again").symlink_to("again")
    (tree / "sub" / "away").symlink_to("back")
    (tree / "sub" / "back").symlink_to("away")
    assert Folder(tree).complete("") == ["a.txt", "image.png", "sub/", "with space & %41.txt"]
    assert Folder(tree).complete("sub/") == ["sub/b.md", "sub/deep/"]
