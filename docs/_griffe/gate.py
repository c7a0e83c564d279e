"""The guide, warnings as errors; and the check that a broken link is one.

    python docs/_griffe/gate.py FOLDER     the site goes to the folder

What mkdocs says is printed only if it fails: with ``--quiet`` it would count no warnings.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BROKEN = "\n[a page that is missing](nowhere.md), [no heading](tutorial.md#nowhere)\n"
PLAIN = "INHERIT: mkdocs.yml\nplugins: [search]\n"  # the reference takes long
ENVIRONMENT = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}


def build(root: Path, site: Path, config: str) -> subprocess.CompletedProcess[str]:
    """The guide below a folder, warnings as errors."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict"]
    command += ["--config-file", config, "--site-dir", str(site)]
    return subprocess.run(command, cwd=root, env=ENVIRONMENT, capture_output=True, text=True)


def broken_links_fail() -> bool:
    """Whether two broken links in the first page, and nothing else, fail a build."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        shutil.copytree(ROOT / "docs", copy / "docs")
        for name in ("mkdocs.yml", "pyproject.toml", "CHANGELOG.md"):
            shutil.copy(ROOT / name, copy)
        (copy / "plain.yml").write_text(PLAIN)
        with (copy / "docs" / "index.md").open("a") as page:
            page.write(BROKEN)
        done = build(copy, copy / "site", "plain.yml")
        return done.returncode != 0 and "with 2 warnings" in done.stdout + done.stderr


def main(site: Path) -> int:
    """The exit status."""
    done = build(ROOT, site, "mkdocs.yml")
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        return 1
    if not broken_links_fail():
        print("broken links do not fail the build of the guide", file=sys.stderr)
        return 1
    print("the guide has no warnings, and broken links are warnings")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).absolute()))
