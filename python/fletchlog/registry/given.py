"""What requests give: schemas, numbers of versions, and what is filled in where they leave it out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.registry.entities import AVRO, Schema, Version
from fletchlog.registry.formats import KINDS
from fletchlog.registry.problems import invalid_schema, invalid_version
from fletchlog.registry.reading import LATEST
from fletchlog.registry.shapes import wrong_in_schema

if TYPE_CHECKING:
    from collections.abc import Mapping


def number_of(text: str) -> int:
    """A version's number; `latest` and -1: the newest.

    Raises:
        RegistryProblem: 42202.
    """
    if text in ("latest", "-1"):
        return LATEST
    if text.isascii() and text.isdecimal() and 1 <= int(text) < 1 << 31:
        return int(text)
    raise invalid_version(text)


def schema_of(given: Mapping[str, Any]) -> Schema:
    """The schema in the body of a request.

    Raises:
        RegistryProblem: 42201.
    """
    text, kind = given.get("schema") or "", given.get("schemaType") or AVRO
    if not isinstance(text, str) or not isinstance(kind, str):
        raise invalid_schema("`schema` and `schemaType` are texts")
    if kind.upper() not in KINDS:
        raise invalid_schema(f"Invalid schema type {kind}")
    references = given.get("references") or []
    fields = {"name": str, "subject": str, "version": int}
    if not isinstance(references, list) or not all(
        isinstance(one, dict) and all(isinstance(one.get(name), kind_) for name, kind_ in fields.items()) for one in references
    ):
        raise invalid_schema("`references` is a list of objects with `name`, `subject` and `version`")
    if wrong := wrong_in_schema(given):
        raise invalid_schema(wrong)
    kept = tuple({name: one[name] for name in fields} for one in references)
    return Schema(text, kind.upper(), kept, given.get("metadata"), given.get("ruleSet"))


def filled(schema: Schema, previous: Version | None, config: Mapping[str, Any]) -> Schema:
    """A schema with what the request leaves out: text, metadata and rules of the version before, and what the configuration gives.

    Kafka's registry: `AbstractSchemaRegistry#maybePopulateFromPrevious`.
    """
    old = previous.schema if previous is not None else Schema("")
    text, kind, references = (schema.text, schema.kind, schema.references) if schema.text.strip() else (old.text, old.kind, old.references)
    metadata = schema.metadata if schema.metadata is not None else old.metadata
    rules = schema.rule_set if schema.rule_set is not None else old.rule_set
    metadata = _merged(_merged(config.get("defaultMetadata"), metadata), config.get("overrideMetadata"))
    rules = _merged(_merged(config.get("defaultRuleSet"), rules), config.get("overrideRuleSet"))
    return Schema(text, kind, references, metadata, rules)


def _merged(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Metadata or rules of two sources; of what both have, that of the second one. Lists of rules are merged by the names of the rules."""
    if one is None or other is None:
        return other if one is None else one
    made = dict(one)
    for name, value in other.items():
        old = made.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            made[name] = old | value
        elif isinstance(old, list) and isinstance(value, list):
            names = [rule.get("name") if isinstance(rule, dict) else rule for rule in value]
            made[name] = [rule for rule in old if (rule.get("name") if isinstance(rule, dict) else rule) not in names] + value
        else:
            made[name] = value
    return made
