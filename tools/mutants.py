"""Switches on one planted bug after the other and asks the crash and fault suites to find it: `make mutants`.

The bugs are listed in rust/sim/mutants.toml, some with a test that finds what the suites do not look at: arguments of `cargo test`, or of pytest for
a bug of the Python package. Those of Rust are marked in the sources with `planted!` and built with `--cfg planted`, in a directory of their own;
those of Python are edits of a copy. The package never has them. Ends with `mutants: K of N caught`; exit code 1 unless all are, or if the suites
find something with no bug switched on.
TIME_LIMIT bounds the hunts, in seconds; MUTANTS is a comma-separated choice of bugs (default all).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from settings import seconds

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "rust" / "sim" / "mutants.toml"
BUILT = ROOT / ".build" / "mutants"
SWITCH = '(__import__("os").environ.get("PLANTED") == "{}")'
# the environment of cargo and of what it builds: with the bugs
BUILD = {**os.environ, "RUSTFLAGS": "--cfg planted"}
HUNT_SECONDS = 300
TEST_SECONDS = 120


def mutants() -> list[dict[str, object]]:
    """Every planted bug: its name, what finds it, and its edits if it is one of the Python package."""
    return tomllib.loads(LIST.read_text())["mutant"]


def marked(root: Path) -> set[str]:
    """The names of the bugs that the Rust sources mark."""
    sources = [path.read_text() for path in sorted((root / "rust").glob("*/src/**/*.rs"))]
    return {name for text in sources for name in re.findall(r'\bplanted!\("([^"]+)"\)', text)}


def edited(root: Path) -> dict[str, str]:
    """The changed files of the Python package: text by path. An edit whose old text is not there exactly once is an error."""
    texts: dict[str, str] = {}
    for mutant in mutants():
        edits: list[dict[str, str]] = mutant.get("edit", [])  # type: ignore[assignment]
        for edit in edits:
            text = texts.setdefault(edit["file"], (root / edit["file"]).read_text())
            if text.count(edit["old"]) != 1:
                raise SystemExit(f"mutants: {mutant['name']}: {edit['file']} has its text {text.count(edit['old'])} times, once is needed; edit {LIST}")
            texts[edit["file"]] = text.replace(edit["old"], edit["new"].replace("PLANTED", SWITCH.format(mutant["name"])))
    return texts


def copy_package() -> None:
    """The Python package with all of its bugs."""
    shutil.copytree(ROOT / "python", BUILT / "python", dirs_exist_ok=True)
    for file, text in edited(ROOT).items():
        (BUILT / file).write_text(text)


def hunt(command: list[str], name: str | None, seconds: float) -> tuple[bool, str]:
    """Runs a command with a bug switched on. Whether it found something, and its last line."""
    environment = {**BUILD, "PLANTED": name or "", "PYTHONPATH": str(BUILT / "python")}
    process = subprocess.Popen(command, cwd=ROOT, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # What cargo has started ends with it.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        # A test that has its whole time hangs: without the bug it takes seconds. The suites may only be slow.
        return len(command) > 1 and seconds >= TEST_SECONDS, "no time left"
    lines = text.strip().splitlines()
    # A bug that makes an assertion fail is found, too.
    return process.returncode != 0, lines[-1] if lines else ""


def chosen() -> list[str]:
    """The bugs to switch on."""
    names = [str(mutant["name"]) for mutant in mutants()]
    wanted = os.environ.get("MUTANTS", ",".join(names)).split(",")
    if unknown := set(wanted) - set(names):
        raise SystemExit(f"mutants: there is no bug {', '.join(sorted(unknown))}; MUTANTS takes names of {LIST}")
    return wanted


def main() -> int:
    """Prints what became of each bug; with any argument only how it is used."""
    if sys.argv[1:]:
        print(__doc__)
        return 0
    limit = seconds("mutants", 1200)
    names = chosen()
    copy_package()
    target = BUILT / "target"
    cargo = ["--locked", "--target-dir", str(target)]
    subprocess.run(["cargo", "build", *cargo, "-p", "fletchlog-sim", "--example", "hunt"], cwd=ROOT, env=BUILD, check=True)
    suites = [str(target / "debug" / "examples" / "hunt")]
    pytest = [str(ROOT / ".venv/bin/pytest"), "--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml"), "-p", "no:cacheprovider", "-q"]
    tests = {}
    for mutant in mutants():
        if mutant["name"] in names and "test" in mutant:
            tests[str(mutant["name"])] = ["cargo", "test", *cargo, *str(mutant["test"]).split()]
        elif mutant["name"] in names and "pytest" in mutant:
            file, _, test = str(mutant["pytest"]).partition("::")
            tests[str(mutant["name"])] = [*pytest, str(ROOT / file), "-k", test]
    deadline = time.monotonic() + limit
    # The first run of a test also builds it; several bugs may have the same one.
    for command in dict.fromkeys(map(tuple, (suites, *tests.values()))):
        found, line = hunt(list(command), None, 2 * HUNT_SECONDS)
        if found or not line:
            print(f"mutants: {' '.join(command)} complains with no bug switched on: {line}")
            return 1
    caught = 0
    for name in names:
        left = min(TEST_SECONDS if name in tests else HUNT_SECONDS, deadline - time.monotonic())
        found, line = hunt(tests.get(name, suites), name, max(0.1, left))
        caught += found
        print(f"{'caught' if found else 'MISSED':7} {name:40} {line[:160]}", flush=True)
    print(f"mutants: {caught} of {len(names)} caught")
    return 0 if caught == len(names) else 1


if __name__ == "__main__":
    sys.exit(main())
