"""Installs the rivals, each in an environment of its own under benchmarks/.venvs.

    python benchmarks/setup_rivals.py [--python INTERPRETER] [--recreate]

Versions are pinned.  Nothing here is imported by the package or by its tests.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

VENVS = Path(__file__).resolve().parent / ".venvs"

# environment -> what is installed; uvloop because mcp is faster on it, so it may
RIVALS = {
    "mcp2": ["mcp==2.3.0", "uvloop>=0.21", "uvicorn==0.54.0", "httptools==0.9.0"],
    "mcp1": ["mcp[ws]==1.30.0", "uvloop==0.23.0"],
    "http": ["uvicorn==0.54.0", "httptools==0.9.0", "msgspec==0.22.0", "uvloop==0.23.0"],
    "websocket": ["picows==2.3.1", "websockets==17.4", "msgspec==0.22.0", "uvloop==0.23.0"],
    "mcp_proxy": ["mcp-proxy==0.13.0", "uvloop==0.23.0"],
    "fastmcp4": ["fastmcp==4.2.3", "uvloop==0.23.0"],
    "fastmcp": ["fastmcp==4.1.2", "uvloop==0.23.0", "uvicorn==0.54.0", "httptools==0.9.0"],
}
# folder -> npm packages; Node.js is whatever `node` is
NODE_RIVALS = {
    "supergateway": ["supergateway@4.0.0"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--recreate", action="store_true")
    args = parser.parse_args()
    for name, packages in RIVALS.items():
        place = VENVS / name
        if args.recreate:
            shutil.rmtree(place, ignore_errors=True)
        if not (place / "bin" / "python").exists():
            subprocess.run([args.python, "-m", "venv", str(place)], check=True)
        python = str(place / "bin" / "python")
        subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
        print(f"{name}: {', '.join(packages)} in {place}")
    if shutil.which("npm") is None:
        print("no npm: without", ", ".join(NODE_RIVALS))
        return
    for name, packages in NODE_RIVALS.items():
        place = VENVS / name
        if args.recreate:
            shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["npm", "install", "--silent", "--prefix", str(place), *packages], check=True
        )
        print(f"{name}: {', '.join(packages)} in {place}")


if __name__ == "__main__":
    main()
