"""Skills (``io.modelcontextprotocol/skills``): folders of instructions for agents, as resources.

`Skill` is one skill that a server has in memory. `SkillCatalog` is the interface of stores whose
files are read when they are asked for. `Server.add_skills` serves both, and `Client.list_skills`
gets them from a server. The form of messages is in `wirespeed.skills.model`.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
