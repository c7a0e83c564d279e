"""wirespeed-core without wirespeed and without any other package, and an SDK that may have it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from guide import blocks

import wirespeed
from wirespeed import transport
from wirespeed._exports import HOMES

pytestmark = pytest.mark.own_environment

ROOT = Path(__file__).resolve().parents[2]
CORE = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())
FILES = [*CORE["tool"]["wirespeed"]["files"], "include/*"]
PAGE = "docs/how-to/depend-on-the-core.md"
ALONE = (
    "is in the distribution wirespeed, and wirespeed-core is installed alone: pip install wirespeed"
)


def is_core(module: str) -> bool:
    name = module.removeprefix("wirespeed.").replace(".", "/")
    return any(fnmatch(f"{name}.py", one) for one in FILES)


def installed() -> dict[str, Path]:
    """The files of the core that is tested, by their paths below the package."""
    package = Path(wirespeed.__file__).parent
    found = (path for path in package.rglob("*") if path.is_file() and path.suffix != ".pyc")
    names = {path.relative_to(package).as_posix(): path for path in found}
    return {name: path for name, path in names.items() if any(fnmatch(name, o) for o in FILES)}


class Bare:
    """A virtual environment with nothing but files of the core."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        (site,) = folder.glob("lib/python*/site-packages")
        self.package = site / "wirespeed"

    def fill(self) -> Bare:
        for name, path in installed().items():
            target = self.package / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(path)
        return self

    def run(self, *words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [self.python, *words],
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Bare:
    return Bare(tmp_path_factory.mktemp("alone") / "venv").fill()


def test_its_modules_and_examples_need_nothing_else(alone: Bare) -> None:
    done = alone.run("tests/core_alone.py")
    assert done.returncode == 0, done.stderr
    found = re.fullmatch(
        r"(\d+) modules, (\d+) examples; \d+ examples need wirespeed\n", done.stdout
    )
    assert found is not None
    assert (int(found[1]) > 30, int(found[2]) >= 6) == (True, True), done.stdout


def test_an_import_leaves_most_of_the_library_alone(alone: Bare) -> None:
    done = alone.run("-c", "import sys; from wirespeed import core; print(*sys.modules)")
    assert not {"asyncio", "logging", "json", "msgspec"} & set(done.stdout.split())


def test_names_of_wirespeed_say_where_they_are(alone: Bare) -> None:
    for module, name in (
        ("wirespeed", "Server"),
        ("wirespeed", "types"),
        ("wirespeed", "serve"),
        ("wirespeed.transport", "Child"),
    ):
        done = alone.run("-c", f"from {module} import {name}")
        assert done.stderr.splitlines()[-1] == f"ImportError: {module}.{name} {ALONE}"
    code = "import wirespeed; wirespeed.Nothing"
    assert alone.run("-c", code).stderr.endswith("has no attribute 'Nothing'\n")


def test_the_names_that_there_are(alone: Bare) -> None:
    code = """
import wirespeed, wirespeed.transport as transport
for module in (wirespeed, transport):
    assert all(getattr(module, name) is not None for name in module.__all__)
    print(*sorted(module.__all__))
print(wirespeed.get_include())
"""
    done = alone.run("-c", code)
    assert done.returncode == 0, done.stderr
    ours, theirs, include = done.stdout.splitlines()
    assert ours.split() == ["Limits", "__version__", "core", "get_include", "transport"]
    homes = HOMES["wirespeed.transport"]
    names = {name for home in homes if is_core(home) for name in homes[home]}
    assert theirs.split() == sorted(names)
    assert {"Child"} <= set(transport.__all__) - names
    assert {"FdLink", "Link", "Service", "TaskPool", "open_pool", "claimed"} <= names
    assert include.endswith(("/include", "/csrc"))


# -- an SDK's guarded import -----------------------------------------------------------------------

SDK = '''
import asyncio, logging, socket, sys
logging.basicConfig(format="%(levelname)s %(message)s", stream=sys.stdout)


class Stock:
    """The SDK's own transport."""

    @staticmethod
    def serve(end):
        loop = asyncio.get_running_loop()

        async def answer():
            await loop.sock_recv(end, 1000)
            await loop.sock_sendall(end, b"stock\\n")
        end.setblocking(False)
        tasks.append(loop.create_task(answer()))


tasks = []


async def main():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    (engine() or Stock).serve(theirs)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(ours, b'{"jsonrpc":"2.0","id":1,"method":"sum"}\\n')
    print((await loop.sock_recv(ours, 1000)).decode().strip())

from engine import engine
print(engine())          # outside of an event loop, as under trio
asyncio.run(main())
'''
BY_CORE = '{"jsonrpc":"2.0","id":1,"result":{"sum":3}}'
WARNING = "WARNING wirespeed cannot be used: "


@pytest.fixture(scope="module")
def sdk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdk")
    for block in blocks(PAGE):
        if block.title is not None:
            (folder / block.title).write_text(block.code)
    (folder / "program.py").write_text(SDK)
    return folder


def test_an_sdk_uses_the_core(alone: Bare, sdk: Path) -> None:
    done = alone.run("program.py", cwd=sdk)
    assert (done.stdout.splitlines(), done.stderr) == (["None", BY_CORE], "")


def test_without_the_package_stock_stays_and_nothing_is_said(tmp_path: Path, sdk: Path) -> None:
    done = Bare(tmp_path / "venv").run("program.py", cwd=sdk)
    assert (done.stdout.splitlines(), done.stderr) == (["None", "stock"], "")


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("_core/session.*.so", b"\x7fELF, cut", "ImportError: "),  # damaged
        ("_core/session.*.so", None, "No module named 'wirespeed._core.session'"),  # another Python
        (
            "transport/__init__.pyi",
            None,
            "FileNotFoundError: ",
        ),  # what a tool for freezing left out
        ("limits.py", b"raise RuntimeError('broken')", "RuntimeError: broken"),
    ],
)
def test_with_a_broken_module_stock_stays_and_one_line_says_why(
    name: str, text: bytes | None, says: str, tmp_path: Path, sdk: Path
) -> None:
    broken = Bare(tmp_path / "venv").fill()
    (file,) = broken.package.glob(name)
    file.unlink()
    if text is not None:
        file.write_bytes(text)
    done = broken.run("program.py", cwd=sdk)
    nothing, warning, answer = done.stdout.splitlines()
    assert (nothing, answer, done.stderr) == ("None", "stock", "")
    assert warning.startswith(WARNING)
    assert says in warning


# -- the workflow that an SDK can copy -------------------------------------------------------------


def test_the_workflow_to_copy_is_sound() -> None:
    text = (ROOT / "docs" / "ci" / "wirespeed-main.yml").read_text()
    workflow = yaml.safe_load(text)
    assert set(workflow) == {"name", True, "permissions", "concurrency", "jobs"}  # True: "on"
    assert set(workflow[True]) == {"schedule", "workflow_dispatch"}
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    own = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())
    known = {
        step["uses"] for one in own["jobs"].values() for step in one["steps"] if "uses" in step
    }
    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step)
        if "uses" in step:
            assert step["uses"] in known  # of the versions that our own workflows run
        else:
            subprocess.run(["bash", "-n", "-c", step["run"]], check=True)
    assert set(re.findall(r"subdirectory=([\w/]+)", text)) == {"core"}
    assert (ROOT / "core" / "pyproject.toml").exists()
    (names,) = re.findall(r"from wirespeed import ([^;]+); print", text)
    for name in names.split(", "):
        assert hasattr(wirespeed, name), name
    (shown,) = re.findall(r"python -c \"(from wirespeed [^\"]+)\"", text)
    assert subprocess.run([sys.executable, "-c", shown]).returncode == 0
