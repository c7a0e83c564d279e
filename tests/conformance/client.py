"""The client that the official conformance suite tests: it does what each scenario asks for.

    MCP_CONFORMANCE_SCENARIO=tools_call python tests/conformance/client.py URL

The suite starts it once for each scenario. Environment: the scenario, the revision that the server
speaks (MCP_CONFORMANCE_PROTOCOL_VERSION), and for some scenarios values in
MCP_CONFORMANCE_CONTEXT. Exit status 2: there is no such scenario.
"""

import asyncio
import hashlib
import json
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

from wirespeed import Client
from wirespeed.types import ElicitParams

Scenario = Callable[[Client], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}

SKILLS = "io.modelcontextprotocol/skills"


def scenario(*names: str) -> Callable[[Scenario], Scenario]:
    """Register what a client does in the scenarios of these names."""

    def register(function: Scenario) -> Scenario:
        SCENARIOS.update(dict.fromkeys(names, function))
        return function

    return register


async def fill_in(form: ElicitParams) -> dict[str, Any]:
    """What the user answers: the defaults of the form, and yes to what has none."""
    yes = {
        name: True
        for name, field in form.schema["properties"].items()
        if field["type"] == "boolean"
    }
    return {**yes, **form.defaults}


# -- what every client does ------------------------------------------------------------------------


@scenario("initialize", "json-schema-ref-no-deref", "request-metadata")
async def list_tools(client: Client) -> None:
    await client.list_tools()


@scenario("tools_call")
async def add_numbers(client: Client) -> None:
    await client.list_tools()
    await client.call_tool("add_numbers", {"a": 5, "b": 3})


@scenario("elicitation-sep1034-client-defaults")
async def defaults(client: Client) -> None:
    await client.call_tool("test_client_elicitation_defaults")


@scenario("sse-retry")
async def reconnect(client: Client) -> None:
    await client.call_tool("test_reconnection")


@scenario("json-schema-2020-12-preservation")
async def echo_schema(client: Client) -> None:
    tools = {tool.name: tool for tool in await client.list_tools()}
    schema = tools["json_schema_2020_12_tool"].input_schema
    await client.call_tool("json_schema_echo", {"schema": schema})


@scenario("sep-2322-client-request-state")
async def rounds(client: Client) -> None:
    async with asyncio.TaskGroup() as group:  # the rounds of one call do not touch another
        group.create_task(client.call_tool("test_mrtr_echo_state"))
        group.create_task(client.call_tool("test_mrtr_unrelated"))
    await client.call_tool("test_mrtr_no_state")
    await client.call_tool("test_mrtr_no_result_type")


# -- headers of 2026-07-28 -------------------------------------------------------------------------


@scenario("http-standard-headers")
async def standard_headers(client: Client) -> None:
    for tool in await client.list_tools():
        await client.call_tool(tool.name)
    for resource in await client.list_resources():
        await client.read_resource(resource.uri)
    for prompt in await client.list_prompts():
        await client.get_prompt(prompt.name)


@scenario("http-custom-headers")
async def custom_headers(client: Client) -> None:
    await client.list_tools()
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        await client.call_tool(call["name"], call["arguments"])


@scenario("http-invalid-tool-headers")
async def invalid_tool_headers(client: Client) -> None:
    for (
        tool
    ) in await client.list_tools():  # tools whose header parameters are not valid are left out
        await client.call_tool(tool.name, {"region": "us-west1"})


# -- the skills extension --------------------------------------------------------------------------


async def load_skill(client: Client, skill: dict[str, Any]) -> dict[str, str]:
    """The files of a skill, each checked before the next is read. ValueError: one is not as it was
    listed."""
    files = {}
    for file in sorted(skill["resources"], key=lambda file: file["uri"] != skill["uri"]):
        text = files[file["uri"]] = (await client.read_resource(file["uri"])).contents[0].text or ""
        data = text.encode()
        if len(data) != file["size"]:
            raise ValueError(f"{file['uri']} has {len(data)} bytes, not {file['size']}")
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        if digest != file["digest"]:
            raise ValueError(f"{file['uri']} has the digest {digest}, not {file['digest']}")
        if file["uri"] == skill["uri"] and frontmatter(text) != skill["frontmatter"]:
            raise ValueError(f"{file['uri']} has another frontmatter than its entry")
    return files


def frontmatter(text: str) -> dict[str, str]:
    """The plain ``key: value`` lines between the first two lines of ``---``."""
    head = text.partition("---\n")[2].partition("\n---\n")[0]
    return dict(line.split(": ", 1) for line in head.splitlines())


@scenario("sep-2640-client-no-prefetch")
async def list_skills(client: Client) -> None:
    await client.request("skills/list")  # nothing is read until a skill is loaded


@scenario(
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
)
async def verify_skills(client: Client) -> None:
    for skill in (await client.request("skills/list"))["skills"]:
        try:
            await load_skill(client, skill)
        except ValueError as exc:
            print(f"refused {skill['uri']}: {exc}", file=sys.stderr)
        else:
            raise AssertionError(f"{skill['uri']} was loaded")


# --------------------------------------------------------------------------------------------------


async def main(url: str) -> int:
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    run = SCENARIOS.get(name)
    if run is None:
        print(f"there is no scenario {name}", file=sys.stderr)
        return 2
    modern = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "") >= "2026"
    async with Client(
        url,
        era="auto" if modern else "legacy",
        name="wirespeed-everything",
        on_elicit=fill_in,
        on_sample=lambda request: "decline",
        roots=[],
        extensions=[SKILLS],
        timeout=20,
    ) as client:
        await run(client)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
