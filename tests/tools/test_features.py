"""The jar's library and the Python package are built from the same crates: with other features of one of them `make jar` would compile most again."""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def features(package: str) -> dict[str, set[str]]:
    """Of each crate that a package is built from, the sets of features it is built with."""
    command = ["cargo", "tree", "--locked", "-p", package, "-e", "normal,build", "--prefix", "none", "-f", "{p} [{f}]"]
    found: dict[str, set[str]] = {}
    for line in subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines():
        crate = re.match(r"(\S+ v\S+).*\[(.*)\]", line)
        if crate:
            found.setdefault(crate[1], set()).add(crate[2])
    return found


def test_the_jar_is_built_from_the_crates_of_the_package() -> None:
    package, jar = features("fletchlog-python"), features("fletchlog-jni")
    assert len(jar) > 100
    others = {crate: (found, package.get(crate)) for crate, found in jar.items() if not crate.startswith("fletchlog-jni ") and found != package.get(crate)}
    assert not others, "give rust/jni/Cargo.toml the features that the package has"
