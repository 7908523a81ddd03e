"""Checks that every property of the configuration table has a reader in the product.

Run by `make lint`. Exits 1 and names every property that is documented and read nowhere. A reader is a call of `Config` in code that
ships (`config.long("linger.ms")`, also through one of the `HELPERS`) for the scope that the property belongs to: the producer's
`reconnect.backoff.ms` is not read because the consumer's is. A name that is only in the table, a test, a document, a default
or somebody's configuration is not read. What becomes of a value that was read is the compiler's business: it reports unused
fields and variables.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from rust_text import Source, blank, product

ROOT = Path(__file__).resolve().parent.parent
TABLE = "rust/api/src/config_table"
# where scopes are read: the first path that fits. In the broker's crate the receiver says which of two it is.
READERS = {
    "rust/client/src/group/legacy": "legacy_consumer",
    "rust/client/src/consumer": "consumer",
    "rust/client/src/share_consumer": "consumer",
    "rust/client/src/net": "consumer producer",  # both have it
    "rust/client/src/group": "consumer",
    "rust/client/src/producer": "producer",
    "rust/python/src/consumer.rs": "consumer",
    "rust/python/src/producer.rs": "producer",
    "rust/python/src/legacy.rs": "legacy_consumer",
    "rust/python/src/client_arguments.rs": "consumer producer",
    "rust/python/src/oauth.rs": "consumer producer",
    "rust/broker": "broker",
    "rust/server": "broker",
    "rust/tls": "broker consumer producer",
    "rust/net": "consumer producer",  # both connect alike
}
METHODS = "get|text|boolean|int|long|double|list|release"
# functions and closures that read the properties they are given the names of: (file, name) -> scope of each argument
HELPERS: dict[tuple[str, str], tuple[str, ...]] = {
    ("rust/broker/src/topic_config.rs", "pick"): ("topic", "broker"),
    ("rust/broker/src/topic_config.rs", "long"): ("topic", "broker"),
    ("rust/broker/src/topic_config.rs", "int"): ("topic", "broker"),
    ("rust/broker/src/topic_config.rs", "time_limit"): ("topic", "broker"),
    ("rust/broker/src/transaction/coordinator.rs", "interval"): ("broker",),
    ("rust/server/src/limits.rs", "size"): ("broker",),
}
# property -> why it may be in the table without a reader; its documentation has to say that it has no effect
WITHOUT_EFFECT = {
    "topic errors.deadletterqueue.group.enable": "there are no share groups",
    "topic follower.replication.throttled.replicas": "nothing is replicated",
    "topic leader.replication.throttled.replicas": "nothing is replicated",
    "topic local.retention.bytes": "there is no tiered storage",
    "topic local.retention.ms": "there is no tiered storage",
    "topic preallocate": "only its default is accepted",
    "topic remote.copy.lag.bytes": "there is no tiered storage",
    "topic remote.copy.lag.ms": "there is no tiered storage",
    "topic remote.log.copy.disable": "there is no tiered storage",
    "topic remote.log.delete.on.disable": "there is no tiered storage",
    "topic remote.storage.enable": "there is no tiered storage",
    "legacy_consumer zookeeper.connect": "there is no ZooKeeper",
}
_STRING = r'"([^"\\]*)"'


def properties(root: Path) -> list[str]:
    """Every row of the table: its scope and its name."""
    found = []
    for path in sorted((root / TABLE).glob("*.rs")):
        text = blank(path.read_text(), strings=False).split("#[cfg(test)]")[0]
        rows = re.findall(rf"^ {{4}}(?:row|key)\(\s*{_STRING}", text, re.MULTILINE)
        if len(rows) != len(re.findall(r"^ {4}\w+\(", text, re.MULTILINE)) or not rows:
            raise SystemExit(f'check_config: {path} has rows in another form than `row("name", ..)`: adapt tools/check_config.py')
        found += [f"{path.stem} {name}" for name in rows]
    return found


def reads(source: Source) -> set[str]:
    """The properties that a file reads."""
    scopes_here = next((scope for path, scope in READERS.items() if source.name.startswith(path)), "")
    found = set()
    for scope in scopes_here.split():
        for receiver, name in re.findall(rf"(\w+)(?:\(\))?\s*\.(?:{METHODS})\(\s*{_STRING}\s*\)", source.text):
            found.add(f"{'topic' if scope == 'broker' and receiver == 'topic' else scope} {name}")
    for (file, helper), scopes in HELPERS.items():
        if file == source.name:
            for arguments in re.findall(rf"(?<![\w.])(?<!fn ){helper}\(([^()]*)\)", source.text):
                given = [argument.strip() for argument in arguments.split(",") if argument.strip()][-len(scopes) :]
                found |= {f"{scope} {text[1:-1]}" for scope, text in zip(scopes, given, strict=False) if text.startswith('"')}
    return found


def breaches(root: Path) -> tuple[int, list[str]]:
    """How many properties there are, and what is wrong."""
    rows = properties(root)
    sources = product(root, ["broker", "client", "net", "python", "server", "tls"])
    read = {name for source in sources for name in reads(source)}
    found = [
        f"`{row.split()[1]}` of a {row.split()[0]} is read nowhere: read it, or remove the row" for row in rows if row not in read and row not in WITHOUT_EFFECT
    ]
    found += [
        f"`{row}` is excepted ({reason}), but is read or gone: remove the entry" for row, reason in WITHOUT_EFFECT.items() if row in read or row not in rows
    ]
    texts = {source.name: source.code for source in sources}
    for file, helper in HELPERS:
        if not re.search(rf"\b(?:fn|let) {helper}\b", texts.get(file, "")):
            found.append(f"{file} has no `{helper}` any more: remove the helper from tools/check_config.py")
    return len(rows), found


def main() -> int:
    """Prints what was found."""
    rows, found = breaches(ROOT)
    for breach in found:
        print(f"check_config: {breach}", file=sys.stderr)
    print(f"check_config: {rows} properties, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
