"""Builds the jar of the Spark format `fletchlog-columnar` into `.build/jvm`, and the wheel that carries it.

`make jar` calls it with the Python that has PySpark: its jars are what the Java sources are compiled against.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / ".build/jvm"
JAR = BUILD / "fletchlog-spark.jar"
PACKAGE = "fletchlog_spark_jar"
MACOS = sys.platform == "darwin"
# a date that a zip file can have, so that the same sources give the same bytes
DATE = (1980, 1, 1, 0, 0, 0)


def main() -> None:
    """All of it."""
    shutil.rmtree(BUILD, ignore_errors=True)
    classes = BUILD / "classes"
    classes.mkdir(parents=True)
    sources = sorted(map(str, (ROOT / "jvm/src").rglob("*.java")))
    # what Spark's own jars name and do not bring is no matter of ours
    lints = "-Xlint:all,-path,-classfile,-processing"
    jars = Path(pyspark.__file__).parent / "jars"
    run("javac", "--release", "17", lints, "-Werror", "-cp", f"{jars}/*", "-d", str(classes), *sources)
    shutil.copytree(ROOT / "jvm/resources", classes, dirs_exist_ok=True)
    native = classes / "native" / system()
    native.mkdir(parents=True)
    shutil.copy(library(), native)
    write(JAR, {path.relative_to(classes).as_posix(): path.read_bytes() for path in sorted(classes.rglob("*")) if path.is_file()})
    for path in (JAR, wheel()):
        print(f"jar: {path.relative_to(ROOT)}  {path.stat().st_size:,} bytes")


def system() -> str:
    """This machine's operating system and architecture, as Java calls them (`Native.java`)."""
    if MACOS:
        return "mac-" + {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    return f"{platform.system().lower()}-" + {"x86_64": "amd64"}.get(platform.machine(), platform.machine())


def library() -> Path:
    """The library that Java loads, without symbols."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    profile = os.environ.get("PROFILE", "release")
    run("cargo", "rustc", "--profile", profile, "--locked", "--quiet", "-p", "fletchlog-jni", "--crate-type", "cdylib", "--", "-C", "strip=symbols")
    return target / profile / ("libfletchlog_jni.dylib" if MACOS else "libfletchlog_jni.so")


def wheel() -> Path:
    """A package with the jar and where it is. No release of Python matters to it, the platform does."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    tag = f"py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
    metadata = f"""Metadata-Version: 2.4
Name: {PACKAGE.replace("_", "-")}
Version: {version}
Summary: The jar of the Spark format fletchlog-columnar, for Spark {pyspark.__version__.rpartition(".")[0]}
License-Expression: Apache-2.0
License-File: LICENSE
Requires-Python: >=3.11
Requires-Dist: fletchlog[spark] == {version}
"""
    info = f"{PACKAGE}-{version}.dist-info"
    files = {
        f"{PACKAGE}/__init__.py": (ROOT / "jvm" / PACKAGE / "__init__.py").read_bytes(),
        f"{PACKAGE}/{JAR.name}": JAR.read_bytes(),
        f"{info}/METADATA": metadata.encode(),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: fletchlog\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(),
        f"{info}/licenses/LICENSE": (ROOT / "LICENSE").read_bytes(),
    }
    lines = [f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b'=').decode()},{len(data)}" for name, data in files.items()]
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""]).encode()
    target = BUILD / f"{PACKAGE}-{version}-{tag}.whl"
    write(target, files)
    return target


def write(archive: Path, files: dict[str, bytes]) -> None:
    """A zip file of these."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in files.items():
            out.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED)


def run(*command: str) -> None:
    """Runs a tool, which says itself what is wrong."""
    if shutil.which(command[0]) is None:
        sys.exit(f"jar: {command[0]} is missing. Install Rust (stable) and a JDK 17 or newer, then run make jar again.")
    if subprocess.run(command, cwd=ROOT, check=False).returncode:
        sys.exit(f"jar: {command[0]} failed")


if __name__ == "__main__":
    main()
