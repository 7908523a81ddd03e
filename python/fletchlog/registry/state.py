"""What the records of `_schemas` amount to.

| key | value | meaning |
|---|---|---|
| `SCHEMA`, subject, version | the schema, its id, `deleted` | a version; no value: it is deleted permanently |
| `CONFIG`, subject or null | compatibility level and what else is configured | no value: not any more |
| `MODE`, subject or null | mode | no value: not any more |
| `DELETE_SUBJECT`, subject | version | all versions up to this one are deleted softly |
| `CLEAR_SUBJECT`, subject or null | | what is deleted softly is deleted permanently |
| `CONTEXT`, context | | the context exists; no value: not any more |
| `NOOP` | | nothing |

Kafka's registry: `KafkaStoreMessageHandler`.
"""

from __future__ import annotations

import json
from typing import Any

from fletchlog.registry.entities import AVRO, DEFAULT_CONTEXT, GLOBAL_CONTEXT, Schema, Version, context_of, qualified


class State:
    """Subjects, configuration and modes, as the records say that have been applied in their order."""

    def __init__(self) -> None:
        self.subjects: dict[str, dict[int, Version]] = {}
        self.configs: dict[str | None, dict[str, Any]] = {}
        self.modes: dict[str | None, str] = {}
        self.contexts: set[str] = {DEFAULT_CONTEXT}
        self.largest_ids: dict[str, int] = {}
        # ("id", context, id), ("guid", context, GUID) and ("schema", context, the GUID by this registry's rule) -> the versions that have them
        self._index: dict[tuple[str, str, object], dict[tuple[str, int], Version]] = {}

    def apply(self, key: bytes | None, value: bytes | None, time_ms: int) -> None:
        """Applies a record. One that cannot be read changes nothing, as in Confluent's registry, which logs it."""
        try:
            found = json.loads(key or b"null")
            given = None if value is None else json.loads(value)
            match found["keytype"]:
                case "SCHEMA":
                    self._version(found["subject"], found["version"], given, time_ms)
                case "CONFIG":
                    _set(self.configs, found.get("subject") or None, given)
                case "MODE":
                    _set(self.modes, found.get("subject") or None, given and given["mode"])
                case "DELETE_SUBJECT" if given is not None:
                    for number, version in self.subjects.get(found["subject"], {}).items():
                        version.deleted = version.deleted or number <= given["version"]
                case "CLEAR_SUBJECT" if given is not None:
                    self._clear(found.get("subject") or None)
                case "CONTEXT":
                    (self.contexts.discard if given is None else self.contexts.add)(found["context"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return

    def _version(self, subject: str, number: int, given: dict[str, Any] | None, time_ms: int) -> None:
        if given is None:
            self._remove(subject, number)
            return
        references = tuple(given.get("references") or ())
        schema = Schema(given["schema"], given.get("schemaType") or AVRO, references, given.get("metadata"), given.get("ruleSet"))
        made = Version(subject, number, given["id"], schema, given.get("guid") or "", bool(given.get("deleted")), time_ms)
        self._remove(subject, number)
        self.subjects.setdefault(subject, {})[number] = made
        self.contexts.add(made.context)
        self.largest_ids[made.context] = max(self.largest_ids.get(made.context, 0), made.id)
        for key in _keys(made):
            self._index.setdefault(key, {})[subject, number] = made

    def _remove(self, subject: str, number: int) -> None:
        versions = self.subjects.get(subject, {})
        if (old := versions.pop(number, None)) is None:
            return
        if not versions:
            del self.subjects[subject]
        for key in _keys(old):
            del self._index[key][subject, number]
            if not self._index[key]:
                del self._index[key]

    def _clear(self, subject: str | None) -> None:
        for version in [version for name in self.matching(subject) for version in self.subjects[name].values() if version.deleted]:
            self._remove(version.subject, version.number)

    def matching(self, subject: str | None) -> list[str]:
        """Names of the subjects that a subject means: itself; all of a context for `:.ctx:`, all of the default context for None."""
        if subject is None or subject == f":{context_of(subject)}:":
            context = context_of(subject)
            return [name for name in self.subjects if context_of(name) == context]
        return [subject] if subject in self.subjects else []

    def versions(self, subject: str, *, deleted: bool = False) -> list[Version]:
        """Versions of a subject, ascending; with those that are deleted softly if asked for."""
        return [version for _, version in sorted(self.subjects.get(subject, {}).items()) if deleted or not version.deleted]

    def exists(self, subject: str | None, *, deleted: bool = False) -> bool:
        """Whether a subject, or any of a context, has a version."""
        return any(self.versions(name, deleted=deleted) for name in self.matching(subject))

    def with_id(self, context: str, schema_id: int) -> list[Version]:
        """Every version in a context with an id, by subject and number."""
        return self._found("id", context, schema_id)

    def with_guid(self, context: str, guid: str) -> list[Version]:
        """Every version in a context with a GUID, by subject and number."""
        return self._found("guid", context, guid)

    def same_schema(self, context: str, schema: Schema) -> list[Version]:
        """Every version in a context of a schema, by subject and number."""
        return [version for version in self._found("schema", context, schema.guid) if version.schema == schema]

    def _found(self, kind: str, context: str, what: object) -> list[Version]:
        return [version for _, version in sorted(self._index.get((kind, context, what), {}).items())]

    def referring(self, subject: str, number: int) -> list[Version]:
        """Every version, not those deleted softly, that refers to a version."""
        found = []
        for versions in self.subjects.values():
            for version in versions.values():
                for reference in version.schema.references:
                    name = reference["subject"]
                    full = name if name.startswith(":.") else qualified(version.context, name)
                    if not version.deleted and (full, reference["version"]) == (subject, number):
                        found.append(version)
                        break
        return found

    def scopes(self, subject: str | None) -> list[str | None]:
        """Where the configuration of a subject is looked up, the nearest first."""
        context = context_of(subject)
        wider: list[str | None] = [None] if context == DEFAULT_CONTEXT else [f":{context}:"]
        own = [] if subject is None or subject in wider else [subject]
        return [*own, *wider, GLOBAL_CONTEXT]


def _keys(version: Version) -> list[tuple[str, str, object]]:
    """Under which keys a version is in the index."""
    return [("id", version.context, version.id), ("guid", version.context, version.guid), ("schema", version.context, version.schema.guid)]


def _set(table: dict[str | None, Any], subject: str | None, value: Any) -> None:
    """Sets what a subject has; None: removes it."""
    if value is None:
        table.pop(subject, None)
    else:
        table[subject] = value
