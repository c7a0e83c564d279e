"""Users of a load: files, their steps, connections of their own, cancellation, progress."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lab.faulty import PAGES, Faulty
from lab.rows import every

from wirespeed import Server
from wirespeed.bench.lite import place_of, template_of
from wirespeed.bench.load import Load, Result, UsersResult
from wirespeed.bench.recorder import OF_CALLS
from wirespeed.bench.run import Run
from wirespeed.bench.users import UsersFile
from wirespeed.client.targets import as_target
from wirespeed.errors import ConfigError
from wirespeed.litemcp import LiteClient

pytestmark = pytest.mark.off_schema

ECHO = '[call.echo]\narguments = { text = "$text:24" }\nexpect = "echo=text"\n'


def written(folder: Path, text: str) -> UsersFile:
    path = folder / "users.toml"
    path.write_text(text)
    return UsersFile(path)


async def measured(file: UsersFile, faulty: Faulty, transport: str = "tcp", **load: Any) -> Result:
    load = {"calls": 200, "in_flight": 4, "warmup": 0, "seed": 3} | load
    async with faulty.serving(transport) as url:
        made = Load(**load)
        return await Run(as_target(url), file.scripts(made.seed), made, era="legacy").measure()


def kinds(result: Result) -> dict[str, UsersResult]:
    """The kinds of users, whose counts are those of the run together."""
    assert sum(kind.calls for kind in result.users) == result.calls
    for name in OF_CALLS:
        assert sum(kind.counts[name] for kind in result.users) == result.counts[name]
    return {kind.name: kind for kind in result.users}


def test_an_agent_lists_every_page_and_then_calls(run: Any, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""{ECHO}
[call.other]
tool = "echo"
arguments = {{ text = "hello" }}

[[user]]
name = "agent"
steps = [{{ list = "tools" }}, {{ call = ["echo", "other"], times = 4 }}]
""",
    )
    faulty = Faulty()
    result = run(measured(file, faulty, calls=140, in_flight=1))
    assert result.counts["ok"] == kinds(result)["agent"].calls == 140
    asked = [method for method in faulty.asked if not method.startswith("init")]
    script = ["tools/list"] * PAGES + ["tools/call"] * 4
    assert [one for one in asked if "/" in one and "notif" not in one] == script * 20


def test_each_kind_has_its_share_and_counts_of_its_own(run: Any, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""{ECHO}
[[user]]
name = "caller"
weight = 3
steps = [{{ call = "echo" }}]

[[user]]
name = "listener"
steps = [{{ method = "ping" }}, {{ list = "prompts" }}]
""",
    )
    result = run(measured(file, Faulty("corrupt", 10), calls=600))
    found = kinds(result)
    # a listener asks twice: 3 of 5 calls are those of callers
    assert 300 < found["caller"].calls < 420
    assert found["caller"].counts["wrong"] == found["caller"].calls // 10
    assert found["listener"].counts["protocol_errors"] in (
        found["listener"].calls // 2,
        (found["listener"].calls + 1) // 2,
    )
    assert found["listener"].latency_us.max > 0


@pytest.mark.parametrize("transport", ["tcp", "ws", "events", "json"])
def test_visitors_connect_and_leave(run: Any, tmp_path: Path, transport: str) -> None:
    file = written(
        tmp_path,
        f"""{ECHO}
[[user]]
name = "visitor"
own_connection = true
steps = [{{ call = "echo" }}, {{ call = "echo" }}]
""",
    )
    faulty = Faulty()
    result = run(measured(file, faulty, transport, calls=40, in_flight=1))
    assert result.counts["ok"] == 40 and result.counts["connection_losses"] == 0
    # the connection of the load itself, and one for each visitor
    assert faulty.asked.count("initialize") == 21
    assert result.bytes.sent > 20 * 100


def test_a_visitor_who_cannot_connect_misses_the_call(run: Any, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f'{ECHO}[[user]]\nname = "v"\nown_connection = true\nsteps = [{{ call = "echo" }}]\n',
    )

    async def main() -> Result:
        faulty = Faulty()
        once = faulty.replies

        def replies(message: Any) -> Any:
            if message["method"] == "initialize" and faulty.asked.count("initialize") > 3:
                return 0.0, [None]
            return once(message)

        faulty.replies = replies  # type: ignore[method-assign]
        return await measured(file, faulty, calls=6, in_flight=1)

    result = run(main())
    # the load's own connection and three visitors are let in
    assert result.counts["ok"] == 3 and result.counts["missing"] == 3
    assert kinds(result)["v"].calls == 6


@pytest.mark.parametrize(
    ("transport", "fault"),
    [("tcp", "drop"), ("tcp", "deaf"), ("ws", "deaf"), ("events", "deaf"), ("json", "drop")],
)
def test_a_cancelled_call_is_no_fault_whether_its_answer_comes_or_not(
    run: Any, tmp_path: Path, transport: str, fault: str
) -> None:
    file = written(
        tmp_path,
        """[call.slow]
tool = "echo"
arguments = { text = "x" }
cancel_after = "50ms"

[[user]]
name = "impatient"
steps = [{ call = "slow" }]
""",
    )
    faulty = Faulty(fault, 2, 0.1)  # a deaf server answers after the cancellation
    result = run(measured(file, faulty, transport, calls=20, in_flight=2))
    assert {name: n for name, n in result.counts.items() if n} == {"ok": 10, "cancelled": 10}
    assert faulty.asked.count("notifications/cancelled") == 10


def test_a_second_answer_to_a_cancelled_call_is_one_too_many(run: Any, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """[call.slow]
tool = "echo"
arguments = { text = "x" }
cancel_after = "20ms"

[[user]]
name = "impatient"
steps = [{ call = "slow" }, { method = "ping" }]
""",
    )

    async def main() -> Result:
        faulty = Faulty("delay", 1, 0.03)
        once = faulty.replies

        def twice(message: Any) -> Any:
            delay, messages = once(message)
            return delay, messages * (2 if message["method"] == "tools/call" else 1)

        faulty.replies = twice  # type: ignore[method-assign]
        return await measured(file, faulty, calls=20, in_flight=1)

    counts = {name: n for name, n in run(main()).counts.items() if n}
    assert counts == {"ok": 10, "cancelled": 10, "duplicate": 10}


@pytest.mark.parametrize("transport", ["tcp", "ws", "events"])
def test_progress_is_counted_and_must_increase(run: Any, tmp_path: Path, transport: str) -> None:
    file = written(
        tmp_path,
        f"""{ECHO}progress = true

[[user]]
name = "watcher"
steps = [{{ call = "echo" }}]
""",
    )
    result = run(measured(file, Faulty("backwards", 10), transport, calls=100))
    assert {name: n for name, n in result.counts.items() if n} == {"ok": 90, "wrong": 10}
    assert kinds(result)["watcher"].progress == 200


def test_progress_that_nobody_asked_for_is_unexpected(run: Any, tmp_path: Path) -> None:
    file = written(tmp_path, f'{ECHO}[[user]]\nname = "u"\nsteps = [{{ call = "echo" }}]\n')

    async def main() -> Result:
        faulty = Faulty()
        once = faulty.replies

        def told(message: Any) -> Any:
            delay, messages = once(message)
            if message["method"] == "tools/call":
                for token in (message["id"], 7):
                    params = {"progressToken": token, "progress": 1}
                    note = {"method": "notifications/progress", "params": params}
                    messages = [{"jsonrpc": "2.0", **note}, *messages]
            return delay, messages

        faulty.replies = told  # type: ignore[method-assign]
        return await measured(file, faulty, calls=10)

    assert {n: c for n, c in run(main()).counts.items() if c} == {"ok": 10, "unexpected": 20}


def test_a_new_user_comes_at_each_time_of_an_open_loop(run: Any, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f'{ECHO}[[user]]\nname = "u"\nsteps = [{{ call = "echo", times = 5 }}]\n',
    )
    result = run(measured(file, Faulty(), calls=500, rate=200.0))
    assert result.counts["ok"] == 500
    # 100 users of 5 calls each, in half a second
    assert 0.45 < result.seconds < 5


def test_a_list_of_endless_pages_ends(run: Any, tmp_path: Path) -> None:
    file = written(tmp_path, '[[user]]\nname = "u"\nsteps = [{ list = "tools" }]\n')

    async def main() -> Result:
        faulty = Faulty()
        once = faulty.replies

        def endless(message: Any) -> Any:
            delay, messages = once(message | {"params": message.get("params", {}) | {"cursor": 0}})
            return delay, messages

        faulty.replies = endless  # type: ignore[method-assign]
        return await measured(file, faulty, calls=50)

    assert run(main()).counts["ok"] == 50  # the budget ends the user


def test_discovery_of_a_modern_server(run: Any, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """[[user]]
name = "explorer"
steps = [
  { method = "server/discover", expect = "path=$.capabilities.prompts" },
  { list = "tools" },
  { list = "resources" },
  { list = "resource_templates" },
  { list = "prompts" },
]
""",
    )
    server = Server("s")

    @server.tool
    async def echo(text: str) -> str:
        return text

    @server.resource("note://one")
    async def note() -> str:
        return "1"

    @server.prompt
    async def ask() -> str:
        return "?"

    async def main() -> Result:
        load = Load(calls=50, warmup=0)
        return await Run(as_target(server), file.scripts(), load, era="modern").measure()

    result = run(main())
    assert {name: n for name, n in result.counts.items() if n} == {"ok": 50}
    assert result.era == "modern"


def test_users_leave_when_their_connection_is_lost(run: Any, tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f'{ECHO}[[user]]\nname = "u"\nsteps = [{{ method = "ping" }}, {{ call = "echo" }}]\n',
    )
    faulty = Faulty("cut", 10)
    result = run(measured(file, faulty, calls=100, in_flight=1))
    # each connection ends in the tenth call, and the next user begins with a ping
    assert {name: n for name, n in result.counts.items() if n} == {
        "ok": 95,
        "missing": 5,
        "connection_losses": 5,
    }
    assert faulty.asked.count("ping") == 50


def test_users_of_litemcp(run: Any, tmp_path: Path) -> None:
    text = f"""{ECHO}
[[user]]
name = "caller"
steps = [{{ call = "echo", times = 3 }}]

[[user]]
name = "visitor"
own_connection = true
steps = [{{ call = "echo" }}]
"""
    (tmp_path / "users.toml").write_text(text)
    file = UsersFile(tmp_path / "users.toml", lite=True)

    async def main() -> Result:
        async with Faulty("corrupt", 10).serving("lite-tcp") as url:
            async with LiteClient(url) as client:
                tool = await client.info()

            def arrange(name: str, value: Any, expected: str | None) -> tuple[Any, int]:
                return template_of(tool, value), place_of(tool, expected or "")

            load = Load(calls=100, in_flight=2, warmup=0, seed=3)
            scripts = file.scripts(3, arrange)
            return await Run(as_target(url), scripts, load, lite=True).measure()

    result = run(main())
    assert {name: n for name, n in result.counts.items() if n} == {"ok": 90, "wrong": 10}
    assert all(kind.calls for kind in kinds(result).values())
    for more in ("progress = true", 'cancel_after = "1s"'):
        (tmp_path / "users.toml").write_text(text.replace("\n\n[[user]]", f"\n{more}\n[[user]]", 1))
        with pytest.raises(ConfigError, match="LiteMCP has neither"):
            UsersFile(tmp_path / "users.toml", lite=True).scripts()


CALL = '[call.c]\narguments = {}\n[[user]]\nname = "u"\nsteps = [{ call = "c" }]\n'
USER = '[[user]]\nname = "u"\nsteps = [{ list = "tools" }]\n'


@every(
    "text",
    [
        "x = 1",
        "= 1",
        "",
        "[call.c]\n",
        "user = []\n",
        'call = "c"\n' + USER,
        f"[call.c]\ntols = 1\n{USER}",
        f"[call.c]\ntool = 5\n{USER}",
        f"[call.c]\narguments = 5\n{USER}",
        f'[call.c]\narguments = {{ a = "$nn" }}\n{USER}',
        f'[call.c]\narguments = {{ a = "$file:/no/such" }}\n{USER}',
        f"[call.c]\narguments = {{ a = 1979-05-27 }}\n{USER}",
        f'[call.c]\nexpect = "echo=a"\n{USER}',
        f'[call.c]\nexpect = "sum"\n{USER}',
        f"[call.c]\ncancel_after = 50\n{USER}",
        f'[call.c]\ncancel_after = "0ms"\n{USER}',
        f'[call.c]\nprogress = "yes"\n{USER}',
        USER + USER,
        USER + "weight = 0\n",
        USER + 'weight = "1"\n',
        USER + "own_connection = 1\n",
        USER + "speed = 1\n",
        '[[user]]\nsteps = [{ list = "tools" }]\n',
        '[[user]]\nname = "u"\nsteps = []\n',
        '[[user]]\nname = "u"\nsteps = ["ping"]\n',
        CALL.replace('"c" }', '"d" }'),
        CALL.replace('"c" }', "[] }"),
        CALL.replace('"c" }', '"c", times = 0 }'),
        CALL.replace('"c" }', '"c", list = "tools" }'),
        CALL.replace('"c" }', '"c", expect = "any" }'),
        USER.replace("tools", "tols"),
        USER.replace('list = "tools"', 'method = "tools/call"'),
        USER.replace('list = "tools"', 'method = "tools/list"'),
        USER.replace('list = "tools"', 'method = "tool/call"'),
        USER.replace('list = "tools"', 'method = "ping", params = { _meta = {} }'),
        USER.replace('list = "tools"', 'method = "ping", expect = "echo=a"'),
        USER.replace('list = "tools"', "times = 5"),
    ],
)
def test_files_that_are_wrong(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        written(tmp_path, text).scripts()
    said = str(caught.value)
    assert said.startswith(f"{tmp_path}/users.toml: ") and "\n" not in said
    print(said.removeprefix(f"{tmp_path}/"))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read the file"):
        UsersFile(tmp_path / "none.toml")
