"""What may be asked of whom, as data, and the rules for messages with tool blocks."""

from __future__ import annotations

from typing import Any

import msgspec
from lab.rows import every

from wirespeed.protocol.asking import (
    CREATE_MESSAGE,
    ELICIT,
    LIST_ROOTS,
    PARAMS,
    RULES,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsParams,
    SampleParams,
    SamplingMessage,
    elicit_fault,
    messages_fault,
    missing_capability,
)
from wirespeed.protocol.revisions import REVISIONS

FORM = ElicitRequestParams("m", requested_schema={"type": "object", "properties": {}})
URL = ElicitRequestParams("m", "url", url="https://a.example")
TEXT = {"type": "text", "text": "x"}
USE_A = {"type": "tool_use", "id": "a", "name": "t", "input": {}}
USE_B = {"type": "tool_use", "id": "b", "name": "t", "input": {}}
RESULT_A = {"type": "tool_result", "toolUseId": "a", "content": [TEXT]}
RESULT_B = {"type": "tool_result", "toolUseId": "b", "content": [], "isError": True}


def messages(*turns: tuple[str, Any]) -> list[SamplingMessage]:
    plain = [{"role": role, "content": content} for role, content in turns]
    return msgspec.convert(plain, list[SamplingMessage])


def sampling(*turns: tuple[str, Any], **more: Any) -> SampleParams:
    return SampleParams(messages(*turns), 1, **more)


def test_the_rules_name_the_methods_that_the_revisions_have() -> None:
    assert RULES.keys() == REVISIONS.keys()
    for version, rules in RULES.items():
        assert rules.methods == REVISIONS[version].server_requests & PARAMS.keys()


@every(
    ("turns", "fault"),
    [
        ([], None),
        ([("user", TEXT)], None),
        ([("user", [TEXT, TEXT]), ("assistant", TEXT)], None),
        ([("assistant", USE_A), ("user", RESULT_A)], None),
        ([("user", TEXT), ("assistant", [USE_A, USE_B]), ("user", [RESULT_B, RESULT_A])], None),
        ([("assistant", [TEXT, USE_A]), ("user", RESULT_A), ("assistant", TEXT)], None),
        ([("assistant", USE_A), ("user", [TEXT, RESULT_A])], "mixed"),
        ([("assistant", USE_A), ("user", [RESULT_A, TEXT])], "mixed"),
        ([("assistant", USE_A)], "missing"),
        ([("assistant", USE_A), ("user", TEXT)], "missing"),
        ([("assistant", USE_A), ("assistant", TEXT)], "missing"),
        ([("assistant", [USE_A, USE_B]), ("user", RESULT_A), ("assistant", TEXT)], "missing"),
        ([("assistant", [USE_A, USE_B]), ("user", RESULT_A), ("user", RESULT_B)], "missing"),
        ([("assistant", [USE_A, USE_A]), ("user", RESULT_A)], "missing"),
        ([("user", RESULT_A)], "without"),
        ([("assistant", USE_A), ("user", [RESULT_A, RESULT_A])], "without"),
        ([("assistant", USE_A), ("user", [RESULT_A, RESULT_B])], "without"),
    ],
)
def test_tool_results_stand_alone_and_match(turns: Any, fault: str | None) -> None:
    found = messages_fault(messages(*turns))
    assert (found is None) == (fault is None)
    if fault is not None and found is not None:
        assert fault in found


@every(
    ("version", "method", "params", "capabilities", "missing"),
    [
        ("2024-11-05", LIST_ROOTS, None, {"roots": {}}, None),
        ("2024-11-05", LIST_ROOTS, ListRootsParams(), {}, {"roots": {}}),
        ("2024-11-05", CREATE_MESSAGE, sampling(), {"sampling": {}}, None),
        ("2024-11-05", ELICIT, FORM, {"elicitation": {}}, {"elicitation": {}}),
        ("2025-03-26", ELICIT, FORM, {"elicitation": {}}, {"elicitation": {}}),
        ("2025-06-18", ELICIT, FORM, {"elicitation": {}}, None),
        ("2025-06-18", ELICIT, FORM, {"elicitation": {"url": {}}}, None),
        ("2025-06-18", ELICIT, URL, {"elicitation": {"url": {}}}, {"elicitation": {"url": {}}}),
        ("2025-11-25", ELICIT, FORM, {"elicitation": {}}, None),
        ("2025-11-25", ELICIT, FORM, {"elicitation": {"form": {}}}, None),
        ("2025-11-25", ELICIT, FORM, {"elicitation": {"x-own": {}}}, None),
        ("2025-11-25", ELICIT, FORM, {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
        ("2025-11-25", ELICIT, URL, {"elicitation": {"url": {}}}, None),
        ("2025-11-25", ELICIT, URL, {"elicitation": {"url": True}}, {"elicitation": {"url": {}}}),
        ("2026-07-28", ELICIT, URL, {"elicitation": {}}, {"elicitation": {"url": {}}}),
        ("2026-07-28", ELICIT, FORM, {"elicitation": True}, {"elicitation": {}}),
        ("2026-07-28", CREATE_MESSAGE, sampling(tools=[]), {"sampling": {"tools": {}}}, None),
        (
            "2026-07-28",
            CREATE_MESSAGE,
            sampling(tools=[]),
            {"sampling": {}},
            {"sampling": {"tools": {}}},
        ),
        (
            "2025-11-25",
            CREATE_MESSAGE,
            sampling(("assistant", USE_A), ("user", RESULT_A)),
            {"sampling": {}},
            {"sampling": {"tools": {}}},
        ),
        (
            "2025-06-18",
            CREATE_MESSAGE,
            sampling(tools=[]),
            {"sampling": {"tools": {}}},
            {"sampling": {"tools": {}}},
        ),
    ],
)
def test_what_a_client_would_have_to_declare(
    version: str, method: str, params: Any, capabilities: Any, missing: Any
) -> None:
    assert missing_capability(method, params, capabilities, version) == missing


@every(
    ("params", "sound"),
    [
        (FORM, True),
        (URL, True),
        (ElicitRequestParams("m"), False),
        (ElicitRequestParams("m", "url"), False),
        (ElicitRequestParams("m", "url", url=""), False),
        (ElicitRequestParams("m", requested_schema={}), False),
        (ElicitRequestParams("m", requested_schema={"type": "object"}), False),
        (ElicitRequestParams("m", requested_schema={"type": "array", "properties": {}}), False),
    ],
)
def test_an_elicitation_has_what_its_mode_needs(params: ElicitRequestParams, sound: bool) -> None:
    assert (elicit_fault(params) is None) == sound


def test_parameters_and_results_are_written_as_the_schema_names_them() -> None:
    assert msgspec.to_builtins(FORM) == {
        "message": "m",
        "requestedSchema": {"type": "object", "properties": {}},
    }
    params = sampling(("user", [TEXT, RESULT_B]), system_prompt="s", stop_sequences=["x"])
    assert msgspec.json.decode(msgspec.json.encode(params)) == {
        "messages": [{"role": "user", "content": [TEXT, RESULT_B]}],
        "maxTokens": 1,
        "systemPrompt": "s",
        "stopSequences": ["x"],
    }
    result = {"role": "assistant", "content": [USE_A], "model": "m", "stopReason": "toolUse"}
    decoded = msgspec.json.decode(msgspec.json.encode(result), type=CreateMessageResult)
    assert msgspec.to_builtins(decoded) == result
    assert msgspec.to_builtins(ElicitResult("decline")) == {"action": "decline"}


def test_a_structured_tool_result_keeps_its_null() -> None:
    block = {**RESULT_A, "structuredContent": None}
    message = messages(("user", block))[0]
    assert msgspec.json.decode(msgspec.json.encode(message))["content"] == block
