"""Describes a tool to a language model as text (LiteMCP, prompt)."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wirespeed.litemcp.messages import Tool


def prompt_of(tool: Tool) -> str:
    """Return a text with the tool's name, descriptions, parameters, and the JSON of its call."""
    lines = [f"Tool: {tool.name}"]
    if tool.description:
        lines.append(f"Description: {tool.description}")
    if tool.parameters:
        lines.append("Parameters, in order:")
        for number, parameter in enumerate(tool.parameters, 1):
            lines.append(f"{number}. {parameter.name} ({parameter.type})")
            if parameter.description:
                lines[-1] += f": {parameter.description}"
            if parameter.example is not None:
                lines.append(f"   Example: {parameter.example}")
    else:
        lines.append("Parameters: none")
    if tool.example:
        lines.append(f"Example of its use: {tool.example}")
    samples = [p.example if p.example is not None else f"<{p.name}>" for p in tool.parameters]
    call = json.dumps({"tool": tool.name, "arguments": samples}, ensure_ascii=False)
    lines += [
        "To call it, answer with this JSON object alone. The arguments are strings, one for each "
        "parameter in the order above:",
        call,
    ]
    return "\n".join(lines)
