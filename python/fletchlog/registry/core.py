"""What the registry does: register, compare, delete. By the rules of Confluent's registry (`KafkaSchemaRegistry`, `AbstractSchemaRegistry`).

What is looked up is in `reading`, configurations and modes are in `settings`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fletchlog.registry.entities import AVRO, DEFAULT_CONTEXT, Schema, Version, context_of, normal, qualified
from fletchlog.registry.given import filled
from fletchlog.registry.problems import (
    RegistryProblem,
    context_not_empty,
    incompatible,
    invalid_schema,
    not_permitted,
    reference_exists,
    schema_not_found,
    subject_not_found,
    subject_not_soft_deleted,
    subject_soft_deleted,
    version_not_found,
    version_not_soft_deleted,
    version_soft_deleted,
)
from fletchlog.registry.reading import LATEST, Reading, version_of
from fletchlog.registry.settings import IMPORT, check_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fletchlog.registry.state import State


class Registry(Reading):
    """Subjects and their versions, in the topic `_schemas`. All threads may call."""

    # --- registering

    def register(self, subject: str, schema: Schema, *, schema_id: int | None = None, number: int | None = None, normalize: bool = False) -> Version:
        """Registers a schema; one that the subject has already is returned as it is.

        Raises:
            RegistryProblem: 409, 42201, 42205, 42208, 50001.
        """
        check_name(subject)
        with self._log.turn() as state:
            subject = self._aliased(state, normal(subject))
            config, mode = self._config(state, subject), self._mode(state, subject)
            self._check_mode(mode, subject, schema_id)
            live = state.versions(subject)
            if mode != IMPORT:
                schema = filled(schema, live[-1] if live else None, config)
            if not schema.text.strip():
                raise invalid_schema("Empty schema")
            schema = self._canonical(state, subject, schema, normalize=normalize or config.get("normalize") is True, is_new=schema_id is None)
            context = context_of(subject)
            same = state.same_schema(context, schema)
            if same and schema_id in (None, same[0].id):
                for version in same:
                    if version.subject == subject and not version.deleted:
                        return version
                schema_id = same[0].id
            every = state.versions(subject, deleted=True)
            following = every[-1].number + 1 if every else 1
            if mode != IMPORT:
                if problems := self._problems(state, config, subject, schema, live):
                    raise incompatible(subject, problems)
                if number is not None and number > 0 and number != following:
                    raise invalid_schema("Version is not one more than previous version")
            if schema_id is not None:
                self._check_id(state, context, schema_id, schema)
            made = Version(subject, number if number and number > 0 else following, schema_id or state.largest_ids.get(context, 0) + 1, schema)
            self._write(state, made)
            for old in every:
                if old.deleted and old.id == made.id and old.number < made.number:
                    self._log.write(_key(old), None)
            return state.subjects[subject][made.number]

    def look_up(self, subject: str, schema: Schema, *, normalize: bool = False, deleted: bool = False) -> Version:
        """The version of a subject that has a schema; also of one with this name in another context, if the default one has none.

        Kafka's registry: `AbstractSchemaRegistry#lookUpSchemaUnderSubjectUsingContexts`.

        Raises:
            RegistryProblem: 40401, 40403, 42201.
        """
        check_name(subject)
        with self._log.turn() as state:
            subject = self._aliased(state, normal(subject))
            names = [subject]
            if context_of(subject) == DEFAULT_CONTEXT:
                names += [qualified(context, subject) for context in sorted(state.contexts - {DEFAULT_CONTEXT})]
            names = [name for name in names if state.exists(name, deleted=deleted)]
            if not names:
                raise subject_not_found(subject)
            for name in names if schema.text.strip() else []:
                try:
                    found = self._looked_up(state, name, schema, normalize=normalize, deleted=deleted)
                except RegistryProblem:
                    # what its references mean depends on the context
                    if name == subject:
                        raise
                    continue
                if found is not None:
                    return found
            raise schema_not_found()

    def _looked_up(self, state: State, subject: str, schema: Schema, *, normalize: bool, deleted: bool) -> Version | None:
        config = self._config(state, subject)
        versions = state.versions(subject, deleted=deleted)
        normalize = normalize or config.get("normalize") is True
        wanted = [self._canonical(state, subject, schema, normalize=normalize)]
        if live := state.versions(subject):
            wanted.append(self._canonical(state, subject, filled(schema, live[-1], config), normalize=normalize))
        for one in wanted:
            for version in reversed(versions):
                if version.schema == one:
                    return version
        # as Confluent's: metadata that the client does not know of do not hide a schema
        if schema.metadata is None and schema.rule_set is None:
            for version in reversed(versions):
                if (version.schema.text, version.schema.kind, version.schema.references) == (wanted[0].text, wanted[0].kind, wanted[0].references):
                    return version
        return None

    def compatibility(self, subject: str, number: int | None, schema: Schema, *, normalize: bool = False) -> tuple[list[str], list[str]]:
        """Why a schema is not compatible with a version of a subject (empty: it is), and what was not checked.

        Without `number` it is compared with all versions that the level asks for.

        Raises:
            RegistryProblem: 40402, 42201.
        """
        with self._log.turn() as state:
            subject = self._aliased(state, normal(subject))
            config = self._config(state, subject)
            versions = state.versions(subject)
            if number is not None:
                found = version_of(state, subject, number)
                if found is None and number != LATEST:
                    raise version_not_found(number) if state.exists(subject) else subject_not_found(subject)
                versions = [found] if found is not None else []
            schema = filled(schema, versions[-1] if versions else None, {})
            schema = self._canonical(state, subject, schema, normalize=normalize or config.get("normalize") is True, is_new=True)
            problems = self._problems(state, config, subject, schema, versions)
            compared = versions[-1:] if versions and versions[-1].schema.kind == schema.kind else []
            new = self._parse(state, subject, schema)
            return problems, [note for version in compared for note in new.unchecked_reading(self._parse(state, version.subject, version.schema))]

    # --- deleting

    def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        """Deletes every version of a subject, softly or permanently. Their numbers.

        Raises:
            RegistryProblem: 40401, 40404, 40405, 42205, 42206, 50001.
        """
        with self._log.turn() as state:
            subject = normal(subject)
            if not state.exists(subject, deleted=True):
                raise subject_not_found(subject)
            live = state.versions(subject)
            if not live and not permanent:
                raise subject_soft_deleted(subject)
            self._check_writable(state, subject)
            if live and permanent:
                raise subject_not_soft_deleted(subject)
            versions = state.versions(subject, deleted=permanent)
            for version in versions:
                if state.referring(subject, version.number):
                    raise reference_exists(subject, version.number)
            if permanent:
                for version in versions:
                    self._log.write(_key(version), None)
            else:
                value = {"subject": subject, "version": versions[-1].number}
                self._log.write({"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}, value)
                self._forget_settings(state, subject)
            return [version.number for version in versions]

    def delete_version(self, subject: str, number: int, *, permanent: bool = False) -> int:
        """Deletes a version, softly or permanently. Its number.

        Raises:
            RegistryProblem: 40401, 40402, 40406, 40407, 42205, 42206, 50001.
        """
        with self._log.turn() as state:
            subject = normal(subject)
            found = version_of(state, subject, number, deleted=True)
            if found is None or (number == LATEST and found.deleted):
                raise version_not_found(number) if state.exists(subject, deleted=True) else subject_not_found(subject)
            if found.deleted and not permanent:
                raise version_soft_deleted(subject, found.number)
            self._check_writable(state, subject)
            if permanent and not found.deleted:
                raise version_not_soft_deleted(subject, found.number)
            if state.referring(subject, found.number):
                raise reference_exists(subject, found.number)
            number = found.number
            if permanent:
                self._log.write(_key(found), None)
                return number
            found.deleted = True
            try:
                self._write(state, found)
            except BaseException:
                found.deleted = False
                raise
            if not state.exists(subject):
                self._forget_settings(state, subject)
            return number

    def delete_context(self, context: str) -> None:
        """Deletes a context without versions, also deleted ones.

        Raises:
            RegistryProblem: 42205: the default one; 42211: it has versions; 50001.
        """
        with self._log.turn() as state:
            if context == DEFAULT_CONTEXT:
                raise not_permitted("The default context cannot be deleted")
            if state.exists(f":{context}:", deleted=True):
                raise context_not_empty(context)
            if context in state.contexts:
                self._log.write(_of_context(context), None)

    # --- what these share

    def _write(self, state: State, version: Version) -> None:
        """Appends the record of a version."""
        if version.context not in state.contexts:
            self._log.write(_of_context(version.context), {"tenant": "default", "context": version.context})
        schema = version.schema
        value: dict[str, Any] = {"subject": version.subject, "version": version.number, "id": version.id, "guid": version.guid}
        if schema.kind != AVRO:
            value["schemaType"] = schema.kind
        if schema.references:
            value["references"] = [dict(reference) for reference in schema.references]
        value |= {name: part for name, part in (("metadata", schema.metadata), ("ruleSet", schema.rule_set)) if part is not None}
        self._log.write(_key(version), value | {"schema": schema.text, "deleted": version.deleted})

    def _check_id(self, state: State, context: str, schema_id: int, schema: Schema) -> None:
        others = state.with_id(context, schema_id)
        if others and others[0].schema != schema:
            raise not_permitted(f"Overwrite new schema with id {schema_id} in context {context} is not permitted.")

    def _problems(self, state: State, config: Mapping[str, Any], subject: str, schema: Schema, versions: list[Version]) -> list[str]:
        """Why a schema is not compatible with the versions that the level asks for. Kafka's registry: `ParsedSchema#isCompatible`."""
        level = config["compatibilityLevel"]
        if group := config.get("compatibilityGroup"):
            versions = [version for version in versions if _property(version.schema, group) == _property(schema, group)]
        if level == "NONE" or not versions:
            return []
        if not level.endswith("_TRANSITIVE"):
            versions = versions[-1:]
        parsed = self._parse(state, subject, schema)
        for version in reversed(versions):
            if version.schema.kind != schema.kind:
                problems = [f"Incompatible because of different schema type: {version.schema.kind} before, {schema.kind} now"]
            else:
                old = self._parse(state, version.subject, version.schema)
                problems = [] if level.startswith("FORWARD") else parsed.problems_reading(old)
                problems += [] if level.startswith("BACKWARD") else old.problems_reading(parsed)
            if problems:
                where = [f"{{oldSchemaVersion: {version.number}}}", f"{{oldSchema: '{version.schema.text}'}}"]
                return [*problems, *where, f"{{validateFields: 'false', compatibility: '{level}'}}"]
        return []


def _key(version: Version) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": version.subject, "version": version.number, "magic": 1}


def _of_context(context: str) -> dict[str, Any]:
    return {"keytype": "CONTEXT", "tenant": "default", "context": context, "magic": 0}


def _property(schema: Schema, name: str) -> Any:
    return ((schema.metadata or {}).get("properties") or {}).get(name)
