"""What is shipped: the source distribution, the wheel made of it, and the door for `cimport`."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from fnmatch import fnmatch
from pathlib import Path

import pytest
import yaml
from lab import extension

import wirespeed
from wirespeed import Client, Stdio, core
from wirespeed.errors import UpgradeRefused

pytestmark = pytest.mark.own_environment

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "wirespeed"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DATA = ("py.typed", "page.jinja", "page.css", "page.js", "uPlot.*")
GENERATED = ("*.so", "*.c", "*.html", "*.egg-info", "__pycache__")
CORE = tomllib.loads((ROOT / "core" / "pyproject.toml").read_text())

ONE = "proxy.trace_context"  # a small compiled module of wirespeed

BACKEND = """
import importlib, sys, tomllib
system = tomllib.load(open("pyproject.toml", "rb"))["build-system"]
sys.path[:0] = system.get("backend-path", [])
backend = importlib.import_module(system["build-backend"])
print(backend.{hook}(sys.argv[1]))
"""


def run(*command: str | Path, cwd: Path, **env: str) -> str:
    """Standard output of a command that must succeed; its own words when it does not."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def build(hook: str, cwd: Path, out: Path, **env: str) -> Path:
    """Call the build backend as pip does, without the isolated environment."""
    out.mkdir()
    said = run(sys.executable, "-c", BACKEND.format(hook=hook), out, cwd=cwd, **env)
    return out / said.splitlines()[-1]


def is_core(name: str) -> bool:
    """Whether a file, by its path below src, belongs to wirespeed-core."""
    return any(fnmatch(name, f"wirespeed/{one}") for one in CORE["tool"]["wirespeed"]["files"])


def unpacked(archive: Path, folder: Path) -> Path:
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    (top,) = folder.iterdir()
    return top


def sources(*patterns: str) -> set[str]:
    """Files of the package in the tree, as paths below src."""
    found = {path for pattern in patterns for path in PACKAGE.rglob(pattern)}
    return {path.relative_to(ROOT / "src").as_posix() for path in found}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tree as in a checkout, without what was built in it."""
    tree = tmp_path_factory.mktemp("checkout") / "tree"
    tree.mkdir()
    for name in ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    for name in ("src", "tests", "core"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns(*GENERATED))
    # csrc is C by hand
    shutil.copytree(ROOT / "src" / "csrc", tree / "src" / "csrc", dirs_exist_ok=True)
    return tree


@pytest.fixture(scope="module")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution, unpacked."""
    tmp = tmp_path_factory.mktemp("sdist")
    return unpacked(build("build_sdist", checkout, tmp / "out"), tmp / "unpacked")


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel that the sdist gives. Of the compiled modules only one, to save time."""
    out = tmp_path_factory.mktemp("wheel") / "out"
    return zipfile.ZipFile(build("build_wheel", sdist, out, WIRESPEED_ONLY=f"wirespeed.{ONE}"))


@pytest.fixture(scope="module")
def core_sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    tmp = tmp_path_factory.mktemp("core-sdist")
    return unpacked(build("build_sdist", checkout / "core", tmp / "out"), tmp / "unpacked")


@pytest.fixture(scope="module")
def core_wheel(core_sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    tmp = tmp_path_factory.mktemp("core-wheel")
    tree = shutil.copytree(core_sdist, tmp / "tree")
    only = {"WIRESPEED_ONLY": "wirespeed._core._simd"}
    return zipfile.ZipFile(build("build_wheel", tree, tmp / "out", **only))


def files_of(wheel: zipfile.ZipFile) -> tuple[set[str], list[str]]:
    """The files of a wheel, and the names of its compiled modules."""
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    compiled = {name for name in shipped if name.endswith(".so")}
    return shipped - compiled, [name.split(".")[0] for name in compiled]


def metadata_of(wheel: zipfile.ZipFile) -> Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_the_sdist_holds_every_source_and_nothing_generated(sdist: Path) -> None:
    shipped = {path.relative_to(sdist).as_posix() for path in sdist.rglob("*") if path.is_file()}
    wanted = {f"src/{name}" for name in sources("*.py", "*.pyx", "*.pxd", "*.pyi", *DATA)}
    wanted |= {f"src/csrc/{path.name}" for path in (ROOT / "src" / "csrc").iterdir()}
    wanted |= {"pyproject.toml", "setup.py", "README.md", "LICENSE", "tests/conftest.py"}
    assert wanted - shipped == set()
    assert {name for name in shipped if name.endswith((".so", ".pyc", ".o", ".html"))} == set()
    assert {name for name in shipped if name.startswith("src/wirespeed/")} == {
        name for name in wanted if name.startswith("src/wirespeed/")
    }


def test_the_wheels_hold_what_users_and_cython_need_and_no_more(
    wheel: zipfile.ZipFile, core_wheel: zipfile.ZipFile
) -> None:
    """No file is in both."""
    core, compiled = files_of(core_wheel)
    wanted = sources("*.py", "*.pxd", "*.pyi", *DATA)
    assert core == {name for name in wanted if is_core(name)} | {"wirespeed/include/scan.h"}
    assert compiled == ["wirespeed/_core/_simd"]
    rest, compiled = files_of(wheel)
    assert rest == {name for name in wanted if not is_core(name)}
    assert compiled == [f"wirespeed/{ONE}".replace(".", "/")]


def test_the_sdist_of_the_core_holds_its_sources_alone(core_sdist: Path) -> None:
    found = {
        one.relative_to(core_sdist).as_posix() for one in core_sdist.rglob("*") if one.is_file()
    }
    source = {name for name in found if name.startswith("src/wirespeed/")}
    every = sources("*.py", "*.pyx", "*.pxd", "*.pyi", "py.typed")
    assert source == {f"src/{name}" for name in every if is_core(name)}
    assert {"pyproject.toml", "setup.py", "backend.py", "LICENSE", "src/csrc/scan.h"} < found
    assert {name for name in found if name.endswith((".so", ".pyc", ".o", ".html"))} == set()


def test_the_metadata_of_the_core(core_wheel: zipfile.ZipFile) -> None:
    metadata = metadata_of(core_wheel)
    assert metadata["Name"] == "wirespeed-core"
    assert metadata["Version"] == wirespeed.__version__
    assert metadata["License-Expression"] == "MIT"
    assert metadata.get_all("Requires-Dist") is None
    both = ("requires-python", "license")
    assert [CORE["project"][key] for key in both] == [PYPROJECT["project"][key] for key in both]
    assert CORE["build-system"]["requires"] == PYPROJECT["build-system"]["requires"]
    ours = {one for one in PYPROJECT["project"]["classifiers"] if "Python ::" in one}
    assert ours == {one for one in CORE["project"]["classifiers"] if "Python ::" in one}
    for key in ("build", "skip", "archs", "macos"):
        assert CORE["tool"]["cibuildwheel"][key] == PYPROJECT["tool"]["cibuildwheel"][key]


def required_core(tree: Path, hook: str, out: Path) -> str:
    """What the metadata of a source tree requires as the core."""
    folder = build(f"prepare_metadata_for_{hook}", tree, out)
    metadata = Parser().parsestr((folder / "METADATA").read_text())
    (found,) = (one for one in metadata.get_all("Requires-Dist", []) if "wirespeed-core" in one)
    return str(found)


def test_a_checkout_has_its_core_beside_it(
    checkout: Path, sdist: Path, wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    """pip looks for the core there; what is built requires it by its version."""
    core = (checkout / "core").as_uri()
    found = required_core(checkout, "build_wheel", tmp_path / "1")
    assert found == f"wirespeed-core @ {core}"
    found = required_core(checkout, "build_editable", tmp_path / "2")
    assert found == f"wirespeed-core @ {core}/editable"
    by_version = f"wirespeed-core=={wirespeed.__version__}"
    assert required_core(sdist, "build_wheel", tmp_path / "3") == by_version
    assert by_version in metadata_of(wheel).get_all("Requires-Dist", [])
    assert PYPROJECT["tool"]["uv"]["sources"] == {"wirespeed-core": {"path": "core"}}


def test_an_editable_core_is_a_line_that_names_the_sources(checkout: Path, tmp_path: Path) -> None:
    made = zipfile.ZipFile(build("build_wheel", checkout / "core" / "editable", tmp_path / "out"))
    assert files_of(made)[0] == {"wirespeed-core.pth"}
    assert made.read("wirespeed-core.pth").decode() == f"{checkout / 'src'}\n"
    assert metadata_of(made)["Version"] == wirespeed.__version__


def test_compiled_modules_that_python_imports_have_a_stub_and_no_others() -> None:
    """A stub imports others, such as that of a base class."""
    compiled = {name.removesuffix(".pyx").replace("/", ".") for name in sources("*.pyx")}
    stubs = {name.removesuffix(".pyi").replace("/", ".") for name in sources("*.pyi")} & compiled
    imported = set()
    for name in sources("*.py", "*.pyi"):
        for node in ast.walk(ast.parse((ROOT / "src" / name).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                imported |= {node.module, *(f"{node.module}.{one.name}" for one in node.names)}
            elif isinstance(node, ast.Import):
                imported |= {one.name for one in node.names}
    assert stubs == compiled & imported


def test_stubtest_looks_at_every_compiled_module() -> None:
    lines = (ROOT / "tests" / "typing" / "stubtest_allowlist.txt").read_text().splitlines()
    allowed = [re.compile(line) for line in lines if line and not line.startswith("#")]
    for name in sources("*.pyx"):
        module = name.removesuffix(".pyx").replace("/", ".")
        assert not any(entry.fullmatch(f"{module}.anything") for entry in allowed), module


def test_every_package_folder_can_be_cimported_from() -> None:
    folders = {str(Path(name).parent) for name in sources("*.pxd")}
    assert folders - {str(Path(name).parent) for name in sources("__init__.pxd")} == set()


def test_the_metadata(wheel: zipfile.ZipFile) -> None:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = metadata_of(wheel)
    assert metadata["Name"] == "wirespeed"
    assert metadata["Version"] == wirespeed.__version__ == PYPROJECT["project"]["version"]
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    folder = name.removesuffix("METADATA")
    assert "wirespeed contributors" in wheel.read(f"{folder}licenses/LICENSE").decode()
    assert b"wirespeed = wirespeed.cli.main:main" in wheel.read(f"{folder}entry_points.txt")


def test_windows_is_refused_in_plain_words() -> None:
    code = "import runpy, sys; sys.platform = 'win32'; runpy.run_path('setup.py')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "wirespeed does not support Windows yet: it needs Linux or macOS (WSL works)."
    ]


@pytest.mark.parametrize(
    ("compiler", "why"),
    [
        ("/nonexistent/cc", "/nonexistent/cc: No such file or directory"),
        ("sh -c 'echo x.c:1: fatal error: Python.h is missing >&2; false'", "Python.h is missing"),
    ],
)
@pytest.mark.parametrize("hook", ["build_wheel", "build_editable", None])
def test_a_missing_compiler_is_one_sentence(
    compiler: str, why: str, hook: str | None, tmp_path: Path
) -> None:
    """It is the last line of pip's report, and the only one of ours."""
    command = ["setup.py", "build_ext"]
    if hook is not None:
        command = ["-c", BACKEND.format(hook=hook), str(tmp_path)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"CC": compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("wirespeed is compiled while it is installed and needs a C compiler")
    assert why in line
    assert "apt install gcc python3-dev" in line


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("WIRESPEED_BUILD", "fast", "is not one of release, debug, trace, asan"),
        ("WIRESPEED_ONLY", "wirespeed.nothing", "names no module of this package"),
    ],
)
def test_a_build_setting_that_does_not_exist_is_refused(
    variable: str, value: str, message: str
) -> None:
    done = subprocess.run(
        [sys.executable, "setup.py", "--version"],
        cwd=ROOT,
        env=os.environ | {variable: value},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]


READER = """
from libc.math cimport INFINITY

from wirespeed.core cimport (
    REQUEST, WS_METHOD, Message, MessageReader, MessageStream, Outbox, Session, Span, kernels,
    span_byte, span_of
)


def method_of(Message message not None):
    # The raw method of a request, read through the C structs; None of anything else.
    cdef Span s
    if message.kind_c != REQUEST:
        return None
    s = span_of(message, WS_METHOD)
    assert span_byte(s, s.n) == -1
    return s.p[:s.n]


def newline_in(bytes data not None):
    # The offset of the first newline, by the kernel of this machine.
    return kernels.find_newline(data, len(data))


def requests_in(data):
    cdef MessageReader reader = MessageReader()
    cdef Message m
    cdef int n = 0
    reader.receive_data(data)
    while True:
        m = reader.next_c()
        if m is None:
            return n
        n += m.kind_c == REQUEST


def passed_on(data):
    # The requests of a stream of messages, as a client asks them under their own ids.
    cdef MessageStream stream = MessageStream()
    cdef Session session = Session(role="client")
    cdef Message m
    cdef Outbox out
    cdef Span method
    stream.receive_data(data)
    while True:
        m = stream.next_c()
        if m is None:
            return b"".join(session.data_to_send())
        out = session.open_request_c(session.reserve_c(m, INFINITY, m.raw_id))
        out.text_c(b'"method":')
        method = span_of(m, WS_METHOD)
        out.refer_c(m.slab, method.p, method.n)
        session.close_request_c()
"""
USE = r"""
import asyncio, socket
import echo, events, reader
from wirespeed.core import Session, parse
from wirespeed.transport import FdLink

request = parse(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}')
answer = parse(b'{"jsonrpc":"2.0","id":1,"result":{}}')
print(reader.method_of(request), reader.method_of(answer), reader.newline_in(b"ab\ncd"))
print(reader.requests_in(b'{"jsonrpc":"2.0","id":1,"method":"a"}\n{"jsonrpc":"2.0","method":"b"}\n'))
print(reader.passed_on(b'{"jsonrpc":"2.0","id":"7","method":"a"}\n'))
session, route = Session(), events.Events()
session.receive_message(b'{"jsonrpc":"2.0","id":1,"method":"a"}', route)
for message in session:
    session.send_notification("n", about=message)
    print(route.done, session.send_result(message, (b"{", b"}")))
print(route.done, route.take(), session.data_to_send())


async def main():
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    loop = asyncio.get_running_loop()
    link = FdLink(loop, echo.Echo(), theirs.fileno(), theirs.fileno())
    link.start()
    for n in (1, 2):
        text = b'{"jsonrpc":"2.0","id":%d,"method":"x","params":{"n":[%d]}}' % (n, n)
        await loop.sock_sendall(ours, len(text).to_bytes(2, "big") + text)
        print(await loop.sock_recv(ours, 1000))
    link.close()


asyncio.run(main())
"""
SAID = r"""b'"tools/call"' None 2
1
b'{"jsonrpc":"2.0","id":"7","method":"a"}\n'
False True
True b'data: {"jsonrpc":"2.0","method":"n"}\n\ndata: {"jsonrpc":"2.0","id":1,"result":{}}\n\n' []
b'\x00+{"jsonrpc":"2.0","id":1,"result":{"n":[1]}}'
b'\x00+{"jsonrpc":"2.0","id":2,"result":{"n":[2]}}'
"""


def example(title: str) -> str:
    """A block of the pages about the core."""
    pages = "".join((ROOT / "docs/how-to" / name).read_text() for name in ("sdk.md", "framing.md"))
    (block,) = re.findall(rf'^```\w+ title="{title}"\n(.*?)^```$', pages, re.MULTILINE | re.DOTALL)
    return str(block)


def test_another_project_can_cimport_the_core(tmp_path: Path) -> None:
    """By public names alone: messages, streams of them, ids that the caller chose, kernels, and the
    page's framing, endpoint and reply route."""
    extension.build(tmp_path, "reader", READER)
    extension.build(tmp_path, "events", example("events.pyx"))
    (tmp_path / "echo.pyx").write_text(example("echo.pyx"))
    (tmp_path / "setup.py").write_text(example("setup.py"))
    run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=tmp_path, CFLAGS="-O0")
    (tmp_path / "use.py").write_text(USE)
    assert run(sys.executable, "use.py", cwd=tmp_path) == SAID


def test_an_extension_for_another_abi_is_refused(tmp_path: Path) -> None:
    """It was compiled beside declarations with another number."""
    for name in sources("*.pxd"):
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / "src" / name).read_text()
        target.write_text(text.replace("WIRESPEED_ABI = ", "WIRESPEED_ABI = 99"))
    extension.build(tmp_path, "echo", example("echo.pyx"))
    shutil.rmtree(tmp_path / "wirespeed")
    with pytest.raises(ImportError) as caught:
        extension.load(tmp_path, "echo")
    assert str(caught.value) == (
        f"this extension was compiled for ABI 99{core.ABI} of wirespeed, and the"
        f" installed wirespeed has ABI {core.ABI}: compile the extension again"
    )


BARE = '''
from wirespeed import Context, Server

server = Server("bare")

@server.tool
async def add(a: int, b: int, ctx: Context) -> int:
    """Add two numbers."""
    ctx.info("adding")
    return a + b

if __name__ == "__main__":
    server.run()
'''


class Environment:
    """A virtual environment that has the package and some of what it depends on."""

    def __init__(self, folder: Path, *packages: str) -> None:
        venv.create(folder, with_pip=False)
        self.python = folder / "bin" / "python"
        (site,) = folder.glob("lib/python*/site-packages")
        for name in ("wirespeed", *packages):
            spec = importlib.util.find_spec(name)
            assert spec is not None
            assert spec.submodule_search_locations is not None
            (site / name).symlink_to(spec.submodule_search_locations[0])

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )


async def test_a_server_on_stdio_needs_msgspec_alone(tmp_path: Path) -> None:
    file = tmp_path / "bare.py"
    file.write_text(BARE)
    bare = Environment(tmp_path / "venv", "msgspec")
    assert "click" not in bare.run("-m", "site").stdout
    async with Client(Stdio(bare.python, [file])) as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        assert result.structured_content == {"result": 3}
    done = bare.run("-c", "import wirespeed; wirespeed.Client, wirespeed.SyncClient")
    assert (done.returncode, done.stderr) == (0, "")
    done = bare.run("-m", "wirespeed", "serve", file)
    text = "wirespeed: this needs the package click: pip install 'wirespeed[cli]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", text)


async def test_serve_needs_no_rich(tmp_path: Path) -> None:
    file = tmp_path / "bare.py"
    file.write_text(BARE)
    bare = Environment(tmp_path / "venv", "msgspec", "click")
    serve = ["-m", "wirespeed", "serve", file]
    async with Client(Stdio(bare.python, serve)) as client:
        assert [tool.name for tool in await client.list_tools()] == ["add"]
    done = bare.run(*serve, "--on", "ws://127.0.0.1:0/")
    text = "wirespeed: this needs the package websockets: pip install websockets\n"
    assert (done.returncode, done.stdout, done.stderr) == (3, "", text)
    done = bare.run("-m", "wirespeed", "list", file)
    assert (done.returncode, done.stdout) == (3, "")
    text = "wirespeed: this needs the package rich: pip install 'wirespeed[cli]'\n"
    assert done.stderr.endswith(text)


async def test_a_port_of_http_without_websockets_answers_an_upgrade(tmp_path: Path) -> None:
    file = tmp_path / "bare.py"
    file.write_text(BARE.replace("server.run()", 'server.run("http://127.0.0.1:0/mcp")'))
    bare = Environment(tmp_path / "venv", "msgspec")
    server = subprocess.Popen(
        [bare.python, file], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert server.stderr is not None
    try:
        line = server.stderr.readline()
        (url,) = re.findall(r"http://\S+/mcp", line)
        with pytest.raises(UpgradeRefused) as caught:
            async with Client(url.replace("http:", "ws:")):
                pass
        assert caught.value.status == 501
        words = "this server has no WebSocket: its package websockets is not installed"
        assert caught.value.reason == words
        async with Client(url) as client:  # others are served
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    finally:
        server.terminate()
        _, rest = server.communicate()
    assert "Traceback" not in rest
    assert f"501 {words}" in rest


def test_wheels_are_built_for_the_pythons_of_the_classifiers() -> None:
    pattern = re.compile(r"Programming Language :: Python :: 3\.(\d+)")
    minors = [m[1] for one in PYPROJECT["project"]["classifiers"] if (m := pattern.fullmatch(one))]
    assert PYPROJECT["project"]["requires-python"] == f">=3.{minors[0]}"
    assert PYPROJECT["tool"]["cibuildwheel"]["build"].split() == [f"cp3{n}-*" for n in minors]


def test_the_extra_all_has_every_extra_for_users() -> None:
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert extras["all"] == [
        "wirespeed[cli,proxy,validate,bench,prometheus,otel,auth,keyring,cluster,dns,skills,images]"
    ]
    assert set(extras) == {
        *("cli", "proxy", "validate", "bench", "prometheus", "otel", "auth", "keyring", "skills"),
        *("cluster", "dns", "images"),
        *("mcp", "mcp1", "fastmcp"),  # SDKs of others, which bring their own packages
        *("all", "test", "lint", "docs"),
    }


def test_a_server_is_installed_without_the_packages_of_the_command_line() -> None:
    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"\W", one)[0] for one in requirements}

    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    core, *others = project["dependencies"]
    assert core == f"wirespeed-core=={project['version']}"
    assert names(others) == {"msgspec", "orjson", "uvloop", "websockets"}
    assert names(extras["cli"]) == {"click", "rich", "jinja2", "hdrhistogram"}
    assert set(extras["proxy"]) < set(extras["cli"])
    assert set(extras["cli"]) < set(extras["test"])


def test_every_place_names_the_same_linters() -> None:
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repo in config["repos"] for hook in repo["hooks"]]
    pinned = {one for hook in hooks for one in hook.get("additional_dependencies", ())}
    assert {one.partition("=")[0] for one in pinned} == {"ruff", "cython-lint"}
    extras = PYPROJECT["project"]["optional-dependencies"]
    assert pinned <= set(extras["lint"])
    assert pinned & set(extras["docs"]) == {one for one in pinned if one.startswith("ruff")}
    (pyright,) = re.findall(r"local version=([\d.]+)", (ROOT / ".ci" / "run").read_text())
    for name in ("Makefile", "CONTRIBUTING.md"):
        assert re.findall(r"pyright@([\d.]+)", (ROOT / name).read_text()) == [pyright], name
