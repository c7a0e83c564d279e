"""The fixtures that ask the client: for a form, for its model, for its roots.

The tools of the first part wait for the answers. Up to 2025-11-25 the questions are requests of the
server; in 2026-07-28 they are the result of a round, and the handler runs again with the answers.
The tools of the second part handle the rounds of 2026-07-28 themselves.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from wirespeed import Context, Server
from wirespeed.types import ElicitRequest, Email, InputRequired


@dataclass
class Account:
    """Who somebody is."""

    username: str
    email: Email


@dataclass
class Person:
    """A form whose fields have defaults (SEP-1034)."""

    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


@dataclass
class Name:
    """A name."""

    name: str


@dataclass
class Colour:
    """A colour."""

    color: str


@dataclass
class Consent:
    """A yes or a no."""

    ok: bool


@dataclass
class Background:
    """What a prompt is about."""

    context: str


def options(*names: str) -> list[dict[str, str]]:
    """Options with titles."""
    return [{"const": name, "title": name.capitalize()} for name in names]


# A form as a JSON Schema, with every kind of choice that there is (SEP-1330).
CHOICES = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {"type": "string", "oneOf": options("value1", "value2", "value3")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"],
        },
        "untitledMulti": {
            "type": "array",
            "items": {"type": "string", "enum": ["option1", "option2", "option3"]},
        },
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": options("value1", "value2", "value3")},
        },
    },
}


# -- questions whose answers the handler waits for -------------------------------------------------


async def test_sampling(prompt: str, ctx: Context) -> str:
    """Ask the client's model.

    Args:
        prompt: What to ask.
    """
    answer = await ctx.sample(prompt, max_tokens=100)
    return f"LLM response: {answer.text}"


async def test_elicitation(message: str, ctx: Context) -> str:
    """Ask the user for a name and a mail address.

    Args:
        message: What the user sees above the form.
    """
    answer = await ctx.elicit(message, Account)
    return f"User response: {answer.action}, {answer.content}"


async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Ask the user to fill in a form whose fields have defaults."""
    answer = await ctx.elicit("Please check the values.", Person)
    return f"Elicitation completed: {answer.action}, {answer.content}"


async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Ask the user to choose, in every kind of choice."""
    answer = await ctx.elicit("Please choose.", CHOICES)
    return f"Elicitation completed: {answer.action}, {answer.content}"


async def test_missing_capability(ctx: Context) -> str:
    """Ask the client's model: an error for clients that do not declare sampling."""
    return (await ctx.sample("Is anybody there?", max_tokens=10)).text


async def test_streaming_elicitation(ctx: Context) -> str:
    """Ask for a name."""
    answer = await ctx.elicit("What is your name?", Name)
    return answer.content.name if answer else answer.action


async def test_input_required_result_sampling(ctx: Context) -> str:
    """Ask the client's model for a capital."""
    return (await ctx.sample("What is the capital of France?", max_tokens=100)).text


async def test_input_required_result_list_roots(ctx: Context) -> str:
    """Ask the client for its roots."""
    return f"Roots: {', '.join(root.uri for root in await ctx.roots())}"


async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Ask for a name, for a greeting and for the roots, in one round."""
    name, greeting, roots = await asyncio.gather(
        ctx.elicit("What is your name?", Name),
        ctx.sample("Generate a greeting", max_tokens=50),
        ctx.roots(),
    )
    called = name.content.name if name else "stranger"
    return f"{greeting.text} {called}, you have {len(roots)} roots."


async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Ask for a name, then for a colour."""
    name = await ctx.elicit("What is your name?", Name)
    if not name:
        return name.action
    colour = await ctx.elicit(f"{name.content.name}, what is your favorite color?", Colour)
    return f"{name.content.name} likes {colour.content.color}." if colour else colour.action


async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Ask in a way that the client declares."""
    if "elicitation" in ctx.client_capabilities:
        answer = await ctx.elicit("What is your name?", Name)
        return answer.content.name if answer else answer.action
    return (await ctx.sample("Make up a name.", max_tokens=20)).text


async def test_input_required_result_prompt(ctx: Context) -> str:
    """A prompt that asks for its context."""
    answer = await ctx.elicit("What is the context?", Background)
    return f"Use this context: {answer.content.context}" if answer else "There is no context."


# -- rounds that the handler runs itself -----------------------------------------------------------


async def test_input_required_result_elicitation(ctx: Context) -> str | InputRequired:
    """Ask for a name, without a state."""
    answer = ctx.input_responses.get("user_name")
    if answer is None:
        return InputRequired({"user_name": ElicitRequest("What is your name?", Name)})
    name = answer.as_form(Name)
    return f"Hello, {name.name}!" if name else answer.action


async def test_input_required_result_request_state(ctx: Context) -> str | InputRequired:
    """Ask for consent, with a state that the client keeps."""
    answer = ctx.input_responses.get("confirm")
    if answer is None or ctx.request_state is None:
        question = ElicitRequest("Please confirm", Consent)
        return InputRequired({"confirm": question}, state={"asked": "confirm"})
    return f"state-ok: {answer.action} to {ctx.request_state['asked']}"


async def test_input_required_result_tampered_state(ctx: Context) -> str | InputRequired:
    """Ask for consent; the client cannot change the state."""
    return await test_input_required_result_request_state(ctx)


TOOLS: list[Callable[..., Awaitable[str | InputRequired]]] = [
    test_sampling,
    test_elicitation,
    test_elicitation_sep1034_defaults,
    test_elicitation_sep1330_enums,
    test_missing_capability,
    test_streaming_elicitation,
    test_input_required_result_sampling,
    test_input_required_result_list_roots,
    test_input_required_result_multiple_inputs,
    test_input_required_result_multi_round,
    test_input_required_result_capabilities,
    test_input_required_result_elicitation,
    test_input_required_result_request_state,
    test_input_required_result_tampered_state,
]


def add_to(server: Server) -> None:
    """Register the tools and the prompt."""
    for tool in TOOLS:
        server.add_tool(tool)
    server.add_prompt(test_input_required_result_prompt)
