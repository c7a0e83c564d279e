"""The order of the rooms, as data, and the check of every source by it.

A room is a folder or a module. It imports, and cimports, itself and rooms before it, nothing else.
Imports inside functions count; imports under ``if TYPE_CHECKING:`` do not. No imports form a cycle.
A reader follows those under ``if TYPE_CHECKING:``, too: how many of them point up, and how many
modules form a circle by them, may only fall.
"""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

from lab.rows import every

import wirespeed

# The checkout: an installed package has no .pyx.
ROOT = Path(__file__).resolve().parents[2] / "src" / "wirespeed"
CORE = ROOT / "_core"

# Names below `wirespeed`, in order. Rooms on one line do not import each other.
ROOMS = """
_exports
errors limits contents single_use
protocol
_core
core
schema
transport
database
peer merging tool_search
tasks
cluster
skills
auth
server client
config
litemcp
proxy
adapters
types middleware
ext
bench
cli demo
__main__
"""

# The order inside a room, where it has an order of its own.
INSIDE = {
    "adapters": """
        descriptors seams
        programs streams
        mcp mcp1
        fastmcp
        site
    """,
    "_core": """
        _simd span spares
        json_text slab
        outbox
        framing.base framing.rfc6455 framing.http.rfc9112
        reply_route
        framing.http.head framing.http.chunks
        framing.http.writer
        framing.line framing.websocket framing.http.framer
        wire
        envelope
        splice
        pending
        inflight
        reader
        streams responder
        session
    """,
    "bench": """
        recorder arguments load faults tap_file expect command_line
        work
        script
        driver target plan tap recorded_calls
        series machine report tap_net
        merge
        compare tap_http
        page
        session_driver lite_driver users
        client
        lite
        run
        replay
    """,
    "transport": """
        backoff rate_limited_log token_buckets wire_trace schemes headers
        signals link address _task_api
        http.server_card
        http.options
        options
        loop fd memory
        taskpool
        service
        access_log
        pooled_tasks
        taskpool_choice
        gate
        http
        websocket
        net
        http.pool
        child
        stdio
    """,
    "peer": """
        error_data http.headers
        connection
        http
        service
    """,
    "auth": """
        access_token jose
        fetch
        dpop metadata
        verifiers
        resource_server client
    """,
    "cluster": """
        clients
        store
        owners
        events nonces rates quotas places tasks task_makers changes
        presence
        records
        sessions
    """,
    "skills": """
        model
        approvals frontmatter folder
        skill
    """,
    "server": """
        requests
        discovery
        catalog
        permissions
        dependencies.scope watchdog
        lifespan
        asking
        subscriptions
        extensions
        tasks
        tools
        dependencies
        completion
        prompts
        resources
        feature_catalogs
        skills
        session_state
        methods
        connection
        middleware
        mounting
        shared_stores
        service
        context digests
        tool_search
        server
    """,
    "config": """
        shapes
        text servers
        entry
        document
        merged_lists
        clients
    """,
    "client": """
        timeouts callback_queue loop_thread
        targets results
        output_checks
        connection.connection
        answering http
        connection
        requests
        answering.options extensions
        cache
        digests subscriptions
        feature_requests
        tasks skills
        client
        sync
    """,
    "litemcp": """
        messages envelope
        contents tool
        call
        connection endpoint
        server
        client_connection
        client
        bridge
    """,
    "proxy": """
        config_types
        hook_config name_config
        backend_config
        config
        flow.host_table
        flow.places
        hosts.membership
        own_requests trace_context flow.turns flow.counted breakdown
        hosts.client_state
        affinity
        side
        binding
        flow
        upstream_side downstream_side
        upstream
        downstream
        meta_tools hooks
        list_cache
        supervision
        operation.meter
        identity
        isolation
        names
        access
        translation
        merge
        operation
        hosts
        service_life
        lite
        service mirror file_keys
        file
        reload
        listening
        proxy
    """,
}

# The rooms that must work without an event loop.
WITHOUT_A_LOOP = {"errors", "limits", "protocol", "_core", "core"}
# What `_core` and `protocol` may not touch: input, output, clocks, threads, loops.
FORBIDDEN = {
    "asyncio", "socket", "threading", "_thread", "time", "select", "selectors", "subprocess",
    "signal", "ssl", "uvloop", "multiprocessing", "concurrent", "datetime", "logging", "io",
}  # fmt: skip
# What `_core` may use besides itself.
OUTSIDE = {"cython", "cpython", "libc", "collections", "json", "os", "typing"}

IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+c?import[ \t]+(\([^)]*\)|[^\n#]+)|c?import[ \t]+([\w.]+))",
    re.MULTILINE,
)
SUFFIXES = {".py", ".pyx", ".pxd"}
MAX_PYX_LINES = 600
MAX_CLASS_LINES = 1000  # of a .pyx that is one class, with small ones beside it
MAX_BESIDE_CLASS = 200
# Of imports under ``if TYPE_CHECKING:``. Lower the number when a change has made it smaller.
MAX_TYPES_UP = 7
MAX_CIRCLE = 7
MAX_SOURCES = 30  # of one folder; the parts of one compiled module count as one


def module_name(path: Path) -> str:
    """The dotted name below `wirespeed`; that of the package for an ``__init__``."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources() -> dict[str, list[Path]]:
    """The sources of each module, by its name below `wirespeed`."""
    found: dict[str, list[Path]] = {}
    for path in sorted(ROOT.rglob("*.p*")):
        if path.suffix in SUFFIXES:
            found.setdefault(module_name(path), []).append(path)
    return found


SOURCES = sources()


def statements(tree: ast.AST, types: bool) -> Iterator[ast.Import | ast.ImportFrom]:
    """The import statements of a tree. ``types``: Also those under ``if TYPE_CHECKING:``."""
    for node in ast.iter_child_nodes(tree):
        unread = isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        if isinstance(node, ast.If) and unread and not types:
            for child in node.orelse:
                yield from statements(ast.Module([child], []), types)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        else:
            yield from statements(node, types)


def imports(path: Path, types: bool = False) -> Iterator[tuple[str, list[str]]]:
    """Each import of a source: the module, and the names taken from it. ``types``: Also those under
    ``if TYPE_CHECKING:``."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in statements(ast.parse(text), types):
            if isinstance(node, ast.Import):
                yield from ((alias.name, []) for alias in node.names)
            else:
                assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
                yield node.module or "", [alias.name for alias in node.names]
    else:
        for module, names, whole in IMPORT.findall(text):
            split = re.split(r"[\s,]+", names.strip("() \n"))
            yield (whole, []) if whole else (module, split)


def used_by(module: str, types: bool = False) -> set[str]:
    """The modules of `wirespeed`, by their names below it, that a module imports. ``types``: Also
    those under ``if TYPE_CHECKING:``."""
    used = set()
    for path in SOURCES[module]:
        for name, taken in imports(path, types):
            if name != "wirespeed" and not name.startswith("wirespeed."):
                continue
            below = name.removeprefix("wirespeed").removeprefix(".")
            for one in taken or [""]:
                full = f"{below}.{one}".strip(".")
                used.add(full if full in SOURCES else below)
    # The package itself and its table of names load nothing: they may be read from everywhere.
    return used - {module, "", "_exports"}


def place_of(module: str, order: str) -> tuple[int, str] | None:
    """The line of an order on which a module stands, and the room that it belongs to: the one with
    the longest name."""
    found = None
    for number, line in enumerate(order.split("\n")):
        for room in line.split():
            inside = module == room or module.startswith(room + ".")
            if inside and (found is None or len(room) > len(found[1])):
                found = number, room
    return found


def points_down(module: str, used: str, order: str, inside: str = "") -> bool:
    """Whether a module may import another one: that is of its own room, or of a room on an earlier
    line of an order."""
    below = f"{inside}." if inside else ""
    one = place_of(module.removeprefix(below), order)
    other = place_of(used.removeprefix(below), order)
    assert one is not None, f"{module} has no place in the order"
    assert other is not None, f"{used} has no place in the order"
    return other[1] == one[1] or other[0] < one[0]


def is_in_order(module: str, used: str) -> bool:
    """Whether an import points down in the order of the rooms, and inside of a room in its own."""
    return points_down(module, used, ROOMS) and all(
        points_down(module, used, order, room)
        for room, order in INSIDE.items()
        if module.startswith(room + ".") and used.startswith(room + ".")
    )


@every("module", sorted(SOURCES))
def test_imports_point_one_way(module: str) -> None:
    used = used_by(module)
    assert module or not used, f"the package itself imports {used}"
    assert not {name for name in used if not is_in_order(module, name)}


def test_types_that_point_up_become_fewer() -> None:
    up = [
        f"{module} -> {used}"
        for module in SOURCES
        if module
        for used in sorted(used_by(module, types=True))
        if not is_in_order(module, used)
    ]
    assert len(up) == MAX_TYPES_UP, "\n".join(up)


def test_circles_of_types_become_smaller() -> None:
    """A circle: modules each of which leads to each other one."""
    graph = {module: used_by(module, types=True) for module in SOURCES}
    reached = {}
    for module in graph:
        found, waiting = set[str](), [module]
        while waiting:
            new = graph[waiting.pop()] - found
            found |= new
            waiting += new
        reached[module] = found
    circles = {
        frozenset(name for name in found if module in reached[name])
        for module, found in reached.items()
        if module in found
    }
    assert max(map(len, circles)) == MAX_CIRCLE, sorted(max(circles, key=len))


def test_every_module_has_its_place() -> None:
    for module in SOURCES:
        if module:
            assert place_of(module, ROOMS) is not None, module
        for room, order in INSIDE.items():
            if module.startswith(room + "."):
                below = module.removeprefix(room + ".")
                package = any(name.startswith(module + ".") for name in SOURCES)
                assert package or place_of(below, order) is not None, module


def test_no_imports_form_a_cycle() -> None:
    graph = {module: used_by(module) for module in SOURCES}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join([*path[path.index(module) :], module])
        if module not in done:
            for used in sorted(graph[module]):
                visit(used, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


@every("path", sorted(ROOT.rglob("*/__init__.py")), ids=module_name)
def test_folders_import_nothing(path: Path) -> None:
    """What an ``__init__.pxd`` names is loaded by who cimports it."""
    used = {name for name, _ in imports(path) if name.partition(".")[0] == "wirespeed"}
    assert used <= {"wirespeed", "wirespeed._exports"}


def longest_class(text: str) -> int:
    """The lines of the longest compiled class of a source."""
    return max(len(part.splitlines()) for part in text.split("\ncdef class ")[1:])


def test_sizes_of_files_and_folders() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in ROOT.rglob("*.pyx")
        if (lines := len((text := path.read_text()).splitlines())) > MAX_PYX_LINES
        if lines > MAX_CLASS_LINES or lines - longest_class(text) > MAX_BESIDE_CLASS
    }
    assert not long
    folders: dict[str, set[str]] = {}
    for module, paths in SOURCES.items():
        folders.setdefault(str(paths[0].parent.relative_to(ROOT)), set()).add(module)
    assert not {name: len(found) for name, found in folders.items() if len(found) > MAX_SOURCES}


def test_no_two_modules_differ_by_an_s() -> None:
    """Of one folder: nobody guesses which of the two holds what."""
    for module in SOURCES:
        assert f"{module}s" not in SOURCES, f"{module} and {module}s"


def test_compiled_folders_can_be_cimported() -> None:
    for path in ROOT.rglob("*.pxd"):
        folder = path.parent
        while folder != ROOT.parent:
            assert (folder / "__init__.pxd").exists(), folder
            folder = folder.parent


@every("module", sorted(SOURCES))
def test_no_input_output_no_clock(module: str) -> None:
    room = module.partition(".")[0]
    if room not in WITHOUT_A_LOOP:
        return
    for path in SOURCES[module]:
        found = {name.partition(".")[0] for name, _ in imports(path)} - {"wirespeed"}
        assert not found & (FORBIDDEN if room in ("_core", "core") else {"asyncio", "uvloop"})
        if room == "_core":
            assert found <= OUTSIDE
            # nor through libc: descriptors, sockets, clocks and threads
            libc = {name for name, _ in imports(path) if name.startswith(("libc", "posix"))}
            assert libc <= {"libc.stdint", "libc.string", "libc.math", "libc.stdlib"}
            # struct iovec is in sys/uio.h, memmem in string.h; bigmem.h is our own
            headers = set(re.findall(r'extern from "<?([^">]+)', path.read_text()))
            assert headers <= {"scan.h", "bigmem.h", "sys/uio.h", "string.h"}


def in_core(path: Path) -> bool:
    """Whether a source belongs to the distribution wirespeed-core."""
    text = (ROOT.parents[1] / "core" / "pyproject.toml").read_text(encoding="utf-8")
    name = path.relative_to(ROOT).as_posix()
    return any(fnmatch(name, one) for one in tomllib.loads(text)["tool"]["wirespeed"]["files"])


def test_the_core_stands_alone() -> None:
    """wirespeed-core has what it imports, and imports no package of others."""
    core = {module for module, paths in SOURCES.items() if any(map(in_core, paths))}
    assert {"", "core", "_core.session", "transport", "transport.link"} <= core
    for module in core:
        assert all(map(in_core, SOURCES[module])), f"{module} belongs to two distributions"
        assert used_by(module) <= core, module
        for path in SOURCES[module]:
            names = {name.partition(".")[0] for name, _ in imports(path)}
            names -= {"wirespeed", "cython", "cpython", "libc", "posix", ""}
            assert names <= sys.stdlib_module_names, path


def loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(wirespeed.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_the_core_loads_no_event_loop() -> None:
    extra = loaded_by("import wirespeed.core") - loaded_by("import os, typing, collections")
    assert "wirespeed._core.session" in extra
    assert not {module.partition(".")[0] for module in extra} & (FORBIDDEN - {"io"})


def strangers(modules: set[str]) -> set[str]:
    """What is neither of wirespeed nor of Cython."""
    return {name for name in modules if not name.startswith(("wirespeed", "_cython", "cython"))}


def loaded_from(modules: set[str], *rooms: str) -> set[str]:
    ours = {name.removeprefix("wirespeed.") for name in modules}
    return {name for name in ours for room in rooms if f"{name}.".startswith(f"{room}.")}


def test_a_server_loads_what_it_starts_with() -> None:
    """`benchmarks/bench_footprint.py` measures the import. Each of these modules has its use."""
    extra = loaded_by("from wirespeed import Server; Server('s')")
    extra -= loaded_by("import asyncio, msgspec")
    assert strangers(extra) <= {"concurrent.futures.thread", "queue", "_queue", "annotationlib"}
    assert "wirespeed.server.connection" in extra
    assert not loaded_from(extra, "client", "config", "core", "litemcp", "ext", "cli", "tasks")
    assert not loaded_from(extra, "cluster", "server.dependencies", "server.lifespan")
    assert not loaded_from(extra, "server.mounting", "transport.fd", "transport.net")


STDIO_SERVER = """
import sys
import asyncio, msgspec, uvloop
before = set(sys.modules)
from wirespeed import Server
server = Server("s")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

server.run()
print(*sorted(set(sys.modules) - before), file=sys.stderr)
"""


def test_a_stdio_server_answers_without_sockets_and_clients() -> None:
    client = {"name": "probe", "version": "1"}
    handshake = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    requests = [
        ("initialize", handshake),
        ("tools/list", {}),
        ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ]
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        for number, (method, params) in enumerate(requests)
    ]
    done = subprocess.run(
        [sys.executable, "-c", STDIO_SERVER],
        env={**os.environ, "PYTHONPATH": str(Path(wirespeed.__file__).parents[1])},
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert sorted(answer["id"] for answer in answers) == [0, 1, 2]
    assert all("result" in answer for answer in answers)
    extra = set(done.stderr.split())
    assert "wirespeed.transport.stdio" in extra
    assert strangers(extra) <= {"annotationlib"}
    assert not loaded_from(extra, "client", "transport.net", "transport.child", "tasks")
    assert not loaded_from(extra, "server.prompts", "server.resources.resource")


def test_contributors_learn_which_tests_each_room_has() -> None:
    top = ROOT.parents[1]
    table = (top / "CONTRIBUTING.md").read_text().partition("**Which tests.**")[2].split("\n\n")[1]
    lines = [line.split("|")[1:4] for line in table.splitlines()[2:]]
    named = {name for rooms, *_ in lines for name in re.findall(r"`([\w/]+)`", rooms)}
    small = {
        "_exports",
        "types",
        "middleware",
        "errors",
        "limits",
        "contents",
        "single_use",
        "__main__",
    }
    assert {name for name in ROOMS.split() if name not in small} <= named
    for path in re.findall(r"(?:tests|benchmarks)/[\w./]*", table):
        assert (top / path).exists(), path
