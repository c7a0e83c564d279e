"""Skills (``io.modelcontextprotocol/skills``): folders of instructions for agents, as resources.

`Skill` is one skill that a server has in memory, `SkillCatalog` the interface of stores whose files
are read when they are asked for. `Server.add_skills` serves both; `Client.list_skills` has them on
the other side. What servers, clients and proxies know of the wire is in `wirespeed.skills.model`.
"""

from wirespeed._exports import exports

__all__, __getattr__ = exports(__name__)
