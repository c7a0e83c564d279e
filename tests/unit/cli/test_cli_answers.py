"""Answers to the questions of a server: forms on a terminal, options, programs for models."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.cli import error_of, listening, on_terminal
from lab.cli import forked as wirespeed
from lab.rows import every
from lab.wording import raises

from wirespeed.cli.failures import Failure
from wirespeed.cli.features import form, sampling
from wirespeed.types import SampleParams, SamplingMessage, Text

FILE = """
from typing import Annotated, Literal
import msgspec
from wirespeed import Context, Server
from wirespeed.types import titles

server = Server("asking")

class Order(msgspec.Struct):
    size: Annotated[Literal["s", "l"], titles({"s": "Small", "l": "Large"})] = "s"
    count: Annotated[int, msgspec.Meta(ge=1, le=9, description="How many.")] = 1
    name: str = msgspec.field(default="")
    milk: bool = False
    extras: list[Literal["sugar", "lemon"]] = []

@server.tool
async def order(ctx: Context) -> str:
    answer = await ctx.elicit("What is it?\\x1b[2J", Order)
    return repr(answer.content) if answer else answer.action

class Needed(msgspec.Struct):
    name: str
    age: int

@server.tool
async def needed(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Needed)
    return repr(answer.content) if answer else answer.action

@server.tool
async def agree(ctx: Context) -> str:
    first = await ctx.elicit("Sure?", None)
    second = await ctx.elicit_url("Pay", "https://pay.example/1")
    return f"{first.action} {second.action}"

@server.tool
async def model(ctx: Context) -> str:
    answer = await ctx.sample("Sum up", system="Be short.", max_tokens=50)
    return f"{answer.model}: {answer.text}"

@server.tool
async def where(ctx: Context) -> list[str]:
    return [root.uri for root in await ctx.roots()]
"""

ERAS = pytest.mark.parametrize("era", ["legacy", "modern"])


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("asking") / "asking.py"
    path.write_text(FILE)
    with listening(str(path), "--on", "ws://127.0.0.1:0/mcp") as found:
        yield found


def shown(written: str) -> list[str]:
    return written.replace("\r\n", "\n").splitlines()


# -- on a terminal --------------------------------------------------------------------------------


@ERAS
def test_a_form_is_filled_in_field_by_field(url: str, era: str) -> None:
    talk = [
        ("size [s]: ", "3\n"),
        ("type a number from 1 to 2", "large\n"),
        ("count [1]: ", "12\n"),
        ("must be at most 9", "two\n"),
        ("type a number", "2\n"),
        ('name [""]: ', "Ann\n"),
        ("milk (y/n) [n]: ", "y\n"),
        ("extras []: ", "sugar, 2\n"),
        ("to edit] ", "\n"),
    ]
    args = ["call", url, "order", "--era", era]
    written, status = on_terminal(args, talk=talk, NO_COLOR="1")
    lines = shown(written)
    assert status == 0, written
    assert lines[-1] == (
        "Order(size='l', count=2, name='Ann', milk=True, extras=['sugar', 'lemon'])"
    )
    assert "What is it?\\x1b[2J" in lines
    assert "  1  s  Small" in lines
    assert "How many.; a whole number, 1 to 9" in lines
    assert "\x1b" not in written


DEFAULTS = [("]: ", "\n")] * 5
CHANGED = [("size [s]: ", "2\n"), ("count [1]: ", "3\n"), *[("]: ", "\n")] * 3]


@every(
    ("talk", "last"),
    [
        ([("size [s]: ", "\x04")], "cancel"),
        ([*DEFAULTS, ("to edit] ", "n\n")], "decline"),
        (
            [*DEFAULTS, ("to edit] ", "e\n"), *CHANGED, ("to edit] ", "y\n")],
            "Order(size='l', count=3, name='', milk=False, extras=[])",
        ),
    ],
)
def test_a_form_is_cancelled_declined_or_edited(
    url: str, talk: list[tuple[str, str]], last: str
) -> None:
    written, status = on_terminal(["call", url, "order"], talk=talk, NO_COLOR="1")
    assert (status, shown(written)[-1]) == (0, last)


def test_required_fields_and_consent(url: str) -> None:
    talk = [
        ("name: ", "\n"),
        ("required", '""\n'),
        ("age: ", "\n"),
        ("required", "7\n"),
        ("] ", "\n"),
    ]
    written, _ = on_terminal(["call", url, "needed"], talk=talk, NO_COLOR="1")
    assert shown(written)[-1] == "Needed(name='', age=7)"
    talk = [("Accept? [Y/n] ", "maybe\n"), ("type y or n", "\n"), ("page? [y/N] ", "y\n")]
    written, _ = on_terminal(["call", url, "agree"], talk=talk, NO_COLOR="1", DISPLAY="")
    assert shown(written)[-1] == "accept accept"
    assert "  https://pay.example/1" in shown(written)


def test_ctrl_c_ends_a_question(url: str) -> None:
    talk = [("size [s]: ", "\x03")]
    written, status = on_terminal(["call", url, "order"], talk=talk, controls=True, NO_COLOR="1")
    assert (status, shown(written)[-1]) == (130, "wirespeed: interrupted")


# -- by options -----------------------------------------------------------------------------------


@ERAS
def test_answers_of_the_command_line(url: str, era: str) -> None:
    args = ["--era", era]
    done = wirespeed("call", url, "order", *args, "--answer", '{"size": "l", "milk": true}')
    assert done.stdout == "Order(size='l', count=1, name='', milk=True, extras=[])\n"
    done = wirespeed("call", url, "order", *args, "--answer", "decline")
    assert done.stdout == "decline\n"
    done = wirespeed("call", url, "agree", *args, "--answer", "accept", "--answer", "cancel")
    assert done.stdout == "accept cancel\n"
    done = wirespeed("call", url, "agree", *args, "--answer", "accept")
    assert done.stdout == "accept accept\n"
    assert "open https://pay.example/1" in done.stderr


@ERAS
def test_an_answer_that_does_not_fit(url: str, era: str) -> None:
    args = ["call", url, "order", "--era", era, "--answer", '{"count": 20}']
    done = wirespeed(*args)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'count' must be at most 9" in done.stderr.splitlines()[-1]
    assert error_of(wirespeed(*args, "--json"))["type"] == "UsageError"


@ERAS
@pytest.mark.parametrize(
    ("tool", "option"), [("order", "--answer"), ("model", "--sample-command"), ("where", "--root")]
)
def test_the_error_says_how_to_answer(url: str, era: str, tool: str, option: str) -> None:
    done = wirespeed("call", url, tool, "--era", era)
    assert done.returncode in (1, 4)
    assert option in done.stderr


def test_roots(url: str, tmp_path: Path) -> None:
    done = wirespeed("call", url, "where", "--root", str(tmp_path), "--json")
    assert json.loads(done.stdout)["structuredContent"]["result"] == [tmp_path.as_uri()]


# -- models ---------------------------------------------------------------------------------------

PROGRAM = """
import json, os, sys
text = sys.stdin.read()
request = json.load(open(os.environ["WIRESPEED_SAMPLE"]))
if sys.argv[1] == "text":
    print(text.replace("\\n", "|"), request["maxTokens"])
elif sys.argv[1] == "json":
    content = {"type": "text", "text": "short"}
    print(json.dumps({"role": "assistant", "content": content, "model": "m"}))
else:
    sys.exit(int(sys.argv[1]))
"""


@ERAS
def test_a_program_answers_for_a_model(url: str, era: str, tmp_path: Path) -> None:
    program = tmp_path / "model.py"
    program.write_text(PROGRAM)
    command = shlex.join([sys.executable, str(program)])
    args = ["call", url, "model", "--era", era, "--sample-command"]
    done = wirespeed(*args, f"{command} text")
    assert done.stdout.endswith(": Be short.||Sum up| 50\n")
    assert wirespeed(*args, f"{command} json").stdout == "m: short\n"
    done = wirespeed(*args, f"{command} 3")
    assert "exited with status 3" in done.stderr.splitlines()[-1]
    assert done.returncode == 3
    done = wirespeed(*args, "/no/such/program")
    assert "/no/such/program: No such file" in done.stderr


def test_what_a_program_reads_and_writes() -> None:
    def message(role: str, text: str) -> SamplingMessage:
        return SamplingMessage(role, Text(text))  # type: ignore[arg-type]

    request = SampleParams([message("user", "a"), message("assistant", "b")], 5)
    assert sampling.conversation(request) == "user: a\n\nassistant: b\n"
    assert sampling.result_of(b'{"a": 1}\n', "/bin/llm").content.text == '{"a": 1}'  # type: ignore[union-attr]
    assert sampling.result_of(b"x", "/bin/llm").model == "llm"
    with raises(Failure):
        sampling.result_of(b'{"role": "user", "content": 7, "model": "m"}', "llm")
    with raises(Failure):
        sampling.SampleCommand("")


# -- forms of others ------------------------------------------------------------------------------


def test_fields_of_a_hostile_form() -> None:
    schema = {
        "properties": {
            "a": 7,
            "b": {"type": ["string"], "title": 3, "enum": "x", "oneOf": [1]},
            "c": {"type": "array", "items": 3},
            "d": {"enum": [1, 2], "enumNames": ["one"]},
        },
        "required": "a",
    }
    fields = form.fields_of(schema)
    assert [field.label for field in fields] == ["a", "b", "c", "d"]
    assert [choice.title for choice in fields[3].choices] == ["1", "2"]
    assert fields[3].value("2") == 2
    assert form.fields_of({}) == form.fields_of({"properties": []}) == []
