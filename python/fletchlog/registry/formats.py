"""The types of schemas: each parses a text with what it refers to, and compares two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from fletchlog.registry.entities import AVRO, JSON, PROTOBUF
from fletchlog.registry.problems import invalid_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

# in the order in which Confluent's registry lists them
KINDS = (JSON, PROTOBUF, AVRO)


class Referred(NamedTuple):
    """A schema that another one refers to.

    Attributes:
        name: The name in the reference: a full name in Avro, a file name in Protobuf, what `$ref` has in JSON Schema.
        text: Its text.
    """

    name: str
    text: str


class Parsed(Protocol):
    """A schema that has been parsed. The types of schemas are classes of it."""

    @property
    def canonical(self) -> str:
        """The text that the registry keeps, and by which two schemas are the same."""

    @property
    def normalized(self) -> str:
        """The same for requests with `normalize=true`: what does not matter is in one order."""

    def formatted(self, form: str) -> str:  # noqa: ARG002 - of the types that have no other form
        """The text in a form that a client asks for (`format=`); an unknown one is the canonical text."""
        return self.canonical

    def problems_reading(self, written: Parsed) -> list[str]:
        """Why this schema cannot read what was written with the other one; empty: it can."""

    def unchecked_reading(self, written: Parsed) -> list[str]:  # noqa: ARG002 - of the types that are compared in all
        """What of that question `problems_reading` does not answer."""
        return []


def parse(kind: str, text: str, referred: Sequence[Referred], *, is_new: bool = False) -> Parsed:
    """Parses a schema. `referred` has everything it refers to, directly or not, each after those that it refers to itself.

    Raises:
        RegistryProblem: 42201: it is no such schema, or its type is unknown.
    """
    try:
        if kind == AVRO:
            from fletchlog.registry.avro_format import AvroSchema

            return AvroSchema(text, referred, is_new=is_new)
        if kind == JSON:
            from fletchlog.registry.json_format import JsonSchema

            return JsonSchema(text, referred)
        if kind == PROTOBUF:
            from fletchlog.registry.protobuf_format import ProtobufSchema

            return ProtobufSchema(text, referred)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise invalid_schema(f"Invalid schema of type {kind}, details: {why}") from error
    raise invalid_schema(f"Invalid schema type {kind}")


def difference(kind: str, path: str) -> str:
    """The message of a difference, by Confluent's name of it and the place in the schema."""
    return f'{{errorType:"{kind}", description:"{kind.replace("_", " ").lower().capitalize()} at path \'{path}\'"}}'
