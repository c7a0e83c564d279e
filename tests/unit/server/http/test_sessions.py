"""The table of legacy sessions: ids, time to live, limits, principals."""

from __future__ import annotations

import asyncio

from lab.wording import raises

from wirespeed.peer.http.sessions import SessionEntry, SessionLimit, Sessions

ANNE = b"digest of anne's token"
BOB = b"digest of bob's token"
LONG = 3600.0


class Kept(SessionEntry):
    """A session that notes its end."""

    busy = False

    def __init__(self, id: str) -> None:
        super().__init__(id)
        self.closed = asyncio.Event()

    def drain(self) -> None:
        self.drained = True

    def close(self) -> None:
        assert not self.closed.is_set()
        self.closed.set()


def table(ttl: float = LONG, most: int = 100, each: int = 10) -> Sessions[Kept]:
    return Sessions(
        asyncio.get_running_loop(),
        name="east",
        ttl=ttl,
        max_sessions=most,
        max_per_principal=each,
    )


async def test_ids_cannot_be_guessed() -> None:
    sessions = table(most=1000)
    ids = {sessions.open(None, Kept).id for _ in range(1000)}
    assert len(ids) == 1000
    for id in ids:
        assert len(id) >= 32
        assert all(0x21 <= ord(char) <= 0x7E for char in id)
    sessions.close()


async def test_a_session_is_found_by_its_principal_alone() -> None:
    sessions = table()
    annes, nobodys = sessions.open(ANNE, Kept), sessions.open(None, Kept)
    assert sessions.find(annes.id, ANNE) is annes
    assert sessions.find(annes.id, BOB) is None
    assert sessions.find(annes.id, None) is None
    assert sessions.find(nobodys.id, None) is nobodys
    assert sessions.find(nobodys.id, ANNE) is None
    assert sessions.find("made-up", ANNE) is None
    assert not annes.closed.is_set()
    sessions.close()


async def test_the_end_of_one_and_of_all() -> None:
    sessions = table()
    one, two, three = (sessions.open(ANNE, Kept) for _ in range(3))
    sessions.end(one)
    sessions.end(one)
    assert one.closed.is_set() and sessions.find(one.id, ANNE) is None
    assert len(sessions) == 2 and sessions.find(two.id, ANNE) is two
    sessions.close()
    assert two.closed.is_set() and three.closed.is_set() and len(sessions) == 0


async def test_a_session_expires_when_it_is_not_used() -> None:
    sessions = table(ttl=0.2)
    idle, used = sessions.open(None, Kept), sessions.open(None, Kept)
    async with asyncio.timeout(60):
        while not idle.closed.is_set():
            assert sessions.find(used.id, None) is used
            await asyncio.sleep(0.02)
        assert sessions.find(idle.id, None) is None
        await used.closed.wait()  # the timer goes on for the others
    assert len(sessions) == 0
    later = sessions.open(None, Kept)  # and starts again for later ones
    async with asyncio.timeout(60):
        await later.closed.wait()


async def test_a_busy_session_does_not_expire() -> None:
    sessions = table(ttl=0.02)
    busy, idle = sessions.open(None, Kept), sessions.open(None, Kept)
    busy.busy = True
    async with asyncio.timeout(60):
        await idle.closed.wait()
        await asyncio.sleep(0.1)
        assert not busy.closed.is_set()
        busy.busy = False
        await busy.closed.wait()


async def test_as_many_sessions_as_there_may_be() -> None:
    sessions = table(most=3, each=2)
    first = sessions.open(ANNE, Kept)
    sessions.open(ANNE, Kept)
    with raises(SessionLimit) as refused:
        sessions.open(ANNE, Kept)
    assert LONG - 60 < refused.value.retry_after <= LONG
    sessions.open(BOB, Kept)
    with raises(SessionLimit):
        sessions.open(BOB, Kept)
    sessions.end(first)
    sessions.open(ANNE, Kept)
    sessions.close()
    for _ in range(2):
        sessions.open(ANNE, Kept)  # those that have ended do not count
    sessions.close()


async def test_clients_without_credentials_share_no_limit_of_their_own() -> None:
    sessions = table(most=5, each=1)
    for _ in range(5):
        sessions.open(None, Kept)
    with raises(SessionLimit):
        sessions.open(None, Kept)
    sessions.close()


async def test_a_session_that_cannot_be_made_does_not_count() -> None:
    sessions = table(most=1)

    def fail(id: str) -> Kept:
        raise RuntimeError("no connection")

    with raises(RuntimeError):
        sessions.open(ANNE, fail)
    sessions.open(ANNE, Kept)
    sessions.close()


async def test_an_id_names_the_server_and_the_process_of_its_session() -> None:
    sessions = table()
    assert sessions.open(ANNE, Kept).id.startswith("east.0.")
    sessions.share(2, 4)
    session = sessions.open(ANNE, Kept)
    assert session.id.startswith("east.2.") and sessions.find(session.id, ANNE) is session
    assert sessions.owner(session.id) is None
    assert sessions.owner("east.3.abc") == 3 and sessions.owner("east.0.abc") == 0
    made_up = ("4.abc", "2.abc", "abc", "3", ".abc", "-1.abc", "99999.abc", "\u0663.abc", "")
    for id in (
        *(f"east.{rest}" for rest in made_up),
        "east",
        "",
        "west.3.abc",
        "3.abc",
        "EAST.3.a",
    ):
        assert sessions.owner(id) is None, id
    sessions.close()


async def test_only_the_whole_id_finds_a_session() -> None:
    sessions = table()
    session = sessions.open(ANNE, Kept)
    secret = session.id.removeprefix("east.0.")
    assert len(secret) >= 22  # 132 bits
    for id in (secret, f"0.{secret}", f"west.0.{secret}", f"east.1.{secret}", f"east.0.{secret}x"):
        assert sessions.find(id, ANNE) is None, id
    sessions.close()
