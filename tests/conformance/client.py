"""The client that the official conformance suite tests: it does what each scenario asks for.

    MCP_CONFORMANCE_SCENARIO=tools_call python tests/conformance/client.py URL

The suite starts it once for each scenario. Environment: the scenario, the revision that the server
speaks (MCP_CONFORMANCE_PROTOCOL_VERSION), and for some scenarios values in
MCP_CONFORMANCE_CONTEXT. Exit status 2: there is no such scenario; 1: the client took what it must
refuse, or the other way round.
"""

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Awaitable, Callable
from typing import Any

from wirespeed import Client
from wirespeed.auth import (
    Authorization,
    ClientCredentials,
    EnterpriseManaged,
    JwtBearer,
    MemoryStorage,
    OAuth,
)
from wirespeed.errors import AuthorizationError, SkillChanged
from wirespeed.types import ElicitParams

Scenario = Callable[[Client], Awaitable[None]]
SCENARIOS: dict[str, Scenario] = {}

METADATA = "https://conformance-test.local/client-metadata.json"
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


@scenario("sep-2640-client-no-prefetch")
async def list_skills(client: Client) -> None:
    await client.list_skills()  # nothing is read until a skill is loaded


@scenario(
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
)
async def verify_skills(client: Client) -> None:
    for skill in await client.list_skills():
        try:
            for file in skill.resources or ():
                await skill.read(file.uri)
        except SkillChanged as exc:
            print(f"refused {skill.uri}: {exc}", file=sys.stderr)
        else:
            raise AssertionError(f"{skill.uri} was loaded")


# -- authorization ---------------------------------------------------------------------------------

# What the client must refuse: nothing is called, and the error is one of authorization.
REFUSED = {
    "auth/iss-normalized",
    "auth/iss-supported-missing",
    "auth/iss-unexpected",
    "auth/iss-wrong-issuer",
    "auth/metadata-issuer-mismatch",
    "auth/resource-mismatch",
    "auth/scope-retry-limit",
}


async def call_protected(client: Client) -> None:
    """What a client does in each scenario of authorization."""
    await client.list_tools()
    await client.call_tool("test-tool")


def log_in(page: str) -> Awaitable[None]:
    """The user's browser: it follows the redirects, the last of which leads to the client."""

    def visit() -> None:
        with urllib.request.urlopen(page, timeout=20):
            pass

    return asyncio.to_thread(visit)


def authorization(name: str, context: dict[str, Any]) -> Authorization | None:
    """What gets the tokens of a scenario."""
    storage = MemoryStorage()
    match name.partition("auth/")[2]:
        case "":
            return None
        case "basic-cimd":
            return OAuth(client_metadata_url=METADATA, open_url=log_in, storage=storage)
        case "pre-registration":
            secret = context["client_secret"]
            return OAuth(context["client_id"], secret, open_url=log_in, storage=storage)
        case "client-credentials-basic":
            return ClientCredentials(context["client_id"], context["client_secret"])
        case "client-credentials-jwt":
            key, algorithm = context["private_key_pem"], context["signing_algorithm"]
            return ClientCredentials(context["client_id"], key=key, algorithm=algorithm)
        case "enterprise-managed-authorization":
            return EnterpriseManaged(
                context["client_id"],
                context["client_secret"],
                identity=context["idp_id_token"],
                idp=context["idp_issuer"],
                idp_client_id=context["idp_client_id"],
            )
        case "wif-jwt-bearer":
            return JwtBearer(context["valid_jwt"], client_id=context["client_id"])
        case "dpop" | "dpop-nonce":
            return OAuth(dpop=True, open_url=log_in, storage=storage)
    return OAuth(open_url=log_in, storage=storage)


# --------------------------------------------------------------------------------------------------


async def main(url: str) -> int:
    name = os.environ["MCP_CONFORMANCE_SCENARIO"]
    run = call_protected if name.startswith("auth/") else SCENARIOS.get(name)
    if run is None:
        print(f"there is no scenario {name}", file=sys.stderr)
        return 2
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    modern = os.environ.get("MCP_CONFORMANCE_PROTOCOL_VERSION", "") >= "2026"
    client = Client(
        url,
        auth=authorization(name, context),
        era="auto" if modern else "legacy",
        name="wirespeed-everything",
        on_elicit=fill_in,
        on_sample=lambda request: "decline",
        roots=[],
        extensions=[SKILLS],
        timeout=20,
    )
    try:
        async with client:
            await run(client)
    except AuthorizationError as exc:
        print(exc, file=sys.stderr)
        return int(name not in REFUSED)
    return int(name in REFUSED)


if __name__ == "__main__":
    sys.exit(asyncio.run(main(sys.argv[-1])))
