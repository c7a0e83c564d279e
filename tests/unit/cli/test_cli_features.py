"""``list``, ``inspect``, ``read``, ``prompt``, ``complete``, ``subscribe`` and ``tasks``."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.cli import error_of, listening, on_terminal, one_line, start
from lab.cli import forked as wirespeed
from lab.rows import every
from lab.wording import raises

from wirespeed.cli.failures import Failure
from wirespeed.cli.features import details
from wirespeed.cli.features.arguments import choices_of, encode_words, read_words, strings_of
from wirespeed.types import ToolInfo

FILE = '''
import asyncio
from typing import Annotated, Literal
import msgspec
from wirespeed import Context, Server
from wirespeed.types import Audio, Image

server = Server("features", "2.0")
texts = {"1": "Buy tea."}

class Hue(msgspec.Struct):
    """A colour."""
    angle: Annotated[int, msgspec.Meta(ge=0, le=360, description="In degrees.")] = 0
    names: list[str] = []

@server.tool(title="Paint", annotations={"readOnlyHint": False, "idempotentHint": True})
async def paint(
    hue: Hue,
    word: Annotated[str, msgspec.Meta(min_length=2, max_length=40)],
    mode: Literal["a", "b"] = "a",
    tags: list[str] = [],
    count: int = 1,
) -> Hue:
    """Paint a word.

    Every letter gets the colour.

    Args:
        hue: The colour.
        word: What to paint.
    """
    return hue

@server.tool
async def given(word: str = "", count: int = 0, tags: list[str] = [], on: bool = False) -> str:
    return repr((word, count, tags, on))

@server.tool
async def change(ctx: Context) -> str:
    """Change note 1, and the list of tools."""
    texts["1"] += " Now."
    server.resource_updated("note://1")
    return "changed"

@server.tool
async def picture():
    png = b"\\x89PNG\\r\\n\\x1a\\n1"
    return [Image(data=png, mime_type="image/png"), Audio(data=b"22", mime_type="audio/wav")]

@server.tool(task="required")
async def crawl(seconds: float = 0) -> str:
    """Crawl."""
    await asyncio.sleep(seconds)
    return "crawled"

server.add_resource("note://plain", "Plain.", title="Plain", mime_type="text/plain")
server.add_resource("note://bytes", b"\\x00\\xff", mime_type="image/x-odd")

@server.resource("note://{id}")
async def note(id: str) -> str:
    """One note."""
    return texts[id]

@server.prompt
def reply(name: str, tone: str = "kind") -> str:
    """Write a reply."""
    return f"A {tone} reply to {name}."

@server.completion(reply, "name")
async def names(value: str, context: dict[str, str]) -> list[str]:
    every = ("Ann", "Anton", "Bob")
    return [f"{one}{context.get('tone', '')}" for one in every if one.startswith(value)]
'''


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("features") / "features.py"
    path.write_text(FILE)
    with listening(str(path), "--on", "ws://127.0.0.1:0/mcp") as found:
        yield found


# -- list and inspect -----------------------------------------------------------------------------


def test_list_shows_every_kind(url: str) -> None:
    done = wirespeed("list", url)
    assert (done.returncode, done.stderr) == (0, "")
    heads = [line.split()[0] for line in done.stdout.splitlines() if line.endswith("description")]
    assert heads == ["tool", "resource", "template", "prompt"]
    assert "note://plain" in done.stdout
    assert "note://{id}" in done.stdout
    assert "tone?" in done.stdout
    assert "given" in done.stdout
    assert "—" in done.stdout  # a tool without a description
    listed = json.loads(wirespeed("list", url, "--json").stdout)
    assert list(listed) == ["tools", "resources", "resourceTemplates", "prompts"]
    done = wirespeed("list", url, "--prompts", "--json")
    assert list(json.loads(done.stdout)) == ["prompts"]


def test_inspect_shows_rules_fields_and_hints(url: str) -> None:
    done = wirespeed("inspect", url, "paint")
    assert done.returncode == 0
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert lines[0] == "tool paint"
    for line in (
        "Paint",
        "Every letter gets the colour.",
        "hue: Hue The colour.",
        "angle?: integer = 0 In degrees. (0 to 360)",
        "word: string What to paint. (2 to 40 characters)",
        'mode?: "a" | "b" = "a"',
        "returns object",
        "hints may change things, may be repeated",
    ):
        assert line in lines
    (tool,) = json.loads(wirespeed("inspect", url, "paint", "--json").stdout)["tools"]
    assert tool["annotations"]["idempotentHint"] is True
    assert "template note://{id}" in wirespeed("inspect", url, "note://{id}").stdout
    assert "name" in wirespeed("inspect", url, "reply").stdout


def test_long_is_the_whole_of_each(url: str) -> None:
    done = wirespeed("list", url, "--long", "--era", "legacy")
    heads = [line for line in done.stdout.splitlines() if line and not line.startswith(" ")]
    assert heads[0] == "tool paint"
    assert heads[-1] == "prompt reply"
    assert "resource note://plain" in heads
    assert "task" in done.stdout


def test_inspect_names_a_similar_one(url: str) -> None:
    done = wirespeed("inspect", url, "pait")
    assert done.returncode == 4
    assert one_line(done) == "the server has no tool, resource or prompt pait; did you mean paint?"
    done = wirespeed("inspect", url, "xyz", "--json")
    assert error_of(done)["type"] == "UnknownName"


def test_details_of_a_hostile_schema() -> None:
    loop = {"type": "object", "properties": {"next": {"$ref": "#/$defs/Loop"}}}
    schema = {
        "properties": {
            "a": {"$ref": "#/$defs/Loop"},
            "b": {"$ref": "#/$defs/Loop/properties/next"},
            "c": {"anyOf": [7, {"$ref": "elsewhere"}], "minimum": "x", "description": 3},
            "d": True,
            "e": {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 3},
            "f": {"pattern": "x" * 200, "exclusiveMinimum": 0},
        },
        "$defs": {"Loop": loop},
    }
    tool = ToolInfo("t", schema, annotations={"readOnlyHint": "yes"}, execution={"taskSupport": 1})
    rows = list(details.tool_rows(tool))
    assert [row.level for row in rows if row.name.startswith("next")] == [2, 2, 3]
    said = {row.name.partition("?")[0]: row.text for row in rows}
    assert said["e"] == "at most 3 items, each at least 1 character"
    assert said["f"].startswith("above 0, pattern xx")
    assert len(said["f"]) < 100


# -- arguments ------------------------------------------------------------------------------------


def test_arguments_as_words(url: str) -> None:
    words = ["word=3", "count=4", "tags=x", "tags=y", "on=true"]
    done = wirespeed("call", url, "given", *words)
    assert done.stdout == "('3', 4, ['x', 'y'], True)\n"
    done = wirespeed("call", url, "given", 'word:="a b"', "tags:=[]")
    assert done.stdout == "('a b', 0, [], False)\n"
    done = wirespeed("call", url, "given", "count=many")
    assert done.returncode == 1
    assert "count" in done.stderr  # the server says what it expects


SCHEMA = {
    "properties": {
        "i": {"type": "integer"},
        "s": {"type": "string"},
        "n": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "l": {"type": "array", "items": {"type": "number"}},
        "e": {"enum": [1, 2]},
        "o": {"$ref": "#/$defs/P"},
        "b": {"type": "boolean"},
        "any": {},
        "u": {"type": ["string", "integer"]},
        "f": {"oneOf": [{"const": "x"}, {"const": "y"}]},
    },
    "$defs": {"P": {"type": "object"}},
}


@every(
    ("words", "text"),
    [
        (["i=1", "s=1", "n=1.50", "b=false"], '{"i":1,"s":"1","n":1.50,"b":false}'),
        (["i=1.0", "e=2", 'o={"x": [1]}'], '{"i":1.0,"e":2,"o":{"x":[1]}}'),
        (["l=1", "l=2"], '{"l":[1,2]}'),
        (["l=1"], '{"l":[1]}'),
        (["l=[1, 2]"], '{"l":[1,2]}'),
        (["i=x", "any=1", "u=1", "other=2"], '{"i":"x","any":"1","u":"1","other":"2"}'),
        (["any:=1", "s:=null"], '{"any":1,"s":null}'),
        (["s=@ann", "s2=", "a.b=x=y", "$f=é"], '{"s":"@ann","s2":"","a.b":"x=y","$f":"é"}'),
        (["i=12345678901234567890123"], '{"i":12345678901234567890123}'),
        (["i=NaN"], '{"i":"NaN"}'),
    ],
)
def test_words_become_what_the_tool_takes(words: list[str], text: str) -> None:
    read = read_words(words)
    assert read is not None
    assert encode_words(read, SCHEMA).decode() == text
    for odd in (None, 7, {}, {"properties": []}, {"properties": {"i": 7}}):
        encode_words(read, odd)


@every("words", [['{"a=1": 2}'], ["[1]"], ["-"], ["@file=x"], ['"x"'], ["{a:", "b=1"], []])
def test_json_is_not_taken_for_words(words: list[str]) -> None:
    assert read_words(words) is None


@every("words", [["a=1", "b"], ["a:=x"], ["s=1", "s=2"], ["a:=@/no/such"], ["a:=-"]])
def test_words_that_are_wrong(words: list[str]) -> None:
    with raises(Failure):
        encode_words(read_words(words) or [], SCHEMA)


def test_strings_and_choices() -> None:
    words = read_words(["a=1", "b:=3", 'c:="x"'])
    assert words is not None
    assert strings_of(words) == {"a": "1", "b": "3", "c": "x"}
    assert choices_of(SCHEMA["properties"]["f"], SCHEMA) == ["x", "y"]
    assert choices_of(SCHEMA["properties"]["b"], SCHEMA) == ["true", "false"]


# -- read, prompt, complete -----------------------------------------------------------------------


def test_read(url: str) -> None:
    assert wirespeed("read", url, "note://1").stdout == "Buy tea.\n"
    assert wirespeed("read", url, "note://{id}", "id=1").stdout == "Buy tea.\n"
    assert wirespeed("read", url, "note://{id}", '{"id": 1}').stdout == "Buy tea.\n"
    contents = json.loads(wirespeed("read", url, "note://plain", "--json").stdout)["contents"]
    assert contents == [{"uri": "note://plain", "mimeType": "text/plain", "text": "Plain."}]
    done = wirespeed("read", url, "note://missing/x")
    assert (done.returncode, done.stdout) == (4, "")
    assert one_line(done).endswith("wirespeed list TARGET shows the resources")


def test_bytes_are_saved_or_written_as_they_are(url: str, tmp_path: Path) -> None:
    running = start("read", url, "note://bytes")
    out, _ = running.communicate()
    assert out == b"\x00\xff"
    done = wirespeed("read", url, "note://bytes", "--save", str(tmp_path / "new"))
    assert done.stdout == (
        f"[resource: note://bytes, image/x-odd, 2 bytes, saved as {tmp_path}/new/bytes-1.bin]\n"
    )
    assert (tmp_path / "new" / "bytes-1.bin").read_bytes() == b"\x00\xff"


def test_images_are_shown_or_saved(url: str, tmp_path: Path) -> None:
    done = wirespeed("call", url, "picture")
    assert done.stdout == "[image: image/png, 9 bytes]\n[audio: audio/wav, 2 bytes]\n"
    for _ in range(2):
        done = wirespeed("call", url, "picture", "--save", str(tmp_path))
        assert f"saved as {tmp_path}/picture-" in done.stdout
    assert len(list(tmp_path.iterdir())) == 4
    written, _ = on_terminal(
        ["call", url, "picture"], WIRESPEED_IMAGES="kitty", TMPDIR=str(tmp_path)
    )
    assert "\x1b_Ga=T,f=100,q=2,m=0;iVBORw0KGgox\x1b\\" in written
    assert "audio/wav, 2 bytes, saved as" in written
    written, _ = on_terminal(
        ["call", url, "picture"], WIRESPEED_IMAGES="iterm2", TMPDIR=str(tmp_path)
    )
    assert "\x1b]1337;File=inline=1;size=9:iVBORw0KGgox\x07" in written
    written, _ = on_terminal(["call", url, "picture"], TMPDIR=str(tmp_path))
    assert "\x1b_G" not in written
    assert "picture-1.png]" in written


@every(
    ("answer", "seen"),
    [
        ("\x1b_Gi=31;OK\x1b\\\x1b[?62;c", "\x1b_Ga=T"),
        ("\x1b[?62;22c", "picture-1.png]"),
    ],
)
def test_a_terminal_is_asked_what_it_shows(
    url: str, answer: str, seen: str, tmp_path: Path
) -> None:
    args = ["call", url, "picture"]
    talk = [("\x1b[c", answer)]
    written, status = on_terminal(args, talk=talk, controls=True, TMPDIR=str(tmp_path))
    assert status == 0
    assert seen in written


def test_prompt(url: str) -> None:
    done = wirespeed("prompt", url, "reply", "name=Ann", "tone=dry")
    assert done.stdout == "user:\nA dry reply to Ann.\n"
    found = json.loads(wirespeed("prompt", url, "reply", '{"name": "Bob"}', "--json").stdout)
    assert found["messages"] == [
        {"role": "user", "content": {"type": "text", "text": "A kind reply to Bob."}}
    ]
    done = wirespeed("prompt", url, "reply")
    assert done.returncode == 4
    assert "name" in one_line(done)


def test_complete(url: str) -> None:
    assert wirespeed("complete", url, "reply", "name", "An").stdout == "Ann\nAnton\n"
    assert wirespeed("complete", url, "reply", "name").stdout == "Ann\nAnton\nBob\n"
    done = wirespeed("complete", url, "reply", "name", "B", "tone=!", "--json")
    assert json.loads(done.stdout)["values"] == ["Bob!"]


# -- changes and tasks ----------------------------------------------------------------------------


def test_subscribe(url: str) -> None:
    watching = start("subscribe", "--json", "--read", "--count", "2", url, "note://1")
    assert watching.stderr is not None
    assert b"watching note://1; Ctrl-C ends it" in watching.stderr.readline()
    for _ in range(2):
        assert wirespeed("call", url, "change").stdout == "changed\n"
    out, _ = watching.communicate(timeout=60)
    assert watching.returncode == 0
    first, text, *_ = out.decode().splitlines()
    event = json.loads(first)
    assert (event["event"], event["uri"]) == ("ResourceUpdated", "note://1")
    assert text.startswith("Buy tea. Now.")


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_tasks(url: str, era: str) -> None:
    done = wirespeed("call", "--task", "--era", era, url, "crawl", "seconds=0.2")
    if era == "legacy":
        # the session ends with the command
        assert done.returncode == 0
        assert done.stdout.strip()
        return
    task = done.stdout.strip()
    done = wirespeed("tasks", "--era", era, url, task, "--wait")
    assert (done.returncode, done.stdout) == (0, "crawled\n")
    state = json.loads(wirespeed("tasks", "--era", era, url, task, "--json").stdout)
    assert (state["id"], state["status"]) == (task, "completed")
    done = wirespeed("tasks", "--era", era, url, "no-such-task")
    assert done.returncode == 4


@every(
    ("args", "text"),
    [
        (["inspect", "x.py"], "NAME is missing; wirespeed list TARGET shows what it has"),
        (["inspect", "x.py", "a", "b"], "one NAME is enough"),
        (["read"], "TARGET and URI are missing"),
        (["complete", "x.py", "greet"], "ARGUMENT is missing"),
        (["subscribe"], "TARGET is missing, as in wirespeed subscribe server.py"),
        (["subscribe", "x.py", "--read"], "give its URI"),
        (["tasks", "x.py", "--wait"], "--wait needs the ID of a task"),
        (["tasks", "x.py", "1", "--wait", "--cancel"], "not both"),
        (["read", "--lite", "x.py", "a:b"], "wirespeed read is for MCP"),
        (["call", "--lite", "--task", "x.py", "a"], "LiteMCP has no tasks"),
        (["call", "x.py", "a", "b=1", "c"], "'c' is neither name=value nor name:=JSON"),
        (["call", "x.py", "a", "--answer", "maybe"], "--answer: JSON is not valid"),
    ],
)
def test_wrong_lines(args: list[str], text: str) -> None:
    done = wirespeed(*args)
    assert done.returncode == 2
    assert text in one_line(done)


@every(
    ("typed", "meant"),
    [("develop", "dev"), ("reed", "read"), ("config", "install"), ("instal", "install"),
     ("tools", "list"), ("inspct", "inspect")],
)  # fmt: skip
def test_the_nearest_command(typed: str, meant: str) -> None:
    done = wirespeed(typed)
    assert one_line(done) == (
        f"there is no command {typed!r}: did you mean {meant}?; see wirespeed --help"
    )


def test_trace_shows_the_messages(url: str) -> None:
    done = wirespeed("call", url, "given", "--trace")
    assert done.returncode == 0
    assert '"method":"tools/call"' in done.stderr
    assert " client#1 -> " in done.stderr
    assert "\x1b" not in done.stderr
    written, _ = on_terminal(["call", url, "given", "--trace"])
    assert "\x1b[36m{" in written
    assert '"method":\x1b[1;36m"tools/call"' in written
