"""Where logins are kept: every storage, files that others could read, locks between processes."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import keyring.backend
import keyring.errors
import pytest
from lab.client import until
from lab.wording import raises

from wirespeed.auth import FileStorage, KeyringStorage, MemoryStorage, TokenStorage
from wirespeed.errors import AuthorizationError

SERVER = "https://mcp.example.com/mcp"
TEXT = '{"server":"https://mcp.example.com/mcp","issuer":"ü"}'


class Ring(keyring.backend.KeyringBackend):
    """A keyring in memory."""

    priority = 1  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        if self.locked:
            raise keyring.errors.KeyringLocked("no")
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        del self.kept[service, username]


@pytest.fixture
def ring() -> Iterator[Ring]:
    before = keyring.get_keyring()
    found = Ring()
    keyring.set_keyring(found)
    yield found
    keyring.set_keyring(before)


@pytest.fixture(params=["memory", "file", "keyring"])
def storage(request: pytest.FixtureRequest, tmp_path: Path, ring: Ring) -> TokenStorage:
    folder = FileStorage(tmp_path / "logins")
    values: dict[str, Any] = {
        "memory": MemoryStorage(),
        "file": folder,
        "keyring": KeyringStorage(locks=folder),
    }
    found: TokenStorage = values[request.param]
    return found


async def test_every_storage(storage: TokenStorage) -> None:
    assert storage.load(SERVER) is None
    assert storage.servers() == []
    storage.delete(SERVER)
    storage.save(SERVER, "{}")
    storage.save(SERVER, TEXT)
    assert storage.load(SERVER) == TEXT
    assert storage.servers() == [SERVER]
    assert storage.load(f"{SERVER}/other") is None
    async with asyncio.timeout(10), storage.lock(f"{SERVER}/other"):
        order: list[int] = []

        async def work(number: int) -> None:
            async with storage.lock(SERVER):
                order.append(number)
                await asyncio.sleep(0.01)
                order.append(number)

        await asyncio.gather(*map(work, range(3)))
        assert order[0::2] == order[1::2]
    storage.delete(SERVER)
    assert storage.load(SERVER) is None
    assert storage.servers() == []
    assert "issuer" not in repr(storage)


def test_files_are_for_their_user_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        storage = FileStorage(tmp_path / "a" / "logins")
        storage.save(SERVER, TEXT)
        asyncio.run(locked(storage))
    finally:
        os.umask(before)
    assert stat.S_IMODE(storage.folder.stat().st_mode) == 0o700
    files = list(storage.folder.iterdir())
    assert len(files) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}


async def locked(storage: FileStorage) -> None:
    async with storage.lock(SERVER):
        pass


def test_what_others_can_read_is_not_used(tmp_path: Path) -> None:
    storage = FileStorage(tmp_path / "logins")
    storage.save(SERVER, TEXT)
    (path,) = storage.folder.iterdir()
    path.chmod(0o640)
    with raises(AuthorizationError):
        storage.load(SERVER)
    assert storage.servers() == []
    path.chmod(0o600)
    storage.folder.chmod(0o755)
    with raises(AuthorizationError):
        storage.save(SERVER, TEXT)
    storage.folder.chmod(0o700)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    with raises(AuthorizationError):
        storage.load(SERVER)
    storage.save(SERVER, "{}")
    assert elsewhere.read_text() == TEXT
    path.write_bytes(b"x" * (1 << 20) + b"x")
    with raises(AuthorizationError):
        storage.load(SERVER)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    storage = FileStorage(tmp_path / "file" / "logins")
    with raises(AuthorizationError):
        storage.save(SERVER, TEXT)


def test_where_files_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert FileStorage().folder == tmp_path / ".local" / "state" / "wirespeed" / "logins"
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert FileStorage().folder == Path("/state/wirespeed/logins")


HOLD = """
import asyncio, sys
from wirespeed.auth import FileStorage

async def hold():
    async with FileStorage(sys.argv[1]).lock(sys.argv[2]):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(hold())
"""


async def test_a_lock_holds_off_other_processes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    storage = FileStorage(tmp_path / "logins")
    child = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(storage.folder), SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert await asyncio.to_thread(child.stdout.readline) == b"held\n"
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), storage.lock(SERVER):
                pass
        assert not caplog.messages

        async def lock() -> None:
            async with asyncio.timeout(30), storage.lock(SERVER):
                pass

        waiting = asyncio.ensure_future(lock())
        await until(lambda: caplog.messages)  # a person who waits is told why
        child.stdin.close()
        await waiting
    told = f"another process logs in to {SERVER}: waiting until it has ended"
    assert caplog.messages == [told]


def test_a_keyring_that_is_locked(ring: Ring) -> None:
    storage = KeyringStorage("tests")
    ring.locked = True
    with raises(AuthorizationError):
        storage.load(SERVER)


def test_the_package_of_keyrings_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keyring", None)
    with pytest.raises(ImportError, match=r"wirespeed\[keyring\]"):
        KeyringStorage()
