"""Configurations and modes: what is set for a subject, a context and all, and what holds for a subject."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

from fletchlog.registry.entities import GLOBAL_CONTEXT, bare, context_of, normal, qualified
from fletchlog.registry.problems import (
    compatibility_not_configured,
    invalid_compatibility,
    invalid_mode,
    invalid_subject,
    malformed,
    mode_not_configured,
    not_permitted,
    subject_not_found,
)
from fletchlog.registry.shapes import wrong_in_configuration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from fletchlog.registry.log import SchemaLog
    from fletchlog.registry.state import State

LEVELS = ("NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE")
READWRITE, READONLY, READONLY_OVERRIDE, IMPORT = MODES = ("READWRITE", "READONLY", "READONLY_OVERRIDE", "IMPORT")
DEFAULT_LEVEL = "BACKWARD"
# What a configuration has beside `compatibilityLevel`. Those of the second line are kept and returned, and change nothing.
CONFIG_FIELDS = (
    *("normalize", "alias", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet"),
    *("validateFields", "validateNames", "compatibilityPolicy"),
)


class Settings:
    """What is configured, in the topic `_schemas`. All threads may call."""

    def __init__(self, log: SchemaLog) -> None:
        self._log = log

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
            check_name(subject)
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
            check_name(subject)
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

    # --- what holds for a subject

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

    def _forget_settings(self, state: State, subject: str) -> None:
        """What a subject without versions had configured is removed."""
        if subject in state.modes:
            self._log.write(_setting("MODE", subject), None)
        if subject in state.configs:
            self._log.write(_setting("CONFIG", subject), None)


def check_name(subject: str) -> None:
    """Kafka's registry: `QualifiedSubject#isValidSubject`: no control characters, not the name of all contexts."""
    if any(unicodedata.category(character) == "Cc" for character in subject) or bare(subject) == "__EMPTY":
        raise invalid_subject(subject)


def _setting(kind: str, subject: str | None) -> dict[str, Any]:
    return {"keytype": kind, "subject": subject, "magic": 0}


def _shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration without the name of its subject."""
    return {name: value for name, value in config.items() if name != "subject"}
