"""What a release needs besides tests: one version everywhere, a clean tree, notes, a tag.

`release.py check` compares Cargo.toml, Cargo.lock and CHANGELOG.md; `release.py tag` does that again, writes the notes of the version to
.build/release-notes.md and makes the annotated tag. Nothing is published: the last line says which commands do that.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class NotReadyError(Exception):
    """Why there can be no release, and what to do."""


def checked(root: Path) -> tuple[str, str]:
    """The version and its notes.

    Raises:
        NotReadyError: Something does not agree.
    """
    version = tomllib.loads((root / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    lock = tomllib.loads((root / "Cargo.lock").read_text())
    for package in lock["package"]:
        if package["name"].startswith("fletchlog") and package["version"] != version:
            raise NotReadyError(f"Cargo.lock has {package['name']} {package['version']}, Cargo.toml {version}: run cargo update --workspace")
    text = (root / "CHANGELOG.md").read_text()
    section = re.search(rf"^## {re.escape(version)} - \d{{4}}-\d\d-\d\d\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if section is None:
        raise NotReadyError(f"CHANGELOG.md has no section `## {version} - YYYY-MM-DD`: give the unreleased one its version and date")
    if not section[1].strip():
        raise NotReadyError(f"the section {version} of CHANGELOG.md is empty")
    if git(root, "status", "--porcelain"):
        raise NotReadyError("the tree has changes that are not committed: commit or remove them")
    if f"v{version}" in git(root, "tag", "--list").split():
        raise NotReadyError(f"the tag v{version} is there already: raise the version in Cargo.toml")
    return version, section[1].strip()


def tag(root: Path) -> str:
    """Writes the notes, makes the tag, returns the version."""
    version, notes = checked(root)
    path = root / ".build/release-notes.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(notes + "\n")
    git(root, "tag", "--annotate", f"v{version}", "--cleanup=verbatim", "--message", f"fletchlog {version}\n\n{notes}")
    return version


def git(root: Path, *words: str) -> str:
    """What git prints."""
    return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True).stdout


def main() -> None:
    """Runs `check` or `tag`."""
    try:
        if sys.argv[1:] == ["check"]:
            print(f"release: {checked(ROOT)[0]} can be released, when its tests pass")
        elif sys.argv[1:] == ["tag"]:
            version = tag(ROOT)
            print(
                f"release: v{version} is tagged, its notes are in .build/release-notes.md. To publish: git push origin v{version}, which starts .github/workflows/release.yml"
            )
        else:
            sys.exit("usage: release.py check|tag")
    except NotReadyError as error:
        sys.exit(f"release: {error}")


if __name__ == "__main__":
    main()
