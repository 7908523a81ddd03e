"""Looking subjects, versions and schemas up, and parsing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.registry.entities import DEFAULT_CONTEXT, Schema, Version, bare, context_of, normal, qualified
from fletchlog.registry.formats import Parsed, Referred, parse
from fletchlog.registry.problems import invalid_schema, schema_not_found, subject_not_found, version_not_found
from fletchlog.registry.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fletchlog.registry.log import SchemaLog
    from fletchlog.registry.state import State

LATEST = -1
# Schemas that were parsed and are kept.
_KEPT = 1_000


class Reading(Settings):
    """What is registered, in the topic `_schemas`. All threads may call."""

    def __init__(self, log: SchemaLog) -> None:
        super().__init__(log)
        self._parsed: dict[tuple[Any, ...], Parsed] = {}

    def subjects(self, prefix: str, *, deleted: bool = False, deleted_only: bool = False) -> list[str]:
        """Subjects whose name begins with a prefix, sorted; `:*:` before it: in every context."""
        with self._log.turn() as state:
            found = []
            for name in state.subjects:
                live = state.exists(name)
                included = not live if deleted_only else live or deleted
                if included and _begins(name, prefix):
                    found.append(name)
            return sorted(found)

    def schemas(self, prefix: str, *, deleted: bool = False, latest_only: bool = False) -> list[Version]:
        """Versions of the subjects whose name begins with a prefix, by subject and number."""
        with self._log.turn() as state:
            found = []
            for name in sorted(name for name in state.subjects if _begins(name, prefix)):
                versions = state.versions(name, deleted=deleted)
                found += versions[-1:] if latest_only else versions
            return found

    def contexts(self) -> list[str]:
        """The contexts, the default one first."""
        with self._log.turn() as state:
            return [DEFAULT_CONTEXT, *sorted(state.contexts - {DEFAULT_CONTEXT})]

    def versions(self, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[Version]:
        """Versions of a subject, ascending.

        Raises:
            RegistryProblem: 40401.
        """
        with self._log.turn() as state:
            subject = self._aliased(state, normal(subject))
            if not state.exists(subject, deleted=deleted or deleted_only):
                raise subject_not_found(subject)
            found = state.versions(subject, deleted=deleted or deleted_only)
            return [version for version in found if version.deleted] if deleted_only else found

    def version(self, subject: str, number: int, *, deleted: bool = False) -> Version:
        """A version of a subject, also of one with this name in another context, if the default one has none.

        Raises:
            RegistryProblem: 40401, 40402.
        """
        with self._log.turn() as state:
            subject = self._aliased(state, normal(subject))
            if (found := version_of(state, subject, number, deleted=deleted)) is not None:
                return found
            if context_of(subject) == DEFAULT_CONTEXT:
                for context in sorted(state.contexts - {DEFAULT_CONTEXT}):
                    if (found := version_of(state, qualified(context, subject), number, deleted=deleted)) is not None:
                        return found
            raise version_not_found(number) if state.exists(subject, deleted=deleted) else subject_not_found(subject)

    def with_id(self, schema_id: int, subject: str | None = None, *, deleted: bool = True) -> list[Version]:
        """The versions that have an id: in the context of the subject, or in the one where a subject of this name has it.

        Raises:
            RegistryProblem: 40403.
        """
        with self._log.turn() as state:
            context = context_of(subject)
            found = state.with_id(context, schema_id)
            name = bare(normal(subject)) if subject else ""
            if name and context == DEFAULT_CONTEXT and not any(version.subject == name for version in found):
                # the id may be that of the subject in another context
                for other in sorted(state.contexts - {DEFAULT_CONTEXT}):
                    elsewhere = state.with_id(other, schema_id)
                    if any(bare(version.subject) == name for version in elsewhere):
                        found = elsewhere
                        break
            if not found:
                raise schema_not_found(schema_id)
            return [version for version in found if deleted or not version.deleted]

    def with_guid(self, guid: str) -> list[Version]:
        """The first version of each context that has a GUID, by context.

        Raises:
            RegistryProblem: 40403.
        """
        with self._log.turn() as state:
            found = [versions[0] for context in sorted(state.contexts) if (versions := state.with_guid(context, guid))]
            if not found:
                raise schema_not_found(guid)
            return found

    def largest_id(self, subject: str | None) -> int:
        """The largest id that was given in the context of a subject."""
        with self._log.turn() as state:
            return state.largest_ids.get(context_of(subject), 0)

    def referring_ids(self, subject: str, number: int) -> list[int]:
        """Ids of the schemas that refer to a version, sorted.

        Raises:
            RegistryProblem: 40401, 40402.
        """
        with self._log.turn() as state:
            found = self.version(subject, number, deleted=True)
            return sorted({version.id for version in state.referring(found.subject, found.number)})

    def formatted(self, version: Version, form: str) -> str:
        """The text of a version in the form that a client asks for."""
        if not form:
            return version.schema.text
        with self._log.turn() as state:
            return self._parse(state, version.subject, version.schema).formatted(form)

    # --- schemas, parsed

    def _canonical(self, state: State, subject: str, schema: Schema, *, normalize: bool, is_new: bool = False) -> Schema:
        """A schema with the text that is kept."""
        parsed = self._parse(state, subject, schema, is_new=is_new)
        text = parsed.normalized if normalize else parsed.canonical
        return Schema(text, schema.kind, schema.references, schema.metadata, schema.rule_set)

    def _parse(self, state: State, subject: str, schema: Schema, *, is_new: bool = False) -> Parsed:
        """A schema of a subject, parsed with what it refers to."""
        referred: dict[str, Referred] = {}
        self._refer(state, context_of(subject), schema.references, referred, set())
        key = (schema.kind, schema.text, tuple(referred.values()), is_new)
        if (found := self._parsed.get(key)) is None:
            if len(self._parsed) >= _KEPT:
                self._parsed.clear()
            found = self._parsed[key] = parse(schema.kind, schema.text, tuple(referred.values()), is_new=is_new)
        return found

    def _refer(self, state: State, context: str, references: Sequence[Mapping[str, Any]], found: dict[str, Referred], open_: set[tuple[str, int]]) -> None:
        """Adds what references mean, each after what it refers to itself."""
        for reference in references:
            subject = reference["subject"]
            subject = normal(subject) if subject.startswith(":.") else qualified(context, subject)
            version = version_of(state, subject, reference["version"], deleted=True)
            if version is None:
                at = f"subject {reference['subject']}, version {reference['version']}"
                raise invalid_schema(f"Invalid schema, details: No schema reference found for {at} (name {reference['name']})")
            place = (subject, version.number)
            if reference["name"] in found or place in open_:
                continue
            self._refer(state, version.context, version.schema.references, found, open_ | {place})
            found[reference["name"]] = Referred(reference["name"], version.schema.text)


def version_of(state: State, subject: str, number: int, *, deleted: bool = False) -> Version | None:
    """A version of a subject; `LATEST`: the newest that is not deleted, or with `deleted` of all if there is no such."""
    if number == LATEST:
        versions = state.versions(subject) or state.versions(subject, deleted=deleted)
        return versions[-1] if versions else None
    found = state.subjects.get(subject, {}).get(number)
    return found if found is not None and (deleted or not found.deleted) else None


def _begins(subject: str, prefix: str) -> bool:
    """Whether a subject begins with a prefix, `:*:` being any context."""
    if prefix.startswith(":*:"):
        return bare(subject).startswith(prefix[3:])
    return subject.startswith(prefix) and (prefix.startswith(":.") or context_of(subject) == DEFAULT_CONTEXT)
