"""A registry, and a client that sends plain requests."""

import contextlib
import http.client
import json
from urllib.parse import urlsplit

import pytest

import fletchlog as fl

TYPE = "application/vnd.schemaregistry.v1+json"


class Caller:
    """Requests to a registry: status and body of each response."""

    def __init__(self, url):
        self.url = url
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)

    def __call__(self, method, path, body=None, **headers):
        sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        self._connection.request(method, path, sent, {"Content-Type": TYPE} | {name.replace("_", "-"): value for name, value in headers.items()})
        response = self._connection.getresponse()
        self.headers, text = response.headers, response.read().decode()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, text

    def register(self, subject, schema, **fields):
        """Registers a schema: its id, or the error code."""
        status, body = self("POST", f"/subjects/{subject}/versions", body_of(schema) | fields)
        return body["id"] if status == 200 else body["error_code"]

    def close(self):
        self._connection.close()


def body_of(schema):
    """The body of a request with a schema: Avro as a dict, another one as a body."""
    if isinstance(schema, dict) and "schema" in schema:
        return schema
    return {"schema": json.dumps(schema)}


def record(*fields, name="R"):
    """An Avro record with fields of type int, `name=1` with a default."""
    made = []
    for field in fields:
        field_name, _, default = field.partition("=")
        made.append({"name": field_name, "type": "int"} | ({"default": int(default)} if default else {}))
    return {"type": "record", "name": name, "fields": made}


def proto(text, *references):
    return {"schemaType": "PROTOBUF", "schema": f'syntax = "proto3"; {text}', "references": list(references)}


def json_schema(schema, *references):
    return {"schemaType": "JSON", "schema": json.dumps(schema), "references": list(references)}


def refer(name, subject, version=1):
    return {"name": name, "subject": subject, "version": version}


@contextlib.contextmanager
def opened(broker):
    """A registry over a broker, and its caller."""
    with broker.schema_registry() as registry, contextlib.closing(Caller(registry.url)) as call:
        yield call


@pytest.fixture
def broker():
    with fl.Broker.in_memory() as made:
        yield made


@pytest.fixture
def call(broker):
    with opened(broker) as made:
        yield made
