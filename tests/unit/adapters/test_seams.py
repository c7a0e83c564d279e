"""Seams of an SDK: checked before any is set, replaced everywhere, restored. The SDK is made up."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from wirespeed.adapters import programs
from wirespeed.adapters.seams import (
    Installation,
    MovedSeam,
    Seam,
    holders,
    is_known,
    missing,
    source_digest,
    version_numbers,
)

STREAMS = """
import contextlib

@contextlib.contextmanager
def open_streams(source=None):
    yield "stock"

def send(item, *, wait=False):
    return "stock"

class Session:
    def call(self, name):
        return f"stock {name}"
"""
USER = "from madeup.streams import open_streams, send\n"


class Proxy:
    """What instrumentation puts around a function: the name of what is inside is `__wrapped__`."""

    def __init__(self, wrapped: Callable[..., Any]) -> None:
        self.__wrapped__ = wrapped
        self.calls = 0

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.calls += 1
        return self.__wrapped__(*args, **kwargs)


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The SDK "madeup" 1.4.2, and a module that has imported its names."""
    package = tmp_path / "madeup"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "streams.py").write_text(STREAMS)
    (tmp_path / "its_user.py").write_text(USER)
    about = tmp_path / "madeup-1.4.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: madeup\nVersion: 1.4.2\n")
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    import its_user

    yield its_user
    for name in set(sys.modules) - before:
        del sys.modules[name]


def seam(place: str = "send", make: Any = None, **more: Any) -> Seam:
    return Seam(f"madeup.streams:{place}", make or (lambda stock: lambda *a, **k: "ours"), **more)


def installation(*seams: Seam, versions: tuple[str, str] = ("1.2", "2")) -> Installation:
    return Installation("some.adapter", "madeup", versions, lambda: list(seams), extra="some")


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> Callable[[], list[tuple[str, str]]]:
    caplog.set_level(logging.INFO, "wirespeed.adapters")
    return lambda: [(record.levelname, record.getMessage()) for record in caplog.records]


def test_everything_is_replaced_and_restored(sdk: Any, lines: Any) -> None:
    streams = sys.modules["madeup.streams"]
    ours = installation(
        seam(takes=("item", "wait")),
        seam("open_streams", takes=("source",)),
        seam("Session.call", lambda stock: lambda self, name: "ours, " + stock(self, name)),
    )
    assert not ours.installed
    assert ours.install() and ours.install()
    assert ours.installed
    assert sdk.send("x") == sdk.open_streams() == streams.send("x") == "ours"
    assert streams.Session().call("a") == "ours, stock a"
    assert lines() == [
        (
            "INFO",
            "some.adapter runs madeup 1.4.2 and has replaced madeup.streams.send, "
            "madeup.streams.open_streams, madeup.streams.Session.call",
        )
    ]
    import importlib

    late = importlib.import_module("its_user")
    ours.uninstall()
    assert not ours.installed
    assert late.send("x") == streams.send("x") == "stock"
    assert streams.Session().call("a") == "stock a"
    with sdk.open_streams() as what:
        assert what == "stock"


MOVED = [
    (seam("recv"), "madeup.streams:recv is missing"),
    (Seam("madeup.gone:send", str), "madeup.gone:send is missing"),
    (seam("Session.gone"), "madeup.streams:Session.gone is missing"),
    (seam(takes=("item",)), "madeup.streams:send takes item, wait"),
    (seam("open_streams", takes=()), "madeup.streams:open_streams takes source"),
    (seam(digests=("0" * 16,)), "madeup.streams:send has changed"),
]


@pytest.mark.parametrize(("moved", "said"), MOVED, ids=[said for _, said in MOVED])
def test_a_moved_seam_is_named_and_nothing_is_set(
    sdk: Any, lines: Any, moved: Seam, said: str
) -> None:
    ours = installation(seam("Session.call"), moved, seam("open_streams"))
    assert not ours.install()
    assert not ours.install()
    assert sys.modules["madeup.streams"].Session().call("a") == "stock a"
    ((level, text),) = lines()
    assert level == "WARNING"
    assert said in text
    assert text.startswith("some.adapter does not know madeup 1.4.2, which stays as it is: ")


def test_every_moved_seam_is_named(sdk: Any, lines: Any) -> None:
    assert not installation(seam("recv"), seam("peek")).install()
    ((_, text),) = lines()
    assert text.endswith(": madeup.streams:recv is missing; madeup.streams:peek is missing")


@pytest.mark.parametrize("versions", [("1.5", "2"), ("1", "1.4.2"), ("2", "3")])
def test_an_unknown_version_stays_stock(sdk: Any, lines: Any, versions: tuple[str, str]) -> None:
    ours = installation(seam(), versions=versions)
    assert not ours.install()
    assert sdk.send("x") == "stock"
    ((level, text),) = lines()
    assert (level, text) == (
        "WARNING",
        f"some.adapter is for madeup {versions[0]} to before {versions[1]}: "
        "madeup 1.4.2 stays as it is",
    )


def test_without_the_sdk_the_error_names_the_extra() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"needs madeup: install wirespeed\[some\]"):
        installation(seam()).install()


def test_a_replacement_that_cannot_be_made_leaves_nothing(sdk: Any) -> None:
    def fail(stock: Any) -> Any:
        raise OSError("no")

    ours = installation(seam(), seam("open_streams", fail))
    with pytest.raises(OSError, match="no"):
        ours.install()
    assert sdk.send("x") == "stock"
    assert not ours.installed


def test_instrumentation_stays_around_what_is_replaced(sdk: Any) -> None:
    streams: Any = sys.modules["madeup.streams"]
    proxy = streams.send = Proxy(streams.send)
    ours = installation(seam())
    assert ours.install()
    assert streams.send is proxy
    assert streams.send("x") == "ours"
    assert proxy.calls == 1
    ours.uninstall()
    assert streams.send is proxy
    assert streams.send("x") == "stock"


def test_instrumentation_that_comes_later_stays_too(sdk: Any) -> None:
    streams: Any = sys.modules["madeup.streams"]
    ours = installation(seam())
    assert ours.install()
    proxy = streams.send = Proxy(streams.send)
    assert streams.send("x") == "ours"
    ours.uninstall()
    assert streams.send is proxy
    assert streams.send("x") == "stock"


def test_a_function_of_others_is_not_replaced(sdk: Any, lines: Any) -> None:
    streams: Any = sys.modules["madeup.streams"]
    streams.send = lambda item, *, wait=False: "theirs"
    assert not installation(seam()).install()
    assert streams.send("x") == "theirs"
    assert f"madeup.streams:send was replaced by {__file__}" in lines()[0][1]


def test_a_package_whose_name_begins_alike_is_another(sdk: Any, lines: Any, tmp_path: Path) -> None:
    streams: Any = sys.modules["madeup.streams"]
    package = tmp_path / "madeup_traces"
    package.mkdir()
    (package / "__init__.py").write_text("def send(item, *, wait=False):\n    return 'theirs'\n")
    import importlib

    streams.send = importlib.import_module("madeup_traces").send
    assert not installation(seam()).install()
    assert "madeup.streams:send was replaced by " in lines()[0][1]


def test_a_class_of_others_is_not_replaced(sdk: Any, lines: Any) -> None:
    streams: Any = sys.modules["madeup.streams"]

    class Session(streams.Session):  # type: ignore[misc, name-defined]
        pass

    streams.Session = Session
    assert not installation(seam("Session", lambda stock: stock)).install()
    assert f"madeup.streams:Session was replaced by {__name__}" in lines()[0][1]


def test_what_is_no_function_any_more_has_moved(sdk: Any, lines: Any) -> None:
    streams: Any = sys.modules["madeup.streams"]
    streams.send = 7
    assert not installation(seam(takes=("item", "wait"))).install()
    assert lines()[0][1].endswith(": madeup.streams:send is not a function")


def test_names_that_an_adapter_cannot_import_are_a_warning(sdk: Any, lines: Any) -> None:
    def seams() -> list[Seam]:
        raise ImportError("cannot import name 'peek' from 'madeup'")

    ours = Installation("some.adapter", "madeup", ("1", "2"), seams, extra="some")
    assert not ours.install()
    ((level, text),) = lines()
    assert level == "WARNING" and "cannot import name 'peek'" in text


def test_a_module_that_breaks_is_a_warning(sdk: Any, lines: Any, tmp_path: Path) -> None:
    (tmp_path / "madeup" / "broken.py").write_text("raise RuntimeError('broken')")
    broken = Seam("madeup.broken:send", lambda stock: stock)
    assert not installation(seam(), broken).install()
    assert lines()[0][1].endswith(": madeup.broken:send cannot be imported: broken")
    assert sdk.send("x") == "stock"


def test_an_import_that_installs_does_so_once(
    sdk: Any, lines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a child's environment installs the adapter, and its program calls install()."""
    hook: Any = ModuleType("hook")
    ours = installation(seam())
    hook.install = ours.install
    monkeypatch.setitem(sys.modules, "hook", hook)
    (tmp_path / "madeup" / "__init__.py").write_text("import hook\nhook.install()\n")
    for name in ("madeup", "madeup.streams"):
        del sys.modules[name]
    assert ours.install()
    assert sys.modules["madeup.streams"].send("x") == "ours"
    assert [level for level, _ in lines()] == ["INFO"]
    ours.uninstall()
    assert sys.modules["madeup.streams"].send("x") == "stock"


def test_threads_install_once(sdk: Any, lines: Any) -> None:
    done: list[bool] = []
    other = threading.Thread(target=lambda: done.append(ours.install()))

    def make(stock: Any) -> Any:
        if not other.ident:
            other.start()
            other.join(0.2)  # it has time to set the seam, too
        return lambda *args, **options: "ours"

    ours = installation(seam(make=make))
    assert ours.install()
    other.join()
    assert done == [True]
    assert len(lines()) == 1
    assert sdk.send("x") == "ours"
    ours.uninstall()
    assert sdk.send("x") == "stock"


def test_what_others_wrap_in_a_function_is_named_at_the_end(sdk: Any, lines: Any) -> None:
    streams: Any = sys.modules["madeup.streams"]
    ours = installation(seam())
    ours.install()
    inner = streams.send
    streams.send = lambda item: f"around {inner(item)}"
    ours.uninstall()
    assert streams.send("x") == "around ours"
    assert sdk.send("x") == "stock"
    assert lines()[-1][1].endswith(
        "others wrap what some.adapter replaced, and keep: madeup.streams:send"
    )


def test_a_module_that_the_sdk_imported_is_replaced_there_alone(sdk: Any) -> None:
    streams: Any = sys.modules["madeup.streams"]
    ours = installation(seam("contextlib", lambda stock: "stand-in"))
    assert ours.install()
    assert streams.contextlib == "stand-in"
    assert "stand-in" not in [vars(module).get("contextlib") for module in (pytest, logging)]
    import contextlib

    assert isinstance(contextlib, ModuleType)
    ours.uninstall()
    assert streams.contextlib is contextlib


def test_a_seam_that_need_not_be_there(sdk: Any) -> None:
    ours = installation(seam(), seam("recv", required=False))
    assert ours.install()
    assert sdk.send("x") == "ours"
    ours.uninstall()


def test_a_known_body_is_known_by_its_digest(sdk: Any) -> None:
    streams: Any = sys.modules["madeup.streams"]
    digest = source_digest(streams.send)
    assert source_digest(streams.Session.call) != digest
    ours = installation(seam(digests=("0" * 16, digest)))
    assert ours.install()
    ours.uninstall()


def test_bodies_are_known_unless_they_differ_or_are_wrapped(sdk: Any) -> None:
    streams: Any = sys.modules["madeup.streams"]
    digest, other = source_digest(streams.send), source_digest(streams.Session.call)
    send, call, gone = (f"madeup.streams:{name}" for name in ("send", "Session.call", "gone"))
    assert is_known({send: digest, call: other})
    assert not is_known({send: digest, call: digest})
    assert not is_known({send: digest, gone: digest})
    streams.send = Proxy(streams.send)
    assert not is_known({send: digest})


def test_a_program_that_uses_a_private_name_is_told() -> None:
    error = missing("some.adapter", sys, "_buffer")
    assert isinstance(error, AttributeError)
    assert error.name == "_buffer"
    assert "some.adapter.uninstall() restores it" in str(error)


def test_version_numbers() -> None:
    assert version_numbers("1.30.0") == (1, 30, 0)
    assert version_numbers("2.4.0rc1") == (2, 4, 0)
    assert version_numbers("2.4b1.post2") == (2, 4)
    assert version_numbers("dev") == ()


def test_holders_finds_names_by_what_they_hold(sdk: Any) -> None:
    found = [(module.__name__, name) for module, name in holders(sdk.send)]
    assert sorted(found) == [("its_user", "send"), ("madeup.streams", "send")]
    assert MovedSeam.__doc__


# -- programs --------------------------------------------------------------------------------------


def run(*arguments: str, **variables: str) -> str:
    """What Python prints with some arguments, in an environment that has no others' variables."""
    import os

    source = str(Path(programs.__file__).parents[2])
    path = os.pathsep.join([variables.pop("PYTHONPATH", ""), source])
    done = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, **variables, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout + done.stderr


def test_the_environment_adds_to_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    base = {"PYTHONPATH": "/a:/b", "OTHER": "1"}
    once = programs.environment("mcp", base=base)
    assert once == {
        "PYTHONPATH": f"{programs.SITE}:/a:/b",
        "WIRESPEED_ADAPTERS": "mcp",
    }
    assert programs.environment("fastmcp", "mcp", base={**base, **once}) == {
        "PYTHONPATH": f"{programs.SITE}:/a:/b",
        "WIRESPEED_ADAPTERS": "mcp,fastmcp",
    }
    monkeypatch.delenv("PYTHONPATH", raising=False)
    assert programs.environment("mcp")["PYTHONPATH"] == programs.SITE
    # an empty part is the current directory
    assert programs.environment(base={"PYTHONPATH": ":/a"})["PYTHONPATH"] == f"{programs.SITE}::/a"
    assert programs.environment(base={"PYTHONPATH": ""})["PYTHONPATH"] == programs.SITE


def test_a_child_installs_when_the_sdk_is_imported_and_not_before(tmp_path: Path) -> None:
    """The hidden sitecustomize runs; an SDK whose adapter fails stays as it is, on stderr."""
    package = tmp_path / "mcp"
    package.mkdir()
    (package / "__init__.py").write_text("VALUE = 1")
    (tmp_path / "sitecustomize.py").write_text("print('the other sitecustomize')")
    variables = programs.environment("mcp", base={"PYTHONPATH": str(tmp_path)})
    nothing = "import sys; print([n for n in sys.modules if n.startswith('wirespeed')])"
    assert run("-c", nothing, **variables) == "the other sitecustomize\n[]\n"
    code = "import mcp; print(mcp.VALUE, type(mcp.__spec__.loader).__name__)"
    said = run("-c", code, **variables)
    assert "the other sitecustomize\n1 SourceFileLoader\n" in said
    assert "wirespeed: mcp stays as it is: " in said
    assert programs.SITE not in run("-c", "import sys; print(sys.path)", **variables)


def test_the_variables_of_a_server_that_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WIRESPEED_ADAPTERS", raising=False)
    assert programs.of_child({"HOME": "/"}) == {"HOME": "/"}
    monkeypatch.setenv("WIRESPEED_ADAPTERS", "mcp")
    assert programs.of_child({"HOME": "/", "PYTHONPATH": "/a"}) == {
        "HOME": "/",
        "PYTHONPATH": f"{programs.SITE}:/a",
        "WIRESPEED_ADAPTERS": "mcp",
    }


ASKS_FIRST = """
import importlib.util, sys
assert importlib.util.find_spec("mcp").loader is not None
import mcp
"""
TRIES = """
import sys
sys.path.remove(sys.argv[1])
try:
    import mcp
except ImportError:
    sys.path.insert(0, sys.argv[1])
import mcp
"""
FAILS_ONCE = """
try:
    import mcp
except ValueError:
    import mcp
"""


@pytest.mark.parametrize("program", [ASKS_FIRST, TRIES, FAILS_ONCE])
def test_a_child_installs_at_the_import_that_succeeds(tmp_path: Path, program: str) -> None:
    package = tmp_path / "mcp"
    package.mkdir()
    once = """
import builtins
builtins.tries = getattr(builtins, "tries", 0) + 1
if builtins.tries == 1:
    raise ValueError
"""
    (package / "__init__.py").write_text(once if program is FAILS_ONCE else "")
    variables = programs.environment("mcp", base={"PYTHONPATH": str(tmp_path)})
    said = run("-c", program, str(tmp_path), **variables)
    assert "Traceback" not in said
    assert said.count("wirespeed: mcp stays as it is: ") == 1  # this mcp is no SDK


def test_a_hidden_sitecustomize_that_fails_is_shown_as_without(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('their fault')")
    variables = programs.environment("mcp", base={"PYTHONPATH": str(tmp_path)})
    code = "import sys; print([type(one).__name__ for one in sys.meta_path][0])"
    said = run("-c", code, **variables)
    assert "their fault" in said and said.startswith("_Finder\n")


def test_a_program_runs_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WORD = 'beside'")
    program = tmp_path / "program.py"
    program.write_text(
        "import sys, beside\nif __name__ == '__main__': print(sys.argv[1:], beside.WORD)\n"
    )
    code = (
        "import sys; from wirespeed.adapters.programs import main;"
        "main('some.adapter', lambda: print('installed'), 'mcp', sys.argv[1:])"
    )
    assert run("-c", code, str(program), "a", "-b") == "installed\n['a', '-b'] beside\n"
    alone = tmp_path / "alone.py"
    alone.write_text("import sys; print(sys.path[0])")
    assert run("-P", "-c", code, str(alone), PYTHONPATH="/first") == "installed\n/first\n"
    assert run("-c", code, "-m", "this").startswith("installed\nThe Zen of Python")
    assert run("-c", code) == (
        "usage: python -m some.adapter [--children] (PROGRAM | -m MODULE) [ARGUMENT …]\n"
    )
    bin = tmp_path / "bin"
    bin.mkdir()
    command = bin / "a-command"
    command.write_text("#!/usr/bin/env python\nprint('the command')")
    command.chmod(0o755)
    (tmp_path / "a-command").mkdir()  # a checkout of it in the current directory
    inside = f"import os; os.chdir({str(tmp_path)!r}); {code}"
    assert run("-c", inside, "a-command", PATH=str(bin)) == "installed\nthe command\n"
    program.write_text("import os; print(os.environ['WIRESPEED_ADAPTERS'])")
    assert run("-c", code, "--children", str(program)).endswith("mcp\n")
