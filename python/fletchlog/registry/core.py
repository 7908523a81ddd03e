"""What the registry does: register, look up, delete, configure. By the rules of Confluent's registry (`KafkaSchemaRegistry`, `AbstractSchemaRegistry`)."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from fletchlog.registry.entities import AVRO, DEFAULT_CONTEXT, GLOBAL_CONTEXT, Schema, Version, bare, context_of, normal, qualified
from fletchlog.registry.formats import KINDS, Parsed, Referred, parse
from fletchlog.registry.problems import (
    RegistryProblem,
    compatibility_not_configured,
    context_not_empty,
    incompatible,
    invalid_compatibility,
    invalid_mode,
    invalid_schema,
    invalid_subject,
    invalid_version,
    malformed,
    mode_not_configured,
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
from fletchlog.registry.shapes import wrong_in_configuration, wrong_in_schema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from fletchlog.registry.log import SchemaLog
    from fletchlog.registry.state import State

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
LATEST = -1
DEFAULT_LEVEL = "BACKWARD"
# What a configuration has beside `compatibilityLevel`. Those of the second line are kept and returned, and change nothing.
CONFIG_FIELDS = (
    *("normalize", "alias", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet"),
    *("validateFields", "validateNames", "compatibilityPolicy"),
)
# Schemas that were parsed and are kept.
_KEPT = 1_000


class Registry:
    """Subjects and their versions, in the topic `_schemas`. All threads may call."""

    def __init__(self, log: SchemaLog) -> None:
        self._log = log
        self._parsed: dict[tuple[Any, ...], Parsed] = {}

    # --- reading

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
            if (found := _version(state, subject, number, deleted=deleted)) is not None:
                return found
            if context_of(subject) == DEFAULT_CONTEXT:
                for context in sorted(state.contexts - {DEFAULT_CONTEXT}):
                    if (found := _version(state, qualified(context, subject), number, deleted=deleted)) is not None:
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

    # --- registering

    def register(self, subject: str, schema: Schema, *, schema_id: int | None = None, number: int | None = None, normalize: bool = False) -> Version:
        """Registers a schema; one that the subject has already is returned as it is.

        Raises:
            RegistryProblem: 409, 42201, 42205, 42208, 50001.
        """
        _check_name(subject)
        with self._log.turn() as state:
            subject = self._aliased(state, normal(subject))
            config, mode = self._config(state, subject), self._mode(state, subject)
            self._check_mode(mode, subject, schema_id)
            live = state.versions(subject)
            if mode != IMPORT:
                schema = _filled(schema, live[-1] if live else None, config)
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
        _check_name(subject)
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
            wanted.append(self._canonical(state, subject, _filled(schema, live[-1], config), normalize=normalize))
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
                found = _version(state, subject, number)
                if found is None and number != LATEST:
                    raise version_not_found(number) if state.exists(subject) else subject_not_found(subject)
                versions = [found] if found is not None else []
            schema = _filled(schema, versions[-1] if versions else None, {})
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
            found = _version(state, subject, number, deleted=True)
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

    # --- configuration and modes

    def config(self, subject: str | None, *, default: bool = False) -> dict[str, Any]:
        """What is configured for a subject, a context or, with None, for all; with `default` also what it has from those around it.

        Raises:
            RegistryProblem: 40408.
        """
        with self._log.turn() as state:
            subject = None if subject is None else normal(subject)
            if default or subject is None or subject == GLOBAL_CONTEXT:
                return self._config(state, subject)
            if subject not in state.configs:
                raise compatibility_not_configured(subject)
            return _shown(state.configs[subject])

    def set_config(self, subject: str | None, given: Mapping[str, Any]) -> None:
        """Changes what is configured: the fields that are given; null removes one.

        Raises:
            RegistryProblem: 400, 42203, 42205, 42208, 50001.
        """
        level = given.get("compatibility", given.get("compatibilityLevel"))
        if level is not None and (not isinstance(level, str) or level.upper() not in LEVELS):
            raise invalid_compatibility(LEVELS)
        if wrong := wrong_in_configuration(given):
            raise malformed(wrong)
        if subject is not None:
            _check_name(subject)
        with self._log.turn() as state:
            subject = None if subject is None else normal(subject)
            self._check_writable(state, subject)
            value = {"subject": subject, **state.configs.get(subject, {})}
            value |= {name: given[name] for name in CONFIG_FIELDS if name in given}
            if level is not None:
                value["compatibilityLevel"] = level.upper()
            self._log.write(_setting("CONFIG", subject), {name: field for name, field in value.items() if field is not None})

    def delete_config(self, subject: str | None) -> dict[str, Any]:
        """Removes what is configured, and returns it.

        Raises:
            RegistryProblem: 40401, 42205, 50001.
        """
        with self._log.turn() as state:
            subject = None if subject is None else normal(subject)
            self._check_writable(state, subject)
            if subject is None:
                old = self._config(state, None)
            elif subject in state.configs:
                old = _shown(state.configs[subject])
            else:
                raise subject_not_found(subject)
            if subject in state.configs:
                self._log.write(_setting("CONFIG", subject), None)
            return old

    def mode(self, subject: str | None, *, default: bool = False) -> str:
        """The mode of a subject, a context or, with None, of all; with `default` also what it has from those around it.

        Raises:
            RegistryProblem: 40409.
        """
        with self._log.turn() as state:
            subject = None if subject is None else normal(subject)
            if default or subject is None or subject == GLOBAL_CONTEXT:
                return self._mode(state, subject)
            if subject not in state.modes:
                raise mode_not_configured(subject)
            return state.modes[subject]

    def set_mode(self, subject: str | None, mode: object, *, force: bool = False) -> str:
        """Sets a mode. IMPORT, in which clients give the ids, wants a subject without versions, or `force`.

        Raises:
            RegistryProblem: 42204, 42205, 42208, 50001.
        """
        if not isinstance(mode, str) or mode.upper() not in MODES:
            raise invalid_mode(MODES)
        mode = mode.upper()
        if subject is not None:
            _check_name(subject)
        with self._log.turn() as state:
            subject = None if subject is None else normal(subject)
            if mode == IMPORT and self._mode(state, subject) != IMPORT and not force:
                if state.exists(subject):
                    raise not_permitted("Cannot import since found existing subjects")
                self._log.write({"keytype": "CLEAR_SUBJECT", "subject": subject, "magic": 0}, {"subject": subject})
            self._log.write(_setting("MODE", subject), {"subject": subject, "mode": mode})
            return mode

    def delete_mode(self, subject: str | None) -> str:
        """Removes a mode, and returns it.

        Raises:
            RegistryProblem: 40401, 50001.
        """
        with self._log.turn() as state:
            subject = None if subject is None else normal(subject)
            if subject is not None and subject not in state.modes:
                raise subject_not_found(subject)
            old = self._mode(state, subject) if subject is None else state.modes[subject]
            if subject in state.modes:
                self._log.write(_setting("MODE", subject), None)
            return old

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

    def _forget_settings(self, state: State, subject: str) -> None:
        """What a subject without versions had configured is removed."""
        if subject in state.modes:
            self._log.write(_setting("MODE", subject), None)
        if subject in state.configs:
            self._log.write(_setting("CONFIG", subject), None)

    def _aliased(self, state: State, subject: str) -> str:
        """The subject that one stands for, by its configuration."""
        alias = state.configs.get(subject, {}).get("alias")
        if not alias:
            return subject
        return alias if alias.startswith(":.") else qualified(context_of(subject), alias)

    def _config(self, state: State, subject: str | None) -> dict[str, Any]:
        """The configuration that holds for a subject: each field from the nearest scope that has it; an alias only from its own."""
        found: dict[str, Any] = {"compatibilityLevel": DEFAULT_LEVEL}
        for scope in reversed(state.scopes(subject)):
            found |= {name: value for name, value in _shown(state.configs.get(scope, {})).items() if name != "alias" or scope == subject}
        return found

    def _mode(self, state: State, subject: str | None) -> str:
        """The mode that holds for a subject."""
        scopes = state.scopes(subject)
        for scope in (None, GLOBAL_CONTEXT):
            if state.modes.get(scope) == READONLY_OVERRIDE:
                return READONLY_OVERRIDE
        return next((state.modes[scope] for scope in scopes if scope in state.modes), READWRITE)

    def _check_writable(self, state: State, subject: str | None) -> None:
        if self._mode(state, subject) in (READONLY, READONLY_OVERRIDE):
            raise not_permitted(f"Subject {subject} in context {context_of(subject)} is in read-only mode")

    def _check_mode(self, mode: str, subject: str, schema_id: int | None) -> None:
        """Kafka's registry: `AbstractSchemaRegistry#checkRegisterMode`."""
        place = f"Subject {subject} in context {context_of(subject)}"
        if mode in (READONLY, READONLY_OVERRIDE):
            raise not_permitted(f"{place} is in read-only mode")
        if schema_id is not None and mode != IMPORT:
            raise not_permitted(f"{place} is not in import mode")
        if schema_id is None and mode != READWRITE:
            raise not_permitted(f"{place} is not in read-write mode")

    def _check_id(self, state: State, context: str, schema_id: int, schema: Schema) -> None:
        others = state.with_id(context, schema_id)
        if others and others[0].schema != schema:
            raise not_permitted(f"Overwrite new schema with id {schema_id} in context {context} is not permitted.")

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
            version = _version(state, subject, reference["version"], deleted=True)
            if version is None:
                at = f"subject {reference['subject']}, version {reference['version']}"
                raise invalid_schema(f"Invalid schema, details: No schema reference found for {at} (name {reference['name']})")
            place = (subject, version.number)
            if reference["name"] in found or place in open_:
                continue
            self._refer(state, version.context, version.schema.references, found, open_ | {place})
            found[reference["name"]] = Referred(reference["name"], version.schema.text)

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


def _key(version: Version) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": version.subject, "version": version.number, "magic": 1}


def _setting(kind: str, subject: str | None) -> dict[str, Any]:
    return {"keytype": kind, "subject": subject, "magic": 0}


def _of_context(context: str) -> dict[str, Any]:
    return {"keytype": "CONTEXT", "tenant": "default", "context": context, "magic": 0}


def _shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the name of its subject."""
    return {name: value for name, value in config.items() if name != "subject"}


def _version(state: State, subject: str, number: int, *, deleted: bool = False) -> Version | None:
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


def _check_name(subject: str) -> None:
    """Kafka's registry: `QualifiedSubject#isValidSubject`: no control characters, not the name of all contexts."""
    if any(unicodedata.category(character) == "Cc" for character in subject) or bare(subject) == "__EMPTY":
        raise invalid_subject(subject)


def _property(schema: Schema, name: str) -> Any:
    return ((schema.metadata or {}).get("properties") or {}).get(name)


def _filled(schema: Schema, previous: Version | None, config: Mapping[str, Any]) -> Schema:
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
