"""Confluent's REST API: paths, queries and bodies to calls of `Registry`, their results and errors to responses."""

from __future__ import annotations

import base64
import hmac
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from fletchlog._http import Response
from fletchlog.registry.entities import normal, qualified
from fletchlog.registry.formats import KINDS
from fletchlog.registry.given import number_of, schema_of
from fletchlog.registry.problems import RegistryProblem, invalid_schema, not_found, schema_not_found
from fletchlog.registry.settings import CONFIG_FIELDS

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from fletchlog._http import Request
    from fletchlog.registry.core import Registry
    from fletchlog.registry.entities import Version

# What bodies may be, and what responses are, the preferred one first.
TYPES = ("application/vnd.schemaregistry.v1+json", "application/vnd.schemaregistry+json", "application/json")
BODIES = (*TYPES, "application/octet-stream")
# What a schema in a body has.
SCHEMA_FIELDS = (
    *("schema", "schemaType", "references", "metadata", "ruleSet", "id", "version"),
    *("schemaTagsToAdd", "schemaTagsToRemove", "propagateSchemaTags"),
)
VERSION = "8.0.0-fletchlog"


class Rest:
    """The interface: an `Application` of the HTTP server."""

    def __init__(self, registry: Registry, cluster_id: Callable[[], str | None], users: Mapping[str, str] | None) -> None:
        self._registry, self._cluster_id = registry, cluster_id
        self._users = users and {base64.b64encode(f"{name}:{password}".encode()).decode() for name, password in users.items()}

    def respond(self, request: Request) -> Response:
        """See `Application.respond`."""
        kind = _accepted(request.headers.get("Accept", "*/*"))
        try:
            if self._users and not _is_user(request.headers.get("Authorization", ""), self._users):
                problem = {"error_code": 401, "message": "Unauthorized"}
                return Response(401, _json(problem), kind or TYPES[0], (("WWW-Authenticate", 'Basic realm="fletchlog"'),))
            if kind is None:
                raise RegistryProblem(406, 406, "HTTP 406 Not Acceptable")  # noqa: TRY301 - one place makes responses of problems
            path = [unquote(part) for part in request.path.strip("/").split("/")]
            query = _Query(request.query)
            query.takes_unknown = request.headers.get("Confluent-Accept-Unknown-Properties", "").lower() == "true"
            if path[0] == "contexts" and len(path) > 2:  # noqa: PLR2004 - contexts/NAME/..
                path, query.context = path[2:], _context(path[1])
            found = self._found(request.method, path, query, _body(request))
            if found is None:
                return Response(204, b"", kind)
            return Response(200, found.encode() if isinstance(found, _Text) else _json(found), kind)
        except RegistryProblem as problem:
            return Response(problem.status, _json({"error_code": problem.code, "message": str(problem)}), kind or TYPES[0])
        except Exception as error:  # noqa: BLE001 - the client gets an answer, whatever it is
            return Response(500, _json({"error_code": 500, "message": f"{type(error).__name__}: {error}"}), kind or TYPES[0])

    def refuse(self, status: int, message: str) -> Response:
        """See `Application.refuse`."""
        return Response(status, _json({"error_code": status, "message": message}), TYPES[0])

    def _found(self, method: str, path: Sequence[str], query: _Query, body: dict[str, Any]) -> Any:
        method = "GET" if method == "HEAD" else method
        first, *rest = path
        match first:
            case "" if method == "GET" and not rest:
                return {}
            case "subjects":
                return self._subjects(method, rest, query, body)
            case "schemas" if method == "GET":
                return self._schemas(rest, query)
            case "compatibility" if method == "POST" and rest[:1] == ["subjects"]:
                return self._compatibility(rest[1:], query, body)
            case "config":
                return self._config(method, rest, query, body)
            case "mode":
                return self._mode(method, rest, query, body)
            case "contexts" if method == "GET" and not rest:
                return query.page([name for name in self._registry.contexts() if name.startswith(query.text("contextPrefix").strip(":"))])
            case "contexts" if method == "DELETE" and len(rest) == 1:
                self._registry.delete_context(_context(rest[0]))
                return None
            case "v1" if method == "GET" and rest == ["metadata", "id"]:
                cluster = self._cluster_id() or ""
                return {"scope": {"path": [], "clusters": {"kafka-cluster": cluster, "schema-registry-cluster": "schema-registry"}}}
            case "v1" if method == "GET" and rest == ["metadata", "version"]:
                return {"version": VERSION, "commitId": ""}
        raise not_found()

    def _subjects(self, method: str, path: Sequence[str], query: _Query, body: dict[str, Any]) -> Any:
        registry = self._registry
        deleted, only = query.flag("deleted"), query.flag("deletedOnly") or query.flag("deleted_only")
        if not path:
            if method != "GET":
                raise _not_allowed()
            prefix = query.prefix(query.text("subjectPrefix"))
            return query.page(registry.subjects(prefix, deleted=deleted, deleted_only=only))
        subject = query.subject(path[0])
        _known(body, SCHEMA_FIELDS, query)
        match method, *path[1:]:
            case ("POST",):
                found = registry.look_up(subject, schema_of(body), normalize=query.flag("normalize"), deleted=deleted)
                return self._shown(found, query)
            case ("DELETE",):
                return registry.delete_subject(subject, permanent=query.flag("permanent"))
            case "GET", "versions":
                return query.page([version.number for version in registry.versions(subject, deleted=deleted, deleted_only=only)])
            case "POST", "versions":
                return self._registered(subject, query, body)
            case "GET", "metadata":
                return self._with_metadata(subject, query)
            case "GET", "versions", number:
                return self._shown(registry.version(subject, number_of(number), deleted=deleted), query)
            case "DELETE", "versions", number:
                return registry.delete_version(subject, number_of(number), permanent=query.flag("permanent"))
            case "GET", "versions", number, "schema":
                return self._text(registry.version(subject, number_of(number), deleted=deleted), query)
            case "GET", "versions", number, "referencedby":
                return query.page(registry.referring_ids(subject, number_of(number)))
        raise _not_allowed() if path[1:] in ([], ["versions"]) else not_found()

    def _registered(self, subject: str, query: _Query, body: dict[str, Any]) -> Any:
        schema_id, number = body.get("id"), body.get("version")
        for name, value in (("id", schema_id), ("version", number)):
            if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
                raise invalid_schema(f"`{name}` is a whole number")
        wanted_id = schema_id if schema_id is not None and schema_id >= 0 else None
        given = schema_of(body)
        found = self._registry.register(subject, given, schema_id=wanted_id, number=number, normalize=query.flag("normalize"))
        place = {"id": found.id, "version": found.number, "guid": found.guid}
        kept = found.schema
        if given.text.strip() and (given.metadata, given.rule_set) == (kept.metadata, kept.rule_set):
            # clients keep what they have sent, in the form in which they sent it
            return place
        return place | kept.entity()

    def _with_metadata(self, subject: str, query: _Query) -> Any:
        """The newest version whose metadata have the properties `key` with the values `value`."""
        wanted = dict(zip(query.all("key"), query.all("value"), strict=False))
        for version in reversed(self._registry.versions(subject, deleted=query.flag("deleted"))):
            properties = (version.schema.metadata or {}).get("properties") or {}
            if properties and all(properties.get(name) == value for name, value in wanted.items()):
                return self._shown(version, query)
        raise schema_not_found()

    def _schemas(self, path: Sequence[str], query: _Query) -> Any:
        registry, deleted = self._registry, query.flag("deleted")
        match path:
            case []:
                found = registry.schemas(query.prefix(query.text("subjectPrefix")), deleted=deleted, latest_only=query.flag("latestOnly"))
                return query.page([self._shown(version, query) for version in found])
            case ["types"]:
                return list(KINDS)
            case ["ids", number]:
                return self._with_id(number, query)
            case ["ids", number, "schema"]:
                return self._text(self._of_id(number, query)[0], query)
            case ["ids", number, "subjects"]:
                return query.page(list(dict.fromkeys(version.subject for version in self._of_id(number, query, deleted=deleted))))
            case ["ids", number, "versions"]:
                return query.page([{"subject": version.subject, "version": version.number} for version in self._of_id(number, query, deleted=deleted)])
            case ["guids", guid]:
                version = registry.with_guid(guid)[0]
                shown = self._shown(version, query)
                return {name: value for name, value in shown.items() if name not in ("subject", "version", "id")}
            case ["guids", guid, "ids"]:
                return [{"context": version.context, "id": version.id} for version in registry.with_guid(guid)]
        raise not_found()

    def _of_id(self, number: str, query: _Query, *, deleted: bool = True) -> list[Version]:
        if not number.isascii() or not number.isdecimal():
            raise not_found()
        subject = query.text("subject")
        if query.context:
            subject = query.subject(subject)
        return self._registry.with_id(int(number), subject or None, deleted=deleted)

    def _with_id(self, number: str, query: _Query) -> Any:
        found = self._of_id(number, query)
        subject = query.text("subject")
        shown = self._shown(next((version for version in found if version.subject == normal(subject)), found[0]), query)
        shown = {name: value for name, value in shown.items() if name not in ("id", "subject", "version") or (subject and name != "id")}
        if query.flag("fetchMaxId"):
            shown["maxId"] = self._registry.largest_id(found[0].subject)
        return shown

    def _compatibility(self, path: Sequence[str], query: _Query, body: dict[str, Any]) -> Any:
        match path:
            case [subject, "versions"]:
                number = None
            case [subject, "versions", text]:
                number = number_of(text)
            case _:
                raise not_found()
        _known(body, SCHEMA_FIELDS, query)
        problems, unchecked = self._registry.compatibility(query.subject(subject), number, schema_of(body), normalize=query.flag("normalize"))
        return {"is_compatible": not problems} | ({"messages": [*problems, *unchecked]} if query.flag("verbose") else {})

    def _config(self, method: str, path: Sequence[str], query: _Query, body: dict[str, Any]) -> Any:
        subject = _setting(path, query)
        match method:
            case "GET":
                return self._registry.config(subject, default=query.flag("defaultToGlobal") or not path)
            case "PUT":
                _known(body, ("compatibility", "compatibilityLevel", *CONFIG_FIELDS), query)
                self._registry.set_config(subject, body)
                return body
            case "DELETE":
                return self._registry.delete_config(subject)
        raise _not_allowed()

    def _mode(self, method: str, path: Sequence[str], query: _Query, body: dict[str, Any]) -> Any:
        subject = _setting(path, query)
        match method:
            case "GET":
                return {"mode": self._registry.mode(subject, default=query.flag("defaultToGlobal") or not path)}
            case "PUT":
                _known(body, ("mode",), query)
                return {"mode": self._registry.set_mode(subject, body.get("mode"), force=query.flag("force"))}
            case "DELETE":
                return {"mode": self._registry.delete_mode(subject)}
        raise _not_allowed()

    def _shown(self, version: Version, query: _Query) -> dict[str, Any]:
        """A version, with its text in the form that is asked for."""
        shown = version.entity()
        if form := query.text("format"):
            shown["schema"] = self._registry.formatted(version, form)
        return shown

    def _text(self, version: Version, query: _Query) -> _Text:
        """The text alone, not as JSON."""
        return _Text(self._registry.formatted(version, query.text("format")))


class _Text(str):
    """A body that is a text."""

    __slots__ = ()


class _Query:
    """The query of a request, and the context in its path (`/contexts/NAME/..`)."""

    def __init__(self, pairs: Sequence[tuple[str, str]]) -> None:
        self._pairs = pairs
        self.context = ""
        self.takes_unknown = False

    def text(self, name: str) -> str:
        return next((value for key, value in self._pairs if key == name), "")

    def all(self, name: str) -> list[str]:
        return [value for key, value in self._pairs if key == name]

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def subject(self, subject: str) -> str:
        """A subject of a path in its context. Confluent's `ContextFilter`: one that has a context of its own keeps it."""
        return qualified(self.context, subject) if self.context and not subject.startswith(":.") else subject

    def prefix(self, prefix: str) -> str:
        """A prefix of subjects; none: all subjects."""
        if self.context and not prefix.startswith((":.", ":*:")):
            return f":{self.context}:{prefix}" if self.context != "." else prefix
        return prefix or ":*:"

    def page(self, found: list[Any]) -> list[Any]:
        """The part that `offset` and `limit` ask for."""
        numbers = {name: int(self.text(name)) for name in ("offset", "limit") if self.text(name).removeprefix("-").isdecimal()}
        begin, limit = max(numbers.get("offset", 0), 0), numbers.get("limit", -1)
        return found[begin : begin + limit] if limit > 0 else found[begin:]


def _setting(path: Sequence[str], query: _Query) -> str | None:
    """Whose setting a path means; None: that of all."""
    if len(path) > 1:
        raise not_found()
    if path:
        return query.subject(path[0])
    return f":{query.context}:" if query.context and query.context != "." else None


def _context(name: str) -> str:
    """The context of a path: `ctx`, `.ctx` and `:.ctx:` are the same."""
    name = name.strip(":")
    return name if name.startswith(".") else f".{name}"


def _not_allowed() -> RegistryProblem:
    return RegistryProblem(405, 405, "HTTP 405 Method Not Allowed")


def _accepted(accept: str) -> str | None:
    """The type of a response: the one that the client prefers; None: it takes none of them."""
    taken = []
    for part in accept.split(","):
        kind, *parameters = [word.strip().lower() for word in part.split(";")]
        weight = next((word[2:] for word in parameters if word.startswith("q=")), "1")
        try:
            taken.append((-float(weight), kind))
        except ValueError:
            taken.append((-1.0, kind))
    for _, kind in sorted(taken, key=lambda pair: pair[0]):
        if kind in TYPES:
            return kind
        if kind in ("", "*", "application/*") or kind.startswith("*/"):
            return TYPES[0]
    return None


def _body(request: Request) -> dict[str, Any]:
    """The JSON object of a body."""
    if not request.body:
        if request.method in ("POST", "PUT"):
            raise RegistryProblem(422, 422, "the request has no body; a JSON object is expected")
        return {}
    # A page in a browser cannot send these types to another origin without asking; without a type it says that it is one.
    given = request.headers.get_content_type() if "Content-Type" in request.headers else None if "Origin" in request.headers else BODIES[-1]
    if given not in BODIES:
        raise RegistryProblem(415, 415, "HTTP 415 Unsupported Media Type")
    try:
        body = json.loads(request.body)
    except (ValueError, RecursionError) as error:
        raise RegistryProblem(400, 400, f"the body is no JSON: {error}") from None
    if not isinstance(body, dict):
        raise RegistryProblem(400, 400, "a body must be a JSON object")
    return body


def _known(body: Mapping[str, Any], names: Collection[str], query: _Query) -> None:
    """Refuses fields that Confluent's registry does not have, as it does without the header Confluent-Accept-Unknown-Properties."""
    if not query.takes_unknown and (unknown := next((name for name in body if name not in names), None)) is not None:
        raise RegistryProblem(422, 422, f"Unrecognized field: {unknown}")


def _is_user(given: str, users: set[str]) -> bool:
    kind, _, credentials = given.partition(" ")
    return kind.lower() == "basic" and any(hmac.compare_digest(credentials.strip().encode(), user.encode()) for user in users)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
