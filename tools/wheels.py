"""Builds the sdist and from it the wheels, checks them, and tries the wheel in bare environments outside the tree.

`python tools/wheels.py` does all of it; `make wheel` calls it with the tools of constraints-release.txt. On Linux zig links, so that a wheel runs on
glibc 2.28 and newer wherever it is built; the other architecture is built where rustup has its standard library, else a line says that it is not.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import tomllib
import zipfile
from email.parser import BytesParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WHEELS = ROOT / ".build/wheels"
UNPACKED = ROOT / ".build/sdist"
GLIBC = (2, 28)
# what the stripped library takes, compressed, is 6.7 MB (5 MB of them machine code, 1 MB constants); 4 MB is the aim
MOST_BYTES = 7_000_000
LINUX = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
PYTHONS = [f"python3.{minor}" for minor in range(11, 20)]
# those that the metadata names
SUPPORTED = [f"3.{minor}" for minor in range(11, 15)]

SMOKE = """
import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t", partitions=2)
    with fl.Producer(broker, {"enable.idempotence": True}) as producer:
        assert producer.send("t", value=b"v", key=b"k").result().offset == 0
    with fl.Consumer(broker, {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([("t", 0), ("t", 1)])
        assert [record.value for record in consumer.poll(timeout_ms=1000)] == [b"v"]
print(fl.__version__)
"""
PLUGIN = """
def test_a_broker_for_this_test(kafka):
    topic = kafka.topic(partitions=2)
    kafka.produce(topic, [b"one", ("key", b"two")])
    assert kafka.bootstrap.startswith("127.0.0.1:")
    assert sum(p.high_watermark for p in kafka.broker.describe_topic(topic).partitions) == 2
"""


def main() -> None:
    """All of it."""
    shutil.rmtree(WHEELS, ignore_errors=True)
    maturin("sdist")
    source = unpacked(next(WHEELS.glob("*.tar.gz")))
    readme = source / "README.md"
    readme.write_text(absolute(readme.read_text(encoding="utf-8"), tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))), encoding="utf-8")
    for target in targets():
        maturin("build", "--profile", "dist", "--locked", "--compression-level", "9", *target, folder=source)
    found = sorted(WHEELS.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *map(str, found))
    failures = [f"{path.name}: {failure}" for path in found for failure in breaches(path)]
    for failure in failures:
        print(f"wheels: {failure}", file=sys.stderr)
    if failures:
        sys.exit(1)
    wheel = next(path for path in found if path.suffix == ".whl" and platform.machine() in path.name)
    here = pythons()
    for python in here.values():
        try_out(python, wheel)
    for version in SUPPORTED:
        if version not in here:
            print(f"wheels: not tried on CPython {version}, which is neither on PATH nor in pyenv")
    for path in found:
        print(f"wheels: {path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")


def targets() -> list[list[str]]:
    """Arguments of maturin, per wheel."""
    if platform.system() != "Linux":
        return [[]]
    installed = run("rustup", "target", "list", "--installed").split() if shutil.which("rustup") else [LINUX[platform.machine()]]
    for name in set(LINUX.values()) - set(installed):
        print(f"wheels: no wheel for {name}: run `rustup target add {name}` first")
    return [["--zig", "--target", name, "--compatibility", f"manylinux_{GLIBC[0]}_{GLIBC[1]}"] for name in LINUX.values() if name in installed]


def unpacked(sdist: Path) -> Path:
    """The directory of an unpacked sdist. Files that were there and are the same stay as they are: cargo looks at their times."""
    with tarfile.open(sdist) as archive:
        for member in archive:
            path = UNPACKED / member.name
            if stream := archive.extractfile(member):
                content = stream.read()
                if not (path.is_file() and path.read_bytes() == content):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
        names = set(archive.getnames())
    for path in UNPACKED.rglob("*"):
        if path.is_file() and path.relative_to(UNPACKED).as_posix() not in names:
            path.unlink()
    return UNPACKED / sdist.name.removesuffix(".tar.gz")


def absolute(readme: str, project: dict[str, Any]) -> str:
    """The README as an index shows it: links to files of the repository become links to its pages, pictures to the files themselves."""
    repository = project["project"].get("urls", {}).get("Repository")
    if repository is None:
        return readme
    readme = re.sub(r"(!\[[^]]*\]\()(?!https://)", rf"\g<1>{repository}/raw/main/", readme)
    return re.sub(r"(\]\()(?!https://)", rf"\g<1>{repository}/blob/main/", readme)


def maturin(*words: str, folder: Path = ROOT) -> None:
    """Writes into `WHEELS`; it and zig are found beside this Python."""
    environment = os.environ | {"CARGO_TARGET_DIR": str(ROOT / ".build/maturin"), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    run("maturin", *words, "--out", str(WHEELS), folder=folder, environment=environment)


def breaches(path: Path) -> list[str]:
    """What is wrong with a wheel or an sdist."""
    if path.suffix != ".whl":
        with tarfile.open(path) as archive:
            names = {name.partition("/")[2] for name in archive.getnames()}
        needed = run("git", "ls-files", "-z").rstrip("\0").split("\0")
        return [f"{name} is missing" for name in needed if name not in names]
    found = []
    if path.stat().st_size > MOST_BYTES:
        found.append(f"{path.stat().st_size:,} bytes are more than {MOST_BYTES:,}")
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        info = next(name for name in names if name.endswith(".dist-info/METADATA"))
        found += metadata_breaches(archive.read(info))
        folder = info.removesuffix("METADATA")
        found += [
            f"there is no {part} in {folder}"
            for part in ("sboms/", "licenses/LICENSE", "entry_points.txt")
            if not any(n.startswith(folder + part) for n in names)
        ]
        library = next(name for name in names if "_core" in name and name.endswith(".so"))
        if "linux" in path.name:
            with tempfile.TemporaryDirectory() as scratch:
                found += library_breaches(Path(archive.extract(library, scratch)))
    return found


def metadata_breaches(text: bytes) -> list[str]:
    """What a reader of the index would miss."""
    metadata = BytesParser().parsebytes(text)
    minors = {f"Programming Language :: Python :: {version}" for version in SUPPORTED}
    found = [
        f"{name} is missing in METADATA"
        for name in ("Author", "License-Expression", "Requires-Python", "Summary", "Keywords", "Project-URL")
        if not metadata[name]
    ]
    found += [f"{name} is missing in METADATA" for name in sorted(minors - set(metadata.get_all("Classifier", [])))]
    links = re.findall(r"\]\((?!https://)[^)]*\)", str(metadata.get_payload()))
    return found + [f"README has a link that does not work outside the repository: {link}" for link in links]


def library_breaches(library: Path) -> list[str]:
    """Debug information, and symbols that an older glibc lacks, by readelf."""
    sections = run("readelf", "--section-headers", "--wide", str(library))
    versions = {(int(major), int(minor)) for major, minor in re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "--version-info", "--wide", str(library)))}
    found = ["it has debug information: [tool.maturin] strip"] if ".debug_info" in sections else []
    return [*found, *([f"it needs glibc {max(versions)}"] if max(versions, default=GLIBC) > GLIBC else [])]


def pythons() -> dict[str, str]:
    """Every CPython from 3.11 on, on PATH or in pyenv: one for each minor version, by version."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [*map(shutil.which, PYTHONS), *map(str, sorted(pyenv.glob("3.*/bin/python")))]
    found: dict[str, str] = {}
    for python in filter(None, candidates):
        asked = subprocess.run(
            [python, "-c", "import sys; print(sys.implementation.name, '%d.%d' % sys.version_info[:2])"], capture_output=True, text=True, check=False
        )
        name, _, version = asked.stdout.strip().partition(" ")
        if name == "cpython" and tuple(map(int, version.split("."))) >= (3, 11):
            found.setdefault(version, python)
    return dict(sorted(found.items()))


def try_out(python: str, wheel: Path) -> None:
    """Installs the wheel into a bare environment outside the tree: import, a record there and back, the command, the plugin of pytest."""
    with tempfile.TemporaryDirectory() as folder:
        run(python, "-m", "venv", "environment", folder=folder)
        bin_ = Path(folder, "environment", Path(sysconfig.get_path("scripts")).name)
        run(str(bin_ / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel), folder=folder)
        version = run(str(bin_ / "python"), "-c", SMOKE, folder=folder).strip()
        run(str(bin_ / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "pytest", f"{wheel}[cli]", folder=folder)
        run(str(bin_ / "fletchlog"), "topics", "create", "data", "t", folder=folder)
        listed = run(str(bin_ / "fletchlog"), "topics", "list", "data", "--json", folder=folder)
        if '"topic": "t"' not in listed:
            sys.exit(f"wheels: {python}: `fletchlog topics list` says {listed}")
        Path(folder, "test_plugin.py").write_text(PLUGIN)
        run(str(bin_ / "python"), "-m", "pytest", "-q", "test_plugin.py", folder=folder)
        print(f"wheels: {python}: {wheel.name} works ({version})")


def run(*command: str, folder: str | Path = ROOT, environment: dict[str, str] | None = None) -> str:
    """Standard output of a command; one that fails ends this one, with what it said."""
    done = subprocess.run(command, cwd=folder, env=environment or _outside(), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}wheels: {' '.join(command)} failed with code {done.returncode}")
    return done.stdout


def _outside() -> dict[str, str]:
    """The environment without what could find the package in the tree."""
    return {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME"}}


if __name__ == "__main__":
    main()
