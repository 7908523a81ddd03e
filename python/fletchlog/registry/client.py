"""A client of a schema registry: Confluent's, or the one of a broker."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote, urlencode

from fletchlog._closing import AsyncClosing, Closing
from fletchlog.errors import InvalidArgumentError
from fletchlog.registry.connections import Connections

if TYPE_CHECKING:
    from collections.abc import Callable
    from os import PathLike

References: TypeAlias = Sequence["Reference"]
# Schemas and ids that are remembered; both never change.
_KEPT = 10_000


class Reference(NamedTuple):
    """What a schema refers to.

    Attributes:
        name: The name by which the schema refers to it: a full name in Avro, a file in Protobuf, what `$ref` has in JSON Schema.
        subject: The subject that it is registered under.
        version: Its version there.
    """

    name: str
    subject: str
    version: int


class RegisteredSchema(NamedTuple):
    """A schema of a registry.

    Attributes:
        id: Its id; None: the response had none, as when it was asked for by its GUID.
        kind: "AVRO", "JSON" or "PROTOBUF".
        text: Its text.
        references: What it refers to.
        guid: Its GUID; None: the registry knows none.
        subject: The subject that was asked for; None: none was.
        version: Its version there; None: the same.
    """

    id: int | None
    kind: str
    text: str
    references: tuple[Reference, ...] = ()
    guid: str | None = None
    subject: str | None = None
    version: int | None = None


class Registry(Closing):
    """A client of a schema registry. All threads may use it; it can be pickled, and connects when it is first used.

        with serde.Registry("http://127.0.0.1:8081") as registry:
            registry.register("orders-value", '"string"')

    Args:
        url: Its address, `http://HOST:PORT`, or several: the next one is asked when one does not answer. A user and a password may be in it.
        auth: User and password, of HTTP's basic authentication.
        token: A bearer token, or a function that returns one for each request.
        ca: A file of certificates that the registry's is checked with; None: the system's.
        certificate: A file with this client's certificate, for a registry that asks for one.
        key: A file with the key of the certificate; None: it is in the same file.
        timeout: Longest wait for a response, s.
        retries: How often all addresses are tried again, after waits of up to 2 s.

    Every method raises `fletchlog.errors.SchemaRegistryError` if the registry refuses, with its `status` and Confluent's `error_code`, and
    `fletchlog.errors.SchemaRegistryUnavailableError` if none answers; both name the URL.

    Raises:
        fletchlog.errors.InvalidArgumentError: No such URL, or both `auth` and `token`.
        OSError: A file of certificates cannot be read.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        auth: tuple[str, str] | None = None,
        token: str | Callable[[], str] | None = None,
        ca: str | PathLike[str] | None = None,
        certificate: str | PathLike[str] | None = None,
        key: str | PathLike[str] | None = None,
        timeout: float = 10.0,
        retries: int = 3,
    ) -> None:
        if auth is not None and token is not None:
            raise InvalidArgumentError("give auth or token, not both")
        urls = [part.strip() for part in url.split(",")] if isinstance(url, str) else list(url)
        if not urls:
            raise InvalidArgumentError("a registry has at least one URL")
        self._given: dict[str, Any] = {
            "url": urls,
            "auth": auth,
            "token": token,
            "ca": ca,
            "certificate": certificate,
            "key": key,
            "timeout": timeout,
            "retries": retries,
        }
        tls = None
        if ca is not None or certificate is not None:
            tls = ssl.create_default_context(cafile=ca)
            if certificate is not None:
                tls.load_cert_chain(certificate, key)
        self._http = Connections(urls, auth=auth, token=token, tls=tls, timeout_s=timeout, retries=retries)
        self._schemas: dict[tuple[int | str, str, str], RegisteredSchema] = {}
        self._ids: dict[tuple[Any, ...], RegisteredSchema] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        """What is pickled: the arguments."""
        return _made, (self._given,)

    def __repr__(self) -> str:
        """Its address, without a password."""
        return f"Registry({', '.join(address.rpartition('@')[2] for address in self._given['url'])})"

    def close(self) -> None:
        """Closes its connections; it can still be used."""
        self._http.close()

    def subjects(self, prefix: str | None = None, *, deleted: bool = False) -> list[str]:
        """Names of the subjects, sorted; with `deleted` also those that are deleted softly."""
        found: list[str] = self._http.call("GET", "/subjects" + _query(subjectPrefix=prefix, deleted=deleted))
        return found

    def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """Versions of a subject, ascending."""
        found: list[int] = self._http.call("GET", f"/subjects/{_name(subject)}/versions" + _query(deleted=deleted))
        return found

    def version(self, subject: str, version: int | str = "latest", *, deleted: bool = False, form: str | None = None) -> RegisteredSchema:
        """A version of a subject; `form` is Confluent's `format`, such as "serialized" for Protobuf."""
        return _registered(self._http.call("GET", f"/subjects/{_name(subject)}/versions/{version}" + _query(deleted=deleted, format=form)))

    def schema(self, schema_id: int | str, *, subject: str | None = None, form: str | None = None) -> RegisteredSchema:
        """The schema with an id, or with a GUID. It is asked for once.

        Args:
            schema_id: The id, a number; or the GUID, a text.
            subject: A subject that has it, where ids of several contexts may be meant.
            form: Confluent's `format`.
        """
        key = (schema_id, subject or "", form or "")
        if (known := self._schemas.get(key)) is None:
            path = f"/schemas/ids/{schema_id}" if isinstance(schema_id, int) else f"/schemas/guids/{_name(schema_id)}"
            known = _registered(self._http.call("GET", path + _query(subject=subject, format=form)))
            if isinstance(schema_id, int):
                known = known._replace(id=schema_id)
            _keep(self._schemas, key, known)
        return known

    def register(self, subject: str, schema: Any, *, kind: str = "AVRO", references: References = (), normalize: bool = False) -> int:
        """Registers a schema, and returns its id; one that is registered already is asked for once.

        Args:
            subject: The subject, such as "orders-value".
            schema: Its text, or what the text parses to.
            kind: "AVRO", "JSON" or "PROTOBUF".
            references: What it refers to.
            normalize: Whether what does not matter, such as the order of properties, makes another schema (False) or not.
        """
        return self.registered(subject, schema, kind=kind, references=references, normalize=normalize).id or 0

    def registered(self, subject: str, schema: Any, *, kind: str = "AVRO", references: References = (), normalize: bool = False) -> RegisteredSchema:
        """As `register`; returns also the GUID, if the registry knows one."""
        body = _body(schema, kind, references)
        key = (subject, json.dumps(body), normalize)
        if (known := self._ids.get(key)) is None:
            found = self._http.call("POST", f"/subjects/{_name(subject)}/versions" + _query(normalize=normalize), body)
            known = RegisteredSchema(found["id"], kind, body["schema"], tuple(references), found.get("guid"), subject, found.get("version"))
            _keep(self._ids, key, known)
        return known

    def lookup(
        self, subject: str, schema: Any, *, kind: str = "AVRO", references: References = (), normalize: bool = False, deleted: bool = False
    ) -> RegisteredSchema:
        """The version of a subject that has a schema; arguments of `register`."""
        path = f"/subjects/{_name(subject)}" + _query(normalize=normalize, deleted=deleted)
        return _registered(self._http.call("POST", path, _body(schema, kind, references)))

    def compatibility(self, subject: str, schema: Any, *, version: int | str | None = "latest", kind: str = "AVRO", references: References = ()) -> list[str]:
        """Why a schema is not compatible with a version of a subject; empty: it is. `version=None`: with all that the level asks for."""
        path = f"/compatibility/subjects/{_name(subject)}/versions" + (f"/{version}" if version is not None else "") + _query(verbose=True)
        found = self._http.call("POST", path, _body(schema, kind, references))
        return [] if found["is_compatible"] else list(found.get("messages") or ["the schemas are not compatible"])

    def config(self, subject: str | None = None, *, default: bool = True) -> dict[str, Any]:
        """What is configured for a subject, or with None for all; with `default` also what a subject has from these."""
        path = "/config" + (f"/{_name(subject)}" + _query(defaultToGlobal=default) if subject is not None else "")
        found: dict[str, Any] = self._http.call("GET", path)
        return found

    def set_config(self, subject: str | None = None, **fields: Any) -> None:
        """Changes fields of a configuration, such as `compatibility="FULL"`, of a subject or with None of all."""
        self._http.call("PUT", "/config" + (f"/{_name(subject)}" if subject is not None else ""), fields)

    def delete(self, subject: str, version: int | str | None = None, *, permanent: bool = False) -> list[int]:
        """Deletes a version of a subject, or all of them: softly, or what is deleted softly `permanent`ly. Their numbers."""
        self._ids.clear()
        path = f"/subjects/{_name(subject)}" + (f"/versions/{version}" if version is not None else "") + _query(permanent=permanent)
        found = self._http.call("DELETE", path)
        return found if isinstance(found, list) else [found]


class AsyncRegistry(AsyncClosing):
    """The same for coroutines: a request runs in a thread, and the event loop continues. Arguments are those of `Registry`, or one such client."""

    def __init__(self, url: str | Sequence[str] | Registry, **options: Any) -> None:
        self.client = url if isinstance(url, Registry) else Registry(url, **options)

    async def subjects(self, prefix: str | None = None, *, deleted: bool = False) -> list[str]:
        """See `Registry.subjects`."""
        return await asyncio.to_thread(self.client.subjects, prefix, deleted=deleted)

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        """See `Registry.versions`."""
        return await asyncio.to_thread(self.client.versions, subject, deleted=deleted)

    async def version(self, subject: str, version: int | str = "latest", *, deleted: bool = False) -> RegisteredSchema:
        """See `Registry.version`."""
        return await asyncio.to_thread(self.client.version, subject, version, deleted=deleted)

    async def schema(self, schema_id: int | str, *, subject: str | None = None, form: str | None = None) -> RegisteredSchema:
        """See `Registry.schema`."""
        return await asyncio.to_thread(self.client.schema, schema_id, subject=subject, form=form)

    async def register(self, subject: str, schema: Any, *, kind: str = "AVRO", references: References = (), normalize: bool = False) -> int:
        """See `Registry.register`."""
        return await asyncio.to_thread(self.client.register, subject, schema, kind=kind, references=references, normalize=normalize)

    async def lookup(self, subject: str, schema: Any, **options: Any) -> RegisteredSchema:
        """See `Registry.lookup`."""
        return await asyncio.to_thread(self.client.lookup, subject, schema, **options)

    async def compatibility(self, subject: str, schema: Any, **options: Any) -> list[str]:
        """See `Registry.compatibility`."""
        return await asyncio.to_thread(self.client.compatibility, subject, schema, **options)

    async def config(self, subject: str | None = None, *, default: bool = True) -> dict[str, Any]:
        """See `Registry.config`."""
        return await asyncio.to_thread(self.client.config, subject, default=default)

    async def set_config(self, subject: str | None = None, **fields: Any) -> None:
        """See `Registry.set_config`."""
        await asyncio.to_thread(self.client.set_config, subject, **fields)

    async def delete(self, subject: str, version: int | str | None = None, *, permanent: bool = False) -> list[int]:
        """See `Registry.delete`."""
        return await asyncio.to_thread(self.client.delete, subject, version, permanent=permanent)

    async def close(self) -> None:
        """See `Registry.close`."""
        await asyncio.to_thread(self.client.close)


def _made(given: dict[str, Any]) -> Registry:
    return Registry(**given)


def _name(text: str) -> str:
    return quote(text, safe="")


def _query(**given: object) -> str:
    """The query of a path: what is not None and not False."""
    found = {name: "true" if value is True else value for name, value in given.items() if value is not None and value is not False}
    return f"?{urlencode(found)}" if found else ""


def _body(schema: Any, kind: str, references: References) -> dict[str, Any]:
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body: dict[str, Any] = {"schema": text}
    if kind != "AVRO":
        body["schemaType"] = kind
    if references:
        body["references"] = [Reference(*reference)._asdict() for reference in references]
    return body


def _registered(found: Mapping[str, Any]) -> RegisteredSchema:
    references = tuple(Reference(one["name"], one["subject"], one["version"]) for one in found.get("references") or ())
    kind = found.get("schemaType") or "AVRO"
    return RegisteredSchema(found.get("id"), kind, found["schema"], references, found.get("guid"), found.get("subject"), found.get("version"))


def _keep(table: dict[Any, Any], key: Any, value: Any) -> None:
    if len(table) >= _KEPT:
        table.clear()
    table[key] = value
