"""Values that users make: what constructors say of a wrong argument, and the type of a block."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from lab.rows import every

import wirespeed
from wirespeed import Http, HttpOptions, ListenOptions, Stdio
from wirespeed.types import (
    Audio,
    EmbeddedResource,
    Icon,
    Image,
    ResourceContents,
    ResourceLink,
    Text,
    ToolAnnotations,
    ToolResult,
    ToolResultContent,
    ToolUseContent,
    UnknownContent,
)

pytestmark = pytest.mark.smoke

LINK = ResourceLink("file:///a", "a")


@every(
    ("make", "text"),
    [
        (
            lambda: ToolResult(["a"]),  # type: ignore[misc]
            "ToolResult takes keyword arguments only: content=…, structured_content=…, "
            "is_error=…, meta=…",
        ),
        (
            lambda: ToolResult(contents=["a"]),  # type: ignore[call-arg]
            "ToolResult has no argument 'contents'; did you mean 'content'?",
        ),
        (
            lambda: Image(b"", format="png"),  # type: ignore[call-arg]
            "Image has no argument 'format'; write mime_type=\"image/png\"",
        ),
        (
            lambda: Audio(path="a.wav"),  # type: ignore[call-arg]
            "Audio has no argument 'path'; write data=Path(…).read_bytes() and its mime_type",
        ),
        (
            lambda: Image(b""),  # type: ignore[call-arg]
            "Image needs 'mime_type'; write Image(Path(…).read_bytes(), \"image/png\")",
        ),
        (
            lambda: Icon(),  # type: ignore[call-arg]
            "Icon needs 'src'",
        ),
        (
            lambda: Image(b"", "image/png", "a"),  # type: ignore[misc]
            "Image takes data, mime_type, not 3 values by position; "
            "by keyword: annotations=…, meta=…",
        ),
        (
            lambda: Image(b"", data=b""),  # type: ignore[misc]
            "Image was given 'data' twice, by position and by keyword",
        ),
        (lambda: Image("text", "image/png"), "Image takes bytes, not str"),  # type: ignore[arg-type]
        (
            lambda: Icon("https://a.example/i.png", mimetype="image/png"),  # type: ignore[call-arg]
            "Icon has no argument 'mimetype'; did you mean 'mime_type'?",
        ),
        (
            lambda: ListenOptions(tokn="a"),  # type: ignore[call-arg]
            "ListenOptions has no argument 'tokn'; did you mean 'token'?",
        ),
        (
            lambda: HttpOptions(healthy="/"),  # type: ignore[call-arg]
            "HttpOptions has no argument 'healthy'; did you mean 'healthz'?",
        ),
        (
            lambda: Stdio("a", cwdd="/"),  # type: ignore[call-arg]
            "Stdio has no argument 'cwdd'; did you mean 'cwd'?",
        ),
        (
            lambda: Http("http://a.example", tokn="a"),  # type: ignore[call-arg]
            "Http has no argument 'tokn'; did you mean 'token'?",
        ),
        (
            lambda: wirespeed.Server("s").run("http://127.0.0.1:0/mcp", tokn="a"),  # type: ignore[call-arg]
            "ListenOptions has no argument 'tokn'; did you mean 'token'?",
        ),
    ],
)
def test_a_wrong_argument_is_named_with_its_class(make: Callable[[], Any], text: str) -> None:
    with pytest.raises(TypeError) as caught:
        make()
    assert str(caught.value) == text


def test_a_value_is_made_decoded_copied_and_pickled_as_before() -> None:
    made = Image(b"a", "image/png")
    text = msgspec.json.encode(made)
    assert text == b'{"type":"image","data":"YQ==","mimeType":"image/png"}'
    assert msgspec.json.decode(text, type=Image | Text) == made
    assert pickle.loads(pickle.dumps(made)) == made
    assert msgspec.structs.replace(made, data=b"b") == Image(b"b", mime_type="image/png")


@every(
    ("block", "kind"),
    [
        (Text("a"), "text"),
        (Image(b"", "image/png"), "image"),
        (Audio(b"", "audio/wav"), "audio"),
        (EmbeddedResource(ResourceContents("file:///a", text="a")), "resource"),
        (LINK, "resource_link"),
        (ToolUseContent("1", "add", {}), "tool_use"),
        (ToolResultContent("1", []), "tool_result"),
        (UnknownContent({"type": "video", "data": ""}), "video"),
        (UnknownContent({}), "unknown"),
    ],
)
def test_each_block_has_the_type_of_the_wire(block: Any, kind: str) -> None:
    assert block.type == kind
    if not isinstance(block, UnknownContent):
        assert msgspec.json.decode(msgspec.json.encode(block))["type"] == kind
    with pytest.raises(AttributeError):
        block.type = "other"


def test_annotations_of_a_tool_are_a_dict() -> None:
    assert ToolAnnotations(readOnlyHint=True, title="a") == {"readOnlyHint": True, "title": "a"}
    server = wirespeed.Server("s")
    python: Any = {"read_only_hint": True, "open_world_hint": False, "x": 1}
    tool = server.add_tool(lambda: None, name="a", annotations=python)
    assert tool.entry.annotations == {"readOnlyHint": True, "openWorldHint": False, "x": 1}
