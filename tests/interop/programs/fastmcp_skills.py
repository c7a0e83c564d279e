"""Skills with FastMCP.

python fastmcp_skills.py serve FOLDER
python fastmcp_skills.py read ERA COMMAND…    (prints the digests of all files that it verified)
"""

import asyncio
import hashlib
import json
import sys

from fastmcp import Client, FastMCP
from fastmcp.client.transports import StdioTransport
from fastmcp.skills import SkillsClientExtension
from fastmcp.skills.provider import SkillsDirectoryProvider


def serve(folder: str) -> None:
    server = FastMCP("skills")
    server.add_provider(SkillsDirectoryProvider(folder))
    server.run("stdio", show_banner=False)


async def read(era: str, command: str, *arguments: str) -> None:
    assert era == "modern"  # its client has no skills in the legacy era
    found = {}
    transport = StdioTransport(command, list(arguments))
    async with Client(transport, extensions=[SkillsClientExtension()]) as client:
        for entry in await client.list_skills():
            skill = await client.read_skill(entry.uri)
            found[entry.uri] = {
                path: hashlib.sha256(data).hexdigest() for path, data in skill.files.items()
            }
    print(json.dumps(found))


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    asyncio.run(read(*sys.argv[2:]))
