"""Checks that every `pub fn` of the library crates has a caller in the product.

Run by `make lint`. Exits 1 and names every function without one. (Of what is not `pub` the compiler says so itself.) A caller is
code that ships: not a test, not `rust/sim`, no bench, no example, and not the function itself. What only the simulation or a
recorded run of Kafka needs is in `EXCEPTED` with its reason; an entry that is no longer needed is a breach, too.

Names are searched in text, so types are guessed:

- `Type::name` and `Self::name` are exact, but for types that have the same name. So is `with name` in the table of a message.
- `.name(..)` counts for the type of its receiver. Its candidates are the types that are in the declarations of the receiver's
  name (parameters and `let` of the function around, fields and functions of the product): every type in
  `Option<Arc<Log>>` is one. A name that one type alone defines needs no receiver, unless the standard library has a method of it.
- A receiver that cannot be guessed (the argument of a closure) counts for every type that its file names.

So a method whose name is shared may be found called although only its namesake is: what is reported is dead, what is not
reported is probably alive.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

from rust_text import Function, Source, closing, product

ROOT = Path(__file__).resolve().parent.parent
CHECKED = ["records", "protocol", "log", "broker", "client", "net", "arrow", "faults", "session", "proxy", "serde", "tls"]
SHIPPED = [*CHECKED, "api", "sasl", "server", "jni", "python"]
# type or function -> why the product needs no call of it
EXCEPTED = {
    **dict.fromkeys(
        ("Producer::stepped", "Producer::run_for", "Producer::run_until_idle", "Producer::has_incomplete"),
        "a producer without a thread, for deterministic runs",
    ),
    "Broker::create_topic": "one topic as most tests make it; the product makes many at once",
    "file_of": "a session of given bytes, for the fuzz target of its reader",
    **dict.fromkeys(("schema_json", "value_schema_json"), "the tables, for the comparison with Kafka's own definitions (judges/interop)"),
    "record_size": "sizes of the batches of recorded logs, which rust/sim builds again",
}
# methods of the standard library's types: any `.len()` would do for a `len` of ours
STANDARD = {
    *("and_then", "append", "as_bytes", "as_slice", "as_str", "bytes", "chain", "clear", "clone", "collect", "contains", "count", "drain"),
    *("end", "entry", "extend", "filter", "find", "finish", "first", "flush", "get", "get_mut", "insert", "is_empty", "iter", "join", "key"),
    *("keys", "last", "len", "lock", "map", "max", "min", "next", "partition", "position", "pop", "push", "read", "remove", "retain", "skip"),
    *("split", "start", "swap", "take", "values", "wait", "with", "write"),
}
_TYPE = re.compile(r"\b[A-Z]\w*[a-z]\w*")
_WORD = re.compile(r"\b[a-z_]\w*")


class Types:
    """Which types a name may have: every type that its declarations mention."""

    def __init__(self, sources: list[Source]) -> None:
        self.fields: dict[str, set[str]] = defaultdict(set)
        self.inside: dict[str, set[str]] = defaultdict(set)  # of `struct Name(..)`
        self.returned: dict[str, set[str]] = defaultdict(set)
        for source in sources:
            for found in re.finditer(r"\bstruct (\w+)(?:<[^>]*>)?\(([^;]*)\);", source.code):
                self.inside[found[1]] |= set(_TYPE.findall(found[2]))
            for found in re.finditer(r"\b(?:struct|enum) \w+[^;{(]*\{", source.code):
                body = source.code[found.end() : closing(source.code, found.end() - 1)]
                for field in re.finditer(r"\b([a-z_]\w*)\s*:(?!:)([^:{}]*?(?:::[^:{}]*?)*)(?:,\n|\n|$)", body):
                    self.fields[field[1]] |= set(_TYPE.findall(field[2]))
            for function in source.functions:
                signature = source.code[function.start : function.end].split("{", 1)[0]
                result = signature.rpartition("->")[2] if "->" in signature else ""
                own = {function.owner} if function.owner and "Self" in result else set()
                self.returned[function.name] |= (set(_TYPE.findall(result)) - {"Self"}) | own

    def of_expression(self, code: str, local: dict[str, set[str]]) -> set[str]:
        """The types that the parts of an expression mention."""
        found = set(_TYPE.findall(code))
        for word in _WORD.finditer(code):
            called = code[word.end() :].lstrip().startswith(("(", "::<"))
            after_dot = code[: word.start()].rstrip().endswith(".")
            if called:
                found |= self.returned[word[0]]
            elif after_dot:
                found |= self.fields[word[0]]
            else:
                found |= local.get(word[0]) or self.fields[word[0]]  # `let Self { field, .. } = self`
        if re.search(r"\.\d", code):
            found |= {inside for name in found for inside in self.inside[name]}
        return found

    def locals(self, source: Source, function: Function) -> dict[str, set[str]]:
        """The types of a function's names: what is annotated, and what `let`, `for` and `match` bind."""
        code = source.code[function.start : function.end]
        local: dict[str, set[str]] = defaultdict(set)
        if function.owner:
            local["self"] = {function.owner}
        for found in re.finditer(r"\b([a-z_]\w*)\s*:(?!:)\s*([^=;{)|\n]*)", code):
            local[found[1]] |= set(_TYPE.findall(found[2]))
        binding = r"\b(?:let|for)\s+([^=;{]+?)\s*(?:=|\bin\b)\s*([^;{]*)"
        for _ in range(2):
            for found in re.finditer(binding, code):
                types = self.of_expression(found[2], local)
                for name in _WORD.findall(found[1].split(": ")[0]):
                    local[name] |= types
            # arguments of a closure: of the types of what it is handed to
            for found in re.finditer(r"\(\s*(?:\w+,\s*)?(?:move )?\|([^|;{}]*)\|", code):
                called = re.search(r"\.\w+(?:::<[^()]*>)?$", code[: found.start()].rstrip())
                types = self.of_expression(receiver(code, called.start()), local) if called else set()
                for name in _WORD.findall(found[1]):
                    local[name] |= types
        return local


def receiver(code: str, dot: int) -> str:
    """The expression in front of a dot: names, calls and indexes, as far as they hang together."""
    at = dot
    while at > 0:
        before = code[at - 1]
        if before in ")]":
            depth, pair = 0, {")": "(", "]": "["}[before]
            while at > 0:
                at -= 1
                depth += {before: 1, pair: -1}.get(code[at], 0)
                if depth == 0:
                    break
        elif before.isalnum() or before in "_.?:&" or (before.isspace() and code[at:].lstrip().startswith(".")):
            at -= 1
        else:
            break
    return code[at:dot].strip()


class Callers:
    """Finds who calls what."""

    def __init__(self, sources: list[Source]) -> None:
        self.sources, self.types = sources, Types(sources)
        self.owners: dict[str, set[str | None]] = defaultdict(set)
        self.uses: dict[str, list[tuple[Source, re.Match[str]]]] = defaultdict(list)
        for source in sources:
            for function in source.functions:
                self.owners[function.name].add(function.owner)
        for source in sources:
            for word in _WORD.finditer(source.code):
                if word[0] in self.owners:
                    self.uses[word[0]].append((source, word))
        self.locals = cache(self._locals)

    def _locals(self, source: Source, start: int) -> dict[str, set[str]]:
        around = next(function for function in source.functions if function.start == start)
        return self.types.locals(source, around)

    def is_called(self, home: Source, function: Function) -> bool:
        """Whether anything but itself calls a function."""
        return any(
            self.counts(home, function, source, word)
            for source, word in self.uses[function.name]
            if not (source is home and function.start <= word.start() < function.end)
        )

    def counts(self, home: Source, function: Function, source: Source, word: re.Match[str]) -> bool:
        """Whether one place where the name is found is a use of this function."""
        code = source.code
        before, after = code[max(0, word.start() - 200) : word.start()].rstrip(), code[word.end() : word.end() + 40].lstrip()
        called = after.startswith(("(", "::<"))
        # without a search first: most places are neither
        if before.endswith("fn") and re.search(r"\bfn$", before):
            return False
        if ", with" in before and re.search(r", with(?: \w+)*$", before):
            return function.owner == re.findall(r"message! \{\s*(\w+),", code[: word.start()])[-1]
        if before.endswith("::"):
            kind = re.search(r"(\w+)(?:::<[^()]*>)?::$", before)
            path = kind[1] if kind else ""
            if path == "Self":
                owner = source.owner(word.start())
                path = owner[0] if owner else ""
            if function.owner is not None:
                return path == function.owner
            return path in {"crate", "super", "self"} or path in Path(home.name).with_suffix("").parts or path == f"fletchlog_{home.name.split('/')[1]}"
        if before.endswith("."):
            return called and function.owner is not None and self.may_be(function, source, word.start())
        if function.owner is not None:
            return False
        return function.name in source.imported or (called and source is home)

    def may_be(self, function: Function, source: Source, at: int) -> bool:
        """Whether the receiver of a method call may have the function's type."""
        if self.owners[function.name] == {function.owner} and function.name not in STANDARD:
            return True
        around = [other for other in source.functions if other.start <= at < other.end]
        local = self.locals(source, max(around, key=lambda other: other.start).start) if around else {}
        code = source.code
        types = self.types.of_expression(receiver(code, code.rindex(".", 0, at)), local)
        if not types & {owner for owner in self.owners[function.name] if owner} and function.name not in STANDARD:
            return re.search(rf"\b{function.owner}\b", code) is not None
        return function.owner in types


def breaches(root: Path) -> tuple[int, list[str]]:
    """How many functions were looked at, and the ones without a caller."""
    callers = Callers(product(root, SHIPPED))
    looked_at, dead = 0, {}
    for source in callers.sources:
        if source.name.split("/")[1] not in CHECKED:
            continue
        for function in source.functions:
            if function.public and not function.of_trait:
                looked_at += 1
                name = f"{function.owner}::{function.name}" if function.owner else function.name
                if not callers.is_called(source, function):
                    dead[name] = f"{source.name}:{source.line(function.start)}: `{name}` has no caller in the product: give it one, or remove it"
    found = [text for name, text in dead.items() if not {name, name.split("::")[0]} & set(EXCEPTED)]
    stale = [name for name in EXCEPTED if not any(name in {other, other.split("::")[0]} for other in dead)]
    found += [f"`{name}` is excepted ({EXCEPTED[name]}), but is called or gone: remove the entry" for name in stale]
    return looked_at, found


def main() -> int:
    """Prints what was found."""
    looked_at, found = breaches(ROOT)
    for breach in found:
        print(f"check_callers: {breach}", file=sys.stderr)
    print(f"check_callers: {looked_at} functions, {len(found)} breaches")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
