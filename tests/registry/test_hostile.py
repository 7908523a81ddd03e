"""Requests with anything in them: the registry refuses them in words, and what it keeps is read by another registry."""

import json
from urllib.parse import quote

from hypothesis import given, settings
from hypothesis import strategies as st

import fletchlog as fl
from tests.registry.conftest import opened

SUBJECTS = st.sampled_from(["a", "b", ":.c:a", ":.c:", ":.:a", "a b", "x/y", "", "__EMPTY", ":.__GLOBAL:"]).map(lambda name: quote(name, safe=""))
VERSIONS = st.sampled_from(["1", "2", "latest", "-1", "0", "x", "99999999999"])
ANY = st.sampled_from([None, True, 1, -1, 1.5, 2**70, "x", "", "NONE", "IMPORT", [], [1], {}, {"a": 1}, {"tags": {"a": ["b"]}}, {"properties": {"a": "b"}}])
RULES = st.sampled_from([{"domainRules": [{"name": "n", "tags": ["a"], "params": {"a": "b"}}]}, {"domainRules": [5]}, {"migrationRules": [{"name": 5}]}])
TEXTS = {
    "AVRO": [
        *('"int"', '"R"', "{", "[]", "null", '["int", "null"]', '{"type": ["int"]}', '{"type": "array"}', '{"type": "enum", "name": "E", "symbols": [1]}'),
        '{"type": "record", "name": "R", "fields": [{"name": "x", "type": {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 9}}]}',
        '{"type": "record", "name": "R", "aliases": {"a": 1}, "fields": [{"name": "x", "type": "int", "aliases": 5}]}',
        '{"type": "record", "name": "R", "fields": [{"name": "next", "type": ["null", "R"], "default": null}]}',
    ],
    "JSON": [
        *("{}", "true", '{"$ref": "#"}', '{"$ref": "b.json"}', '{"required": 5}', '{"pattern": "("}', '{"enum": 5}', '{"$id": 5}', '{"anyOf": []}'),
        '{"type": ["object", "null"], "properties": {"a": {"type": "integer"}}}',
        '{"maxLength": 1e400, "minimum": "x"}',
        '{"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}}',
    ],
    "PROTOBUF": [
        *(
            "",
            "}",
            "message",
            "AAAA",
            "CgVhLnByb3Rv",
            'syntax = "proto3"; message A { A.B.C x = 1; }',
            'syntax = "proto3"; import "x.proto"; message A { X x = 1; }',
        ),
        'syntax = "proto3"; message A { optional string a = 1 [json_name = 5]; }',
        "message A { optional int32 a = 1 [default = 99999999999999999999]; optional group G = 2 { optional int32 b = 1; } }",
        'syntax = "proto3"; option (a.b).c = { x: [1, 2] }; service S { rpc X (A) returns (stream A); } message A { map<string, A> m = 1; }',
    ],
}


@st.composite
def body(draw):
    kind = draw(st.sampled_from(sorted(TEXTS)))
    made = {"schemaType": kind, "schema": draw(st.sampled_from(TEXTS[kind]))}
    for name in draw(st.lists(st.sampled_from(["schema", "schemaType", "references", "metadata", "ruleSet", "id", "version"]), max_size=2)):
        made[name] = draw(RULES if name == "ruleSet" and draw(st.booleans()) else ANY)
    return made


FIELDS = ("compatibility", "normalize", "alias", "compatibilityGroup", "defaultMetadata", "overrideMetadata", "defaultRuleSet", "validateFields")
CONFIG = st.dictionaries(st.sampled_from(FIELDS), st.one_of(ANY, RULES), max_size=3)
PAGE = st.sampled_from(["", "?deleted=true", "?permanent=true", "?normalize=true&verbose=true", "?offset=x&limit=-5", "?format=serialized", "?force=true"])
CALLS = st.one_of(
    st.tuples(st.just("POST"), st.builds("/subjects/{}/versions".format, SUBJECTS), body()),
    st.tuples(st.just("POST"), st.builds("/subjects/{}".format, SUBJECTS), body()),
    st.tuples(st.just("POST"), st.builds("/compatibility/subjects/{}/versions/{}".format, SUBJECTS, VERSIONS), body()),
    st.tuples(st.sampled_from(["GET", "DELETE"]), st.builds("/subjects/{}/versions/{}".format, SUBJECTS, VERSIONS), st.none()),
    st.tuples(st.sampled_from(["GET", "DELETE"]), st.builds("/{}/{}".format, st.sampled_from(["config", "mode", "subjects"]), SUBJECTS), st.none()),
    st.tuples(st.just("GET"), st.builds("/schemas/ids/{}{}".format, VERSIONS, st.sampled_from(["", "/schema", "/versions"])), st.none()),
    st.tuples(st.just("PUT"), st.builds("/config/{}".format, SUBJECTS), CONFIG),
    st.tuples(st.just("PUT"), st.builds("/mode/{}".format, SUBJECTS), st.builds(lambda mode: {"mode": mode}, ANY)),
)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(CALLS, PAGE), min_size=5, max_size=30))
def test_no_request_breaks_the_registry(calls):
    with fl.Broker.in_memory() as broker, opened(broker) as call:
        for (method, path, content), page in calls:
            status, answer = call(method, path + page, content)
            assert status < 500, (method, path, json.dumps(content), answer)
        with opened(broker) as other:
            for path in ("/subjects?deleted=true", "/schemas?deleted=true", "/contexts", "/config"):
                assert call("GET", path) == other("GET", path)
