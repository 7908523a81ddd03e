"""Confluent's errors: HTTP status, `error_code` and message.

Kafka's registry: `rest.exceptions.Errors`.
"""

from __future__ import annotations


class RegistryProblem(Exception):  # noqa: N818 - an answer of the interface, not a failure of the program
    """A request that is refused.

    Attributes:
        status: HTTP's status.
        code: Confluent's `error_code`.
    """

    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def not_found() -> RegistryProblem:
    """No such path."""
    return RegistryProblem(404, 404, "HTTP 404 Not Found")


def malformed(message: str) -> RegistryProblem:
    """400: the body is JSON, and not what is expected."""
    return RegistryProblem(400, 400, message)


def subject_not_found(subject: str | None) -> RegistryProblem:
    """40401."""
    return RegistryProblem(404, 40401, f"Subject '{subject}' not found.")


def version_not_found(version: object) -> RegistryProblem:
    """40402."""
    return RegistryProblem(404, 40402, f"Version {version} not found.")


def schema_not_found(which: object = None) -> RegistryProblem:
    """40403."""
    return RegistryProblem(404, 40403, "Schema not found" if which is None else f"Schema {which} not found")


def subject_soft_deleted(subject: str) -> RegistryProblem:
    """40404."""
    return RegistryProblem(404, 40404, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")


def subject_not_soft_deleted(subject: str) -> RegistryProblem:
    """40405."""
    return RegistryProblem(404, 40405, f"Subject '{subject}' was not deleted first before being permanently deleted")


def version_soft_deleted(subject: str, version: object) -> RegistryProblem:
    """40406."""
    return RegistryProblem(404, 40406, f"Subject '{subject}' Version {version} was soft deleted.Set permanent=true to delete permanently")


def version_not_soft_deleted(subject: str, version: object) -> RegistryProblem:
    """40407."""
    return RegistryProblem(404, 40407, f"Subject '{subject}' Version {version} was not deleted first before being permanently deleted")


def compatibility_not_configured(subject: str | None) -> RegistryProblem:
    """40408."""
    return RegistryProblem(404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured")


def mode_not_configured(subject: str | None) -> RegistryProblem:
    """40409."""
    return RegistryProblem(404, 40409, f"Subject '{subject}' does not have subject-level mode configured")


def incompatible(subject: str, messages: list[str]) -> RegistryProblem:
    """409."""
    details = ", ".join(messages)
    return RegistryProblem(409, 409, f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: [{details}]')


def invalid_schema(message: str) -> RegistryProblem:
    """42201."""
    return RegistryProblem(422, 42201, message)


def invalid_version(version: str) -> RegistryProblem:
    """42202."""
    allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
    return RegistryProblem(422, 42202, f"The specified version '{version}' is not a valid version id. {allowed}")


def invalid_compatibility(levels: tuple[str, ...]) -> RegistryProblem:
    """42203."""
    return RegistryProblem(422, 42203, f"Invalid compatibility level. Valid values are {', '.join(levels).lower()}")


def invalid_mode(modes: tuple[str, ...]) -> RegistryProblem:
    """42204."""
    return RegistryProblem(422, 42204, f"Invalid mode. Valid values are {', '.join(modes)}")


def not_permitted(message: str) -> RegistryProblem:
    """42205."""
    return RegistryProblem(422, 42205, message)


def reference_exists(subject: str, version: int) -> RegistryProblem:
    """42206."""
    key = f"{{magic=1,keytype=SCHEMA,subject={subject},version={version}}}"
    return RegistryProblem(422, 42206, f"One or more references exist to the schema {key}.")


def invalid_subject(subject: str) -> RegistryProblem:
    """42208."""
    return RegistryProblem(422, 42208, f"The specified subject '{subject}' is not a valid.")


def context_not_empty(context: str) -> RegistryProblem:
    """42211."""
    return RegistryProblem(422, 42211, f"Context '{context}' is not empty")


def store_failed(message: str) -> RegistryProblem:
    """50001."""
    return RegistryProblem(500, 50001, message)
