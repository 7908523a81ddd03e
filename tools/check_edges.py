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
    "serde": set(),
    "broker": {"records", "api", "protocol", "log", "sasl", "testing"},
    "tls": {"api"},
    "client": {"records", "api", "protocol", "testing"},
    "faults": {"records", "api", "protocol", "testing"},
    "server": {"records", "api", "broker", "faults", "protocol", "sasl", "session", "tls"},
    "net": {"records", "api", "protocol", "sasl", "tls"},
    "proxy": {"api", "faults", "protocol", "session", "tls"},
    "session": {"records", "api", "protocol"},
    "jni": {"records", "api", "log", "arrow", "broker", "serde"},
    "python": {"server", "session", "serde", "faults", "net", "proxy", "protocol", "sasl", "records", "api", "log", "arrow", "broker", "client"},
    "sim": {"records", "protocol", "sasl", "api", "log", "arrow", "serde", "broker", "client", "faults", "server", "session", "net", "tls", "testing"},
}
# crates for tests: development dependencies of all others
FOR_TESTS = {"testing", "sim"}
# outside crates that only these crates may use
RESERVED = {
    "hmac": {"sasl"},
    "pbkdf2": {"sasl"},
    "rustls": {"tls"},
    "mio": {"server", "net", "proxy"},
    "socket2": {"server", "net"},
    "pyo3": {"python"},
    "corosensei": {"python"},
    "arrow-": {"arrow", "serde", "jni", "python", "sim"},
    "rustix": {"log", "python", "server"},
}
# all modules of a crate: each may use those behind it only (a file and the files in its directory are one module, but for those listed themselves)
LAYERS = {
    "broker": [
        *("local_transport", "port", "broker", "kafka_apis"),
        *("transaction", "share", "group"),
        *("share_coordinator",),
        *("replica_manager", "metrics", "failures"),
        *("controller", "refresh_once", "config_description"),
        *("log_manager", "topics", "each_log", "panics", "partition", "loading"),
        *("directory", "topic_names", "security", "uuid", "dynamic_config", "features", "topic_config", "node_ids", "sync", "error"),
    ],
    "log": [
        # what looks at files that no log has open
        *("verify", "dump", "tiered"),
        # what is done with an open log
        *("scan", "seal", "truncate", "close", "cleaner", "retention", "append", "validator", "read", "timestamps"),
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
        *("time_range", "timestamp_merge", "batch_header", "compression", "varint", "crc", "field", "ids", "error", "error_code", "mix", "planted"),
    ],
    "client": [
        # other ways to use the clients
        *("producer", "share_consumer", "group/legacy"),
        # the consumer's calls
        *("consumer/derived_polls",),
        *("consumer/range_scan", "consumer/until", "consumer/poll", "consumer/positions", "consumer/offsets_for_times", "consumer/consumer"),
        # what a poll does
        *("consumer/abstract_fetch", "consumer/timestamp_collector", "consumer/fair_collector", "consumer/fetch_collector"),
        *("consumer/offset_reset", "consumer/offset_validation", "consumer/offset_lookup", "consumer/leader_questions", "consumer/missing"),
        # the state of a consumer
        *("consumer/consumer_state", "consumer/fetch_buffer", "consumer/completed_fetch", "consumer/fetch_session_handler"),
        *("consumer/settings", "consumer/trace", "consumer/wakeup"),
        # the member of a group, and what it shares with the consumer
        *("group", "assignor", "consumer/subscription_state", "consumer/decision_table", "consumer/topic_pattern"),
        *("consumer/consumer_network_client", "consumer/metadata", "consumer"),
        # what all clients use
        *("net", "metrics", "random", "backoff", "error"),
    ],
    "arrow": ["import", "export", "decode", "constants", "columns", "headers", "bytes_column", "schema", "pool"],
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
        "session/src/file.rs",
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


def shown_by(source: Path) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Names that a module shows in place of one of its own modules, and where they come from."""
    shown: dict[tuple[str, ...], tuple[str, ...]] = {}
    for path in [source / "lib.rs", *source.rglob("mod.rs")]:
        at = path.parent.relative_to(source).parts
        text = "\n".join(line for _, line in code_lines(path))
        for module, names in re.findall(r"\bpub use (\w+)::([^;]+);", text):
            shown |= {(*at, name): (*at, module, name) for name in re.findall(r"\w+", names) if module not in ("crate", "super", "self")}
    return shown


def uses_in_crate(path: Path, module: tuple[str, ...]) -> list[tuple[int, tuple[str, ...]]]:
    """Names of the crate that a file uses, from the root of the crate on, with their lines. `module`: the file's own."""
    numbered = code_lines(path)
    text = "\n".join(line for _, line in numbered)
    found = []
    for match in re.finditer(r"\b(crate|super(?:::super)*)::((?:\w+::)*)(\w+|\{)", text):
        line = numbered[text.count("\n", 0, match.start())][0]
        base = () if match[1] == "crate" else module[: -match[1].count("super")]
        base += tuple(match[2].split("::")[:-1])
        if match[3] != "{":
            found.append((line, (*base, match[3])))
            continue
        group = text[match.end() :].split(";")[0]
        while group != (inner := re.sub(r"\{[^{}]*\}", "", group)):
            group = inner
        found += [(line, (*base, *name.strip(":").split("::"))) for name in re.findall(r"(?:^|,)\s*(\w[\w:]*)", group.split("}")[0])]
    return found


def listed(name: tuple[str, ...], layers: list[str], shown: dict[tuple[str, ...], tuple[str, ...]]) -> str | None:
    """The module of the list that has the name: the innermost one."""
    for _ in range(len(name) + 1):
        end = next((end for end in range(1, len(name) + 1) if name[:end] in shown), 0)
        name = shown.get(name[:end], ()) + name[end:]
    paths = ["/".join(name[:end]) for end in range(len(name), 0, -1)]
    return next((path for path in paths if path in layers), None)


def breaches_of_layers() -> list[str]:
    """Uses of a module in front of the one that uses it, and modules that are not listed."""
    found = []
    for crate, layers in LAYERS.items():
        source = ROOT / "rust" / crate / "src"
        shown = shown_by(source)
        files = {path: path.relative_to(source).with_suffix("").parts for path in sorted(source.rglob("*.rs"))}
        modules = {parts[0] for parts in files.values()} - {"lib"}
        there = {"/".join(parts[:end]) for parts in files.values() for end in range(1, len(parts) + 1)}
        found += [f"rust/{crate}/src/{name} is not in LAYERS: add it where it belongs" for name in sorted(modules - set(layers))]
        found += [f"rust/{crate}/src has no {name}: take it out of LAYERS" for name in sorted(set(layers) - there)]
        for path, parts in files.items():
            own = listed(parts, layers, {})
            if own is None or path.stem == "tests" or "tests" in parts:
                continue
            for number, name in uses_in_crate(path, parts[: -1 if parts[-1] == "mod" else None]):
                used = listed(name, layers, shown)
                if used is not None and layers.index(used) < layers.index(own):
                    found.append(f"rust/{crate}/src/{path.relative_to(source)}:{number}: {own} must not use {used}, which is in front of it")
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
