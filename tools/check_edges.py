"""Checks the direction of dependence between the crates, and between the modules of the broker, and the places that may touch the operating system.

Run by `make test`. Exits 1 and names every breach. The rules are drawn in ARCHITECTURE.md.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PREFIX = "fletchlog-"

# crate -> crates of ours it may use (development dependencies count too, except in `sim`, which is for tests only)
ALLOWED: dict[str, set[str]] = {
    "records": set(),
    "protocol": {"records"},
    "sasl": set(),
    "api": {"records", "protocol"},
    "log": {"records"},
    "arrow": {"records"},
    "broker": {"records", "api", "protocol", "log", "sasl"},
    "tls": {"api"},
    "client": {"records", "api", "protocol"},
    "server": {"records", "api", "broker", "protocol", "sasl", "tls"},
    "net": {"records", "api", "protocol", "sasl", "tls"},
    "jni": {"records", "api", "log", "arrow", "broker"},
    "python": {"server", "net", "protocol", "sasl", "records", "api", "log", "arrow", "broker", "client"},
    "sim": {"records", "protocol", "sasl", "api", "log", "arrow", "broker", "client", "server", "net", "tls"},
}
# outside crates that only these crates may use
RESERVED = {
    "hmac": {"sasl"},
    "pbkdf2": {"sasl"},
    "rustls": {"tls"},
    "mio": {"server", "net"},
    "socket2": {"server", "net"},
    "pyo3": {"python"},
    "arrow-": {"arrow", "jni", "python", "sim"},
    "rustix": {"log", "python", "server"},
}
# modules of a crate that may use those behind them only: what serves requests, what owns state, what owns files
LAYERS = {"broker": ["broker", "local_transport", "port", "kafka_apis", "transaction", "group", "replica_manager", "log_manager"]}
# calls that only the named files may contain: the core takes time, randomness and files as arguments
BANNED = {
    r"SystemTime::now|Instant::now": {"api/src/transport.rs", "log/src/fs/memory.rs"},
    r"\bstd::fs\b|\bFile::open\b|OpenOptions::new": {
        "log/src/fs/real.rs",
        "log/src/fs/file_cache.rs",
        "log/src/fs/ofd_lock.rs",
        "client/src/group/legacy/consumer_id.rs",
        "tls/src/stores.rs",
    },
    r"thread::sleep": set(),
    r"\btokio\b|\basync fn\b": set(),
}


def dependencies(manifest: Path) -> list[str]:
    """Names of every dependency of one crate, development and build ones included."""
    parsed = tomllib.loads(manifest.read_text())
    return [name for table in ("dependencies", "dev-dependencies", "build-dependencies") for name in parsed.get(table, {})]


def breaches_of_direction() -> list[str]:
    """Dependencies that point the wrong way."""
    found = []
    crates = sorted(path.parent.name for path in (ROOT / "rust").glob("*/Cargo.toml"))
    if set(crates) != set(ALLOWED):
        found.append(f"crates are {crates}, but the rules name {sorted(ALLOWED)}: add the new crate's rule")
    for crate in crates:
        for name in dependencies(ROOT / "rust" / crate / "Cargo.toml"):
            ours = name.removeprefix(PREFIX) if name.startswith(PREFIX) else None
            if ours is not None and ours not in ALLOWED.get(crate, set()):
                found.append(f"rust/{crate} must not depend on rust/{ours}")
            for reserved, users in RESERVED.items():
                if name.startswith(reserved) and crate not in users:
                    found.append(f"rust/{crate} must not depend on {name}: only {', '.join(sorted(users))} may")
    return found


def code_lines(path: Path) -> list[tuple[int, str]]:
    """Lines of a Rust file without comments, up to its test module."""
    lines = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.strip() == "#[cfg(test)]":
            break
        lines.append((number, line.split("//")[0]))
    return lines


def breaches_of_purity() -> list[str]:
    """Clocks, files, sleeps and runtimes outside the files that may have them."""
    found = []
    for path in sorted((ROOT / "rust").glob("*/src/**/*.rs")):
        name = path.relative_to(ROOT / "rust").as_posix()
        if path.stem == "tests" or "/tests/" in name or name.startswith(("sim/", "python/")):
            continue
        for number, line in code_lines(path):
            found += [
                f"rust/{name}:{number}: `{pattern}` is not allowed here" for pattern, files in BANNED.items() if name not in files and re.search(pattern, line)
            ]
    return found


def breaches_of_layers() -> list[str]:
    """Uses of a module in front of the one that uses it."""
    found = []
    for crate, layers in LAYERS.items():
        source = ROOT / "rust" / crate / "src"
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if parts[0] not in layers or path.stem == "tests" or "tests" in parts:
                continue
            for number, line in code_lines(path):
                used = [name for name in re.findall(r"\bcrate::(\w+)", line) if name in layers]
                found += [
                    f"rust/{crate}/src/{path.relative_to(source)}:{number}: {parts[0]} must not use {name}, which is in front of it"
                    for name in used
                    if layers.index(name) < layers.index(parts[0])
                ]
    return found


def main() -> int:
    """Prints what was found."""
    found = breaches_of_direction() + breaches_of_layers() + breaches_of_purity()
    for breach in found:
        print(f"check_edges: {breach}", file=sys.stderr)
    print(f"check_edges: {len(ALLOWED)} crates, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
