"""Schemas as the registry keeps them, and the names of subjects and contexts."""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

AVRO, JSON, PROTOBUF = "AVRO", "JSON", "PROTOBUF"
DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ":.__GLOBAL:"


@dataclass(frozen=True)
class Schema:
    """A schema, wherever it is registered.

    Attributes:
        text: Its text.
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        references: What its text refers to, as `{"name", "subject", "version"}`.
        metadata: Confluent's metadata, kept as they are given.
        rule_set: Confluent's rules, kept as they are given: no rule is run here.
    """

    text: str
    kind: str = AVRO
    references: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] | None = None
    rule_set: Mapping[str, Any] | None = None

    @property
    def guid(self) -> str:
        """Its GUID: the MD5 of the text, of name, subject and version of each reference, of metadata and rules; the type is no part of it.

        Kafka's registry: `entities.Schema#updateHash`, `#getGuid`.
        """
        digest = hashlib.md5(self.text.encode(), usedforsecurity=False)
        for reference in self.references:
            digest.update(reference["name"].encode() + reference["subject"].encode() + int(reference["version"]).to_bytes(4, "big", signed=True))
        for part, texts in ((self.metadata, _texts_of_metadata), (self.rule_set, _texts_of_rules)):
            if part is not None:
                digest.update(b"\x01")
                for text in texts(part):
                    digest.update(text.encode())
        return str(uuid.UUID(bytes=digest.digest()))

    def entity(self) -> dict[str, Any]:
        """Its fields in a response."""
        found: dict[str, Any] = {"schemaType": self.kind}
        if self.references:
            found["references"] = [dict(reference) for reference in self.references]
        if self.metadata is not None:
            found["metadata"] = self.metadata
        if self.rule_set is not None:
            found["ruleSet"] = self.rule_set
        return found | {"schema": self.text}


@dataclass
class Version:
    """A schema as a version of a subject.

    Attributes:
        subject: The subject, with its context.
        number: From 1.
        id: Id of the schema, unique in the context.
        schema: The schema.
        guid: GUID of the schema.
        deleted: Whether it is deleted softly.
        time_ms: When its record was written, ms since 1970.
    """

    subject: str
    number: int
    id: int
    schema: Schema
    guid: str = ""
    deleted: bool = False
    time_ms: int = 0
    context: str = field(init=False)

    def __post_init__(self) -> None:
        self.context = context_of(self.subject)
        self.guid = self.guid or self.schema.guid

    def entity(self) -> dict[str, Any]:
        """What the interface returns of it. Kafka's registry: `entities.Schema`."""
        place = {"subject": self.subject, "version": self.number, "id": self.id, "guid": self.guid}
        return place | self.schema.entity() | {"ts": self.time_ms, "deleted": self.deleted}


def context_of(subject: str | None) -> str:
    """The context of a subject: `.ctx` of `:.ctx:orders-value`, `.` of one without."""
    if subject is None or not subject.startswith(":."):
        return DEFAULT_CONTEXT
    end = subject.find(":", 1)
    return subject[1:end] if end > 0 else subject[1:]


def bare(subject: str) -> str:
    """A subject without its context."""
    if not subject.startswith(":."):
        return subject
    end = subject.find(":", 1)
    return subject[end + 1 :] if end > 0 else ""


def qualified(context: str, subject: str) -> str:
    """A subject in a context."""
    return subject if context == DEFAULT_CONTEXT else f":{context}:{subject}"


def normal(subject: str) -> str:
    """A subject as it is kept: the default context is not written."""
    return qualified(context_of(subject), bare(subject))


def _texts_of_metadata(metadata: Mapping[str, Any]) -> Iterable[str]:
    for path, tags in sorted((metadata.get("tags") or {}).items()):
        yield path
        yield from sorted(tags)
    for name, value in sorted((metadata.get("properties") or {}).items()):
        yield name
        yield str(value)
    yield from sorted(metadata.get("sensitive") or [])


def _texts_of_rules(rules: Mapping[str, Any]) -> Iterable[str]:
    for kind in ("migrationRules", "domainRules", "encodingRules"):
        for rule in rules.get(kind) or []:
            for name in ("name", "doc", "kind", "mode", "type"):
                yield rule.get(name) or ""
            yield from sorted(rule.get("tags") or [])
            for name, value in sorted((rule.get("params") or {}).items()):
                yield name
                yield str(value)
            for name in ("expr", "onSuccess", "onFailure"):
                yield rule.get(name) or ""
            if rule.get("disabled"):
                yield "\x01"
