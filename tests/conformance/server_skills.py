"""A skill (SEP-2640), as `Server.add_skills` serves it."""

from wirespeed import Server
from wirespeed.skills import Skill

SKILL = Skill(
    "git-workflow",
    "Branch, commit and merge the way this team does it",
    {
        "SKILL.md": "# Git workflow\n\nRead references/COMMITS.md before you commit.\n",
        "references/COMMITS.md": "# Commits\n\nSay why, in one line.\n",
    },
)


def add_to(server: Server) -> None:
    """Serve the skill."""
    server.add_skills(SKILL, ttl_ms=1000, cache_scope="public")
