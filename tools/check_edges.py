"""Checks the direction of dependence between the crates, and between the modules of some, and the places that may touch the operating system.

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
    "testing": {"api"},
    "log": {"records"},
    "arrow": {"records"},
    "broker": {"records", "api", "protocol", "log", "sasl", "testing"},
    "tls": {"api"},
    "client": {"records", "api", "protocol", "testing"},
    "server": {"records", "api", "broker", "protocol", "sasl", "tls"},
    "net": {"records", "api", "protocol", "sasl", "tls"},
    "jni": {"records", "api", "log", "arrow", "broker"},
    "python": {"server", "net", "protocol", "sasl", "records", "api", "log", "arrow", "broker", "client"},
    "sim": {"records", "protocol", "sasl", "api", "log", "arrow", "broker", "client", "server", "net", "tls", "testing"},
}
# crates for tests: development dependencies of all others
FOR_TESTS = {"testing", "sim"}
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
# all modules of a crate: each may use those behind it only (a file and the files in its directory are one module)
LAYERS = {
    "broker": [
        *("local_transport", "port", "broker", "kafka_apis"),
        *("transaction", "group"),
        *("replica_manager", "metrics", "failures"),
        *("controller", "refresh_once", "config_description"),
        *("log_manager", "topics", "each_log", "panics", "partition"),
        *("directory", "topic_names", "security", "uuid", "dynamic_config", "topic_config", "sync", "error"),
    ],
    "log": [
        # what looks at files that no log has open
        *("verify", "dump", "tiered"),
        # what is done with an open log
        *("scan", "seal", "close", "cleaner", "retention", "append", "validator", "read", "timestamps"),
        # how a log is opened
        *("loader", "refresh", "loaded", "load_decision", "recovery", "load_plan"),
        # an open log
        *("roll", "flush", "writer_guard", "partition_log", "durable", "view", "bounds"),
        # what it consists of
        *("leader_epoch", "segment", "segment_indexes", "segment_files", "producer_state", "producer_snapshot", "append_origin"),
        *("txn_index", "time_index", "offset_index", "batch_walk", "checkpoint"),
        # what all of them use
        *("fs", "sync", "config", "file_name", "error"),
    ],
    "records": [
        *("committed", "control", "rebuild", "retained", "batch", "legacy", "batch_builder", "encode", "record", "records_slice"),
        *("time_range", "timestamp_merge", "batch_header", "compression", "varint", "crc", "field", "ids", "error", "error_code", "planted"),
    ],
    "arrow": ["json_lines", "import", "export", "decode", "constants", "columns", "headers", "bytes_column", "schema", "pool"],
}
# calls that only the named files may contain: the core takes time, randomness and files as arguments
BANNED = {
    r"SystemTime::now|Instant::now": {"api/src/transport.rs", "log/src/fs/memory.rs"},
    r"\bstd::fs\b|\bFile::open\b|OpenOptions::new": {
        "log/src/fs/real.rs",
        "log/src/fs/file_cache.rs",
        "log/src/fs/ofd_lock.rs",
        "log/src/fs/os_file.rs",
        "client/src/group/legacy/consumer_id.rs",
        "tls/src/stores.rs",
    },
    r"thread::sleep": set(),
    r"\btokio\b|\basync fn\b": set(),
}


def dependencies(manifest: Path) -> list[tuple[str, str]]:
    """Every dependency of one crate: its table in the manifest, and its name."""
    parsed = tomllib.loads(manifest.read_text())
    return [(table, name) for table in ("dependencies", "dev-dependencies", "build-dependencies") for name in parsed.get(table, {})]


def breaches_of_direction() -> list[str]:
    """Dependencies that point the wrong way."""
    found = []
    crates = sorted(path.parent.name for path in (ROOT / "rust").glob("*/Cargo.toml"))
    if set(crates) != set(ALLOWED):
        found.append(f"crates are {crates}, but the rules name {sorted(ALLOWED)}: add the new crate's rule")
    for crate in crates:
        for table, name in dependencies(ROOT / "rust" / crate / "Cargo.toml"):
            ours = name.removeprefix(PREFIX) if name.startswith(PREFIX) else None
            if ours is not None and ours not in ALLOWED.get(crate, set()):
                found.append(f"rust/{crate} must not depend on rust/{ours}")
            if ours in FOR_TESTS and crate not in FOR_TESTS and table != "dev-dependencies":
                found.append(f"rust/{crate} may use rust/{ours} in tests only: make it a development dependency")
            for reserved, users in RESERVED.items():
                if name.startswith(reserved) and crate not in users:
                    found.append(f"rust/{crate} must not depend on {name}: only {', '.join(sorted(users))} may")
    return found


def code_lines(path: Path) -> list[tuple[int, str]]:
    """Lines of a Rust file without comments, up to its test module."""
    lines = []
    text = path.read_text().splitlines()
    for number, line in enumerate(text, start=1):
        if line.strip() == "#[cfg(test)]" and text[number].endswith("{"):
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


def shown_by(source: Path) -> dict[str, str]:
    """Which module a name comes from that the crate shows at its root."""
    text = "\n".join(line for _, line in code_lines(source / "lib.rs"))
    return {name: module for module, names in re.findall(r"\bpub use (\w+)::([^;]+);", text) for name in re.findall(r"\w+", names)}


def uses_of_root(path: Path, depth: int) -> list[tuple[int, str]]:
    """Names directly below the root of the crate that a file uses, with their lines. `depth`: how many modules it is below the root."""
    numbered = code_lines(path)
    text = "\n".join(line for _, line in numbered)
    found = []
    for match in re.finditer(rf"\b(?:crate|super(?:::super){{{depth - 1}}})::(\w+|\{{)", text):
        line = numbered[text.count("\n", 0, match.start())][0]
        if match[1] != "{":
            found.append((line, match[1]))
            continue
        group = text[match.end() :].split(";")[0]
        while group != (inner := re.sub(r"\{[^{}]*\}", "", group)):
            group = inner
        found += [(line, name) for name in re.findall(r"(?:^|,)\s*(\w+)", group.split("}")[0])]
    return found


def breaches_of_layers() -> list[str]:
    """Uses of a module in front of the one that uses it, and modules that are not listed."""
    found = []
    for crate, layers in LAYERS.items():
        source = ROOT / "rust" / crate / "src"
        shown = shown_by(source)
        modules = {path.relative_to(source).with_suffix("").parts[0] for path in source.rglob("*.rs")} - {"lib"}
        found += [f"rust/{crate}/src/{name} is not in LAYERS: add it where it belongs" for name in sorted(modules - set(layers))]
        found += [f"rust/{crate}/src has no {name}: take it out of LAYERS" for name in sorted(set(layers) - modules)]
        for path in sorted(source.rglob("*.rs")):
            parts = path.relative_to(source).with_suffix("").parts
            if parts[0] not in layers or path.stem == "tests" or "tests" in parts:
                continue
            depth = len(parts) - (parts[-1] == "mod")
            for number, name in uses_of_root(path, depth):
                used = shown.get(name, name)
                if used in layers and layers.index(used) < layers.index(parts[0]):
                    found.append(f"rust/{crate}/src/{path.relative_to(source)}:{number}: {parts[0]} must not use {used}, which is in front of it")
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
