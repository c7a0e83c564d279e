"""The skills extension (SEP-2640), made with the public API: what a skill is made of is served as
resources, and the methods of the extension list them."""

import hashlib
from typing import Any

import msgspec

from wirespeed import Extension, Server
from wirespeed.errors import ProtocolError

INVALID_PARAMS = -32602

FRONTMATTER = {
    "name": "git-workflow",
    "description": "Branch, commit and merge the way this team does it",
}
SKILL = "skill://git-workflow/SKILL.md"
MARKDOWN = "text/markdown"
DIRECTORY = "inode/directory"

FILES = {
    SKILL: (
        "---\n"
        + "".join(f"{key}: {value}\n" for key, value in FRONTMATTER.items())
        + "---\n\n# Git workflow\n\nRead references/COMMITS.md before you commit.\n"
    ),
    "skill://git-workflow/references/COMMITS.md": "# Commits\n\nSay why, in one line.\n",
}


class Page(msgspec.Struct):
    """The params of a list; each list fits on one page."""

    cursor: str | None = None


class Named(msgspec.Struct):
    """The params of what is about one URI."""

    uri: str
    cursor: str | None = None


def entry() -> dict[str, Any]:
    """The skill, as skills/list and skills/get have it."""
    return {
        "uri": SKILL,
        "frontmatter": FRONTMATTER,
        "resources": [
            {
                "uri": uri,
                "digest": f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
                "size": len(text.encode()),
            }
            for uri, text in FILES.items()
        ],
    }


async def list_skills(params: Page) -> dict[str, Any]:
    if params.cursor is not None:
        raise ProtocolError(INVALID_PARAMS, "There is only one page", {"cursor": params.cursor})
    return {"skills": [entry()], "ttlMs": 1000, "cacheScope": "public"}


async def get_skill(params: Named) -> dict[str, Any]:
    if params.uri != SKILL:
        raise ProtocolError(INVALID_PARAMS, "There is no such skill", {"uri": params.uri})
    return {"skill": entry(), "ttlMs": 1000, "cacheScope": "public"}


async def read_directory(params: Named) -> dict[str, Any]:
    prefix = params.uri.rstrip("/") + "/"
    below = [uri.removeprefix(prefix) for uri in FILES if uri.startswith(prefix)]
    if not below:
        raise ProtocolError(INVALID_PARAMS, "This is not a directory", {"uri": params.uri})
    children: dict[str, str] = {}
    for path in below:
        name, slash, _ = path.partition("/")
        children[name] = DIRECTORY if slash else MARKDOWN
    return {
        "resources": [
            {"uri": prefix + name, "name": name, "mimeType": kind}
            for name, kind in children.items()
        ],
        "ttlMs": 1000,
        "cacheScope": "public",
    }


SKILLS = Extension(
    "io.modelcontextprotocol/skills",
    {"directoryRead": True},
    requests={
        "skills/list": list_skills,
        "skills/get": get_skill,
        "resources/directory/read": read_directory,
    },
    required=False,  # clients call the methods without declaring the extension
)


def add_to(server: Server) -> None:
    """Register the files and the extension."""
    server.add_extension(SKILLS)
    for uri, text in FILES.items():
        name, description = uri.rpartition("/")[2], "A file of the skill."
        if uri == SKILL:
            name, description = FRONTMATTER["name"], FRONTMATTER["description"]
        server.add_resource(
            uri, text, name=name, description=description, mime_type=MARKDOWN, ttl_ms=1000
        )
