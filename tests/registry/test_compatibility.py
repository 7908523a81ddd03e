"""Which schemas are compatible, rule by rule: the rules that Confluent publishes for JSON Schema and Protobuf, and Avro's of schema resolution."""

import base64
import json

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from fletchlog.registry.formats import Referred, parse


def problems(kind, old, new):
    """Why the new schema cannot read what was written with the old one: names of the differences."""
    if kind != "PROTOBUF":
        old, new = json.dumps(old), json.dumps(new)
    found = parse(kind, new, ()).problems_reading(parse(kind, old, ()))
    return [one.partition('errorType:"')[2].partition('"')[0] or one.partition("errorType:'")[2].partition("'")[0] for one in found]


def closed(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


def open_(**properties):
    return {"type": "object", "properties": properties}


INT, STRING, NUMBER = {"type": "integer"}, {"type": "string"}, {"type": "number"}


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ({}, {}, ""),
        (STRING, {}, ""),
        (False, STRING, ""),
        ({}, STRING, "TYPE_NARROWED"),
        (STRING, False, "TYPE_CHANGED"),
        (STRING, {"type": "string", "title": "t", "description": "d", "default": "x"}, ""),
        (INT, NUMBER, ""),
        (NUMBER, INT, "TYPE_CHANGED"),
        (STRING, INT, "TYPE_CHANGED"),
        (STRING, {"type": ["string", "null"]}, ""),
        ({"type": ["string", "null"]}, STRING, "TYPE_NARROWED"),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, ""),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, "ENUM_ARRAY_NARROWED"),
        ({"enum": ["a", "b"]}, {"enum": ["a", "c"]}, "ENUM_ARRAY_CHANGED"),
        ({"enum": ["a"]}, STRING, ""),
        ({"const": "a"}, {"enum": ["a", "b"]}, ""),
        (STRING, {"type": "string", "enum": ["a"]}, "ENUM_ARRAY_NARROWED"),
        # strings
        (STRING, {"type": "string", "maxLength": 3}, "MAX_LENGTH_ADDED"),
        ({"type": "string", "maxLength": 3}, STRING, ""),
        ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}, ""),
        ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 2}, "MAX_LENGTH_DECREASED"),
        (STRING, {"type": "string", "minLength": 3}, "MIN_LENGTH_ADDED"),
        ({"type": "string", "minLength": 3}, {"type": "string", "minLength": 2}, ""),
        ({"type": "string", "minLength": 3}, {"type": "string", "minLength": 4}, "MIN_LENGTH_INCREASED"),
        (STRING, {"type": "string", "pattern": "a"}, "PATTERN_ADDED"),
        ({"type": "string", "pattern": "a"}, STRING, ""),
        ({"type": "string", "pattern": "a"}, {"type": "string", "pattern": "b"}, "PATTERN_CHANGED"),
        # numbers
        (INT, {"type": "integer", "maximum": 3}, "MAXIMUM_ADDED"),
        ({"type": "integer", "maximum": 3}, {"type": "integer", "maximum": 2}, "MAXIMUM_DECREASED"),
        ({"type": "integer", "maximum": 3}, {"type": "integer", "maximum": 4}, ""),
        (INT, {"type": "integer", "minimum": 0}, "MINIMUM_ADDED"),
        ({"type": "integer", "minimum": 3}, {"type": "integer", "minimum": 4}, "MINIMUM_INCREASED"),
        (INT, {"type": "integer", "exclusiveMaximum": 3}, "EXCLUSIVE_MAXIMUM_ADDED"),
        ({"type": "integer", "exclusiveMinimum": 3}, {"type": "integer", "exclusiveMinimum": 4}, "EXCLUSIVE_MINIMUM_INCREASED"),
        ({"type": "integer", "maximum": 3}, {"type": "integer", "maximum": 3, "exclusiveMaximum": True}, "EXCLUSIVE_MAXIMUM_ADDED"),
        (INT, {"type": "integer", "multipleOf": 2}, "MULTIPLE_OF_ADDED"),
        ({"type": "integer", "multipleOf": 4}, {"type": "integer", "multipleOf": 2}, ""),
        ({"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 4}, "MULTIPLE_OF_EXPANDED"),
        ({"type": "integer", "multipleOf": 2}, {"type": "integer", "multipleOf": 3}, "MULTIPLE_OF_CHANGED"),
        # objects: what may be added and removed follows from the content model
        (closed(a=INT), closed(a=INT, b=INT), ""),
        (closed(a=INT, b=INT), closed(a=INT), "PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        (closed(a=INT, b=False), closed(a=INT), ""),
        (open_(a=INT, b=INT), open_(a=INT), ""),
        (open_(a=INT), open_(a=INT, b=INT), "PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"),
        (open_(a=INT), open_(a=INT, b={}), ""),
        (open_(a=INT), closed(a=INT), "ADDITIONAL_PROPERTIES_REMOVED"),
        (closed(a=INT), open_(a=INT), ""),
        (closed(a=INT) | {"additionalProperties": STRING}, open_(a=INT), ""),
        (open_(a=INT), open_(a=INT) | {"additionalProperties": STRING}, "ADDITIONAL_PROPERTIES_NARROWED"),
        (open_() | {"additionalProperties": STRING}, open_(a=STRING) | {"additionalProperties": STRING}, ""),
        (open_() | {"additionalProperties": STRING}, open_(a=INT) | {"additionalProperties": STRING}, "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        (open_(a=STRING) | {"additionalProperties": STRING}, open_() | {"additionalProperties": STRING}, ""),
        (open_(a=INT) | {"additionalProperties": STRING}, open_() | {"additionalProperties": STRING}, "PROPERTY_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"),
        (closed(a=INT), closed(a=INT, b=INT) | {"required": ["b"]}, "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"),
        (closed(a=INT), closed(a=INT, b={"type": "integer", "default": 1}) | {"required": ["b"]}, ""),
        (closed(a=INT), closed(a=INT) | {"required": ["a"]}, "REQUIRED_ATTRIBUTE_ADDED"),
        (closed(a=INT), closed(a={"type": "integer", "default": 1}) | {"required": ["a"]}, ""),
        (closed(a=INT) | {"required": ["a"]}, closed(a=INT), ""),
        (open_(a=INT) | {"required": ["a"]}, open_(a=INT) | {"required": ["b"]}, ""),
        (closed(a=closed(b=INT)), closed(a=closed(b=STRING)), "TYPE_CHANGED"),
        (open_(), open_() | {"maxProperties": 2}, "MAX_PROPERTIES_ADDED"),
        (open_() | {"minProperties": 2}, open_() | {"minProperties": 3}, "MIN_PROPERTIES_INCREASED"),
        (open_(), open_() | {"dependencies": {"a": ["b"]}}, "DEPENDENCY_ARRAY_ADDED"),
        (open_() | {"dependencies": {"a": ["b"]}}, open_() | {"dependencies": {"a": ["b", "c"]}}, "DEPENDENCY_ARRAY_EXTENDED"),
        (open_() | {"dependencies": {"a": ["b", "c"]}}, open_() | {"dependencies": {"a": ["b"]}}, ""),
        (open_() | {"dependencies": {"a": ["b"]}}, open_() | {"dependencies": {"a": ["c"]}}, "DEPENDENCY_ARRAY_CHANGED"),
        (open_(), open_() | {"dependencies": {"a": open_(b=INT)}}, "DEPENDENCY_SCHEMA_ADDED"),
        # arrays
        ({"type": "array", "items": INT}, {"type": "array", "items": NUMBER}, ""),
        ({"type": "array", "items": INT}, {"type": "array", "items": STRING}, "TYPE_CHANGED"),
        ({"type": "array"}, {"type": "array", "maxItems": 3}, "MAX_ITEMS_ADDED"),
        ({"type": "array", "minItems": 1}, {"type": "array", "minItems": 2}, "MIN_ITEMS_INCREASED"),
        ({"type": "array"}, {"type": "array", "uniqueItems": True}, "UNIQUE_ITEMS_ADDED"),
        ({"type": "array", "items": [INT], "additionalItems": False}, {"type": "array", "items": [INT, INT], "additionalItems": False}, ""),
        ({"type": "array", "items": [INT, INT], "additionalItems": False}, {"type": "array", "items": [INT], "additionalItems": False}, "ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"),
        ({"type": "array", "items": [INT]}, {"type": "array", "items": [INT, INT]}, "ITEM_ADDED_TO_OPEN_CONTENT_MODEL"),
        ({"type": "array", "prefixItems": [INT, INT]}, {"type": "array", "prefixItems": [INT]}, ""),
        ({"type": "array", "items": [INT]}, {"type": "array", "items": [INT], "additionalItems": False}, "ADDITIONAL_ITEMS_REMOVED"),
        # combinations
        ({"oneOf": [INT, STRING]}, {"oneOf": [INT, STRING, {"type": "null"}]}, ""),
        ({"oneOf": [INT, STRING]}, {"oneOf": [STRING, INT]}, ""),
        ({"oneOf": [INT, STRING, {"type": "null"}]}, {"oneOf": [INT, STRING]}, "SUM_TYPE_NARROWED"),
        ({"anyOf": [INT, STRING]}, {"oneOf": [INT, STRING]}, "COMBINED_TYPE_CHANGED"),
        ({"oneOf": [INT, STRING]}, {"anyOf": [INT, STRING]}, ""),
        (INT, {"oneOf": [INT, STRING]}, ""),
        ({"oneOf": [INT]}, INT, ""),
        ({"allOf": [INT, INT]}, {"allOf": [INT]}, ""),
        ({"allOf": [INT]}, {"allOf": [INT, INT]}, ""),
        ({"anyOf": [INT]}, {"oneOf": [STRING, INT]}, ""),
        ({"anyOf": [INT, STRING]}, {"oneOf": [INT]}, "TYPE_CHANGED"),
        ({"oneOf": [INT]}, {"allOf": [INT]}, ""),
        ({"anyOf": [STRING]}, {"allOf": [NUMBER, STRING]}, "TYPE_CHANGED"),
        ({"oneOf": [INT, STRING]}, INT, "TYPE_CHANGED"),
        ({"allOf": [INT, {"minimum": 1}]}, {"allOf": [INT]}, ""),
        ({"allOf": [INT, {"maximum": 9}]}, {"allOf": [INT, {"maximum": 9}, {"minimum": 1}]}, "PRODUCT_TYPE_EXTENDED"),
        ({"not": INT}, {"not": {"type": "integer", "minimum": 1}}, ""),
        ({"not": {"type": "integer", "minimum": 1}}, {"not": INT}, "NOT_TYPE_EXTENDED"),
        ({"type": "string"}, {"type": "string", "not": {"maxLength": 1}}, "NOT_TYPE_EXTENDED"),
        # references
        ({"$ref": "#/$defs/a", "$defs": {"a": INT}}, {"$ref": "#/$defs/b", "$defs": {"b": NUMBER}}, ""),
        ({"$ref": "#/$defs/a", "$defs": {"a": INT}}, STRING, "TYPE_CHANGED"),
        (closed(n={"$ref": "#"}), closed(n={"$ref": "#"}, b=INT), ""),
    ],
)  # fmt: skip
def test_json_schema(old, new, wanted):
    assert problems("JSON", old, new) == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("string a = 1;", "string a = 1;", ""),
        ("string a = 1;", "string b = 1;", ""),
        ("string a = 1;", "string a = 1; int32 b = 2;", ""),
        ("string a = 1; int32 b = 2;", "string a = 1;", ""),
        ("string a = 1;", "bytes a = 1;", ""),
        ("string a = 1;", "int32 a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
        ("int32 a = 1;", "int64 a = 1;", ""),
        ("int32 a = 1;", "uint64 a = 1;", ""),
        ("int32 a = 1;", "bool a = 1;", ""),
        ("int32 a = 1;", "E a = 1; enum E { A = 0; }", ""),
        ("int32 a = 1;", "sint32 a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
        ("sint32 a = 1;", "sint64 a = 1;", ""),
        ("fixed32 a = 1;", "sfixed32 a = 1;", ""),
        ("fixed32 a = 1;", "fixed64 a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
        ("float a = 1;", "double a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
        ("N a = 1; message N {}", "string a = 1; message N {}", "FIELD_KIND_CHANGED"),
        ("N a = 1; message N {} message O {}", "O a = 1; message N {} message O {}", "FIELD_NAMED_TYPE_CHANGED"),
        ("N a = 1; message N { string s = 1; }", "N a = 1; message N { int32 s = 1; }", "FIELD_SCALAR_KIND_CHANGED"),
        ("message N {}", "", "MESSAGE_REMOVED"),
        ("", "message N {}", ""),
        ("enum E { A = 0; B = 1; }", "enum E { A = 0; C = 2; }", ""),
        ("enum E { A = 0; }", "", ""),
        ("int32 a = 1;", "repeated int32 a = 1;", "FIELD_NUMERIC_LABEL_CHANGED"),
        ("string a = 1;", "repeated string a = 1;", ""),
        ("map<string, int32> a = 1;", "map<string, int64> a = 1;", ""),
        ("map<string, int32> a = 1;", "map<string, string> a = 1;", "FIELD_SCALAR_KIND_CHANGED"),
        ("string a = 1;", "oneof k { string a = 1; }", ""),
        ("string a = 1; string b = 2;", "oneof k { string a = 1; string b = 2; }", "MULTIPLE_FIELDS_MOVED_TO_ONEOF"),
        ("string a = 1; oneof k { string b = 2; }", "oneof k { string a = 1; string b = 2; }", "FIELDS_MOVED_TO_EXISTING_ONEOF"),
        ("oneof k { string a = 1; string b = 2; }", "oneof k { string a = 1; }", "ONEOF_FIELD_REMOVED"),
        ("oneof k { string a = 1; }", "oneof k { string a = 1; string b = 2; }", ""),
        ("oneof k { string a = 1; string b = 2; }", "oneof other { string a = 1; string b = 2; }", ""),
        ("oneof k { string a = 1; }", "string a = 1;", ""),
        ("string a = 1;", "optional string a = 1;", ""),
        ("string a = 1;", "reserved 1;", ""),
        ("M self = 1;", "M self = 1; string a = 2;", ""),
    ],
)  # fmt: skip
def test_protobuf(old, new, wanted):
    old, new = (f'syntax = "proto3"; package p; message M {{ {fields} }}' for fields in (old, new))
    assert problems("PROTOBUF", old, new) == ([wanted] if wanted else [])


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("optional int32 a = 1;", "required int32 a = 1;", "REQUIRED_FIELD_ADDED"),
        ("required int32 a = 1;", "optional int32 a = 1;", "REQUIRED_FIELD_REMOVED"),
        ("", "required int32 a = 1;", "REQUIRED_FIELD_ADDED"),
        ("required int32 a = 1;", "", "REQUIRED_FIELD_REMOVED"),
        ("optional group G = 1 { optional int32 a = 1; }", "optional group G = 1 { optional string a = 1; }", "FIELD_SCALAR_KIND_CHANGED"),
    ],
)  # fmt: skip
def test_protobuf_2(old, new, wanted):
    old, new = (f'syntax = "proto2"; message M {{ {fields} }}' for fields in (old, new))
    assert problems("PROTOBUF", old, new) == ([wanted] if wanted else [])


def test_messages_are_compared_without_the_package_and_removed_ones_found():
    assert (
        problems(
            "PROTOBUF", 'syntax = "proto3"; package a; message M { N n = 1; } message N {}', 'syntax = "proto3"; package b; message N {} message M { N n = 1; }'
        )
        == []
    )
    assert problems("PROTOBUF", 'syntax = "proto3"; message M {} message N {}', 'syntax = "proto3"; message M {}') == ["MESSAGE_REMOVED"]


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("int", "long", ""),
        ("long", "int", "TYPE_MISMATCH"),
        ("string", "bytes", ""),
        (["null", "int"], "int", "TYPE_MISMATCH"),
        ("int", ["null", "int"], ""),
        (["null", "int", "string"], ["null", "int"], "MISSING_UNION_BRANCH"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"]}, "MISSING_ENUM_SYMBOLS"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"}, ""),
        ({"type": "fixed", "name": "F", "size": 1}, {"type": "fixed", "name": "F", "size": 2}, "FIXED_SIZE_MISMATCH"),
        ({"type": "array", "items": "int"}, {"type": "array", "items": "long"}, ""),
        ({"type": "record", "name": "A", "fields": []}, {"type": "record", "name": "B", "fields": []}, "NAME_MISMATCH"),
        ({"type": "record", "name": "A", "fields": []}, {"type": "record", "name": "B", "aliases": ["A"], "fields": []}, ""),
    ],
)  # fmt: skip
def test_avro(old, new, wanted):
    assert problems("AVRO", old, new) == ([wanted] if wanted else [])


def test_namespaces_of_avro_are_not_checked_as_in_java():
    assert parse("AVRO", '{"type": "record", "name": "R", "namespace": "a-b", "fields": []}', (), is_new=True).canonical


def test_what_is_not_checked_is_said():
    old, new = (parse("JSON", json.dumps({"type": "object", "properties": {"a": {"type": "string", "format": name}}}), ()) for name in ("date", "time"))
    assert new.problems_reading(old) == []
    assert new.unchecked_reading(old) == ["not checked: #/properties/a/format has changed"]


@pytest.mark.parametrize(
    ("given", "canonical", "normalized"),
    [
        ("string", '"string"', '"string"'),
        ({"type": "string"}, '"string"', '"string"'),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, '{"type":"bytes","logicalType":"decimal","precision":4}', '{"type":"bytes","logicalType":"decimal","precision":4}'),
        (
            {"fields": [{"type": {"type": "int"}, "name": "x", "order": "ascending", "doc": "d"}], "name": "R", "doc": "d", "namespace": "n", "type": "record", "aliases": ["Q"]},
            '{"type":"record","name":"R","namespace":"n","doc":"d","fields":[{"name":"x","type":"int","doc":"d"}],"aliases":["Q"]}',
            '{"type":"record","name":"n.R","doc":"d","fields":[{"name":"x","type":"int","doc":"d"}],"aliases":["Q"]}',
        ),
        (
            {"type": "record", "name": "n.R", "fields": [{"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["é"]}}, {"name": "f", "type": "n.E"}]} | {"b": 1, "a": 1},
            None, None,
        ),
    ],
)  # fmt: skip
def test_the_text_of_avro_is_that_of_java(given, canonical, normalized):
    if canonical is None:
        given["fields"][0]["type"]["symbols"] = ["A"]
        canonical = (
            '{"type":"record","name":"R","namespace":"n","fields":[{"name":"e","type":{"type":"enum","name":"E","symbols":["A"]}},'
            '{"name":"f","type":"E"}],"b":1,"a":1}'
        )
        normalized = (
            '{"type":"record","name":"n.R","fields":[{"name":"e","type":{"type":"enum","name":"n.E","symbols":["A"]}},{"name":"f","type":"n.E"}],"a":1,"b":1}'
        )
    made = parse("AVRO", json.dumps(given), ())
    assert (made.canonical, made.normalized) == (canonical, normalized)
    assert parse("AVRO", made.canonical, ()).canonical == made.canonical


PROTO = """syntax = "proto3";
package a.b;

import "google/protobuf/timestamp.proto";
import "google/type/money.proto";
import public "o.proto";

option java_package = "x.y";

message M {
  reserved 4;
  reserved 10 to 12;
  reserved "foo";

  option deprecated = true;

  optional string a = 1 [
    deprecated = true,
    (confluent.field_meta).tags = "PII",
    json_name = "it\\'s"
  ];
  repeated int32 b = 2 [packed = false];
  map<string, N> m = 3;
  N n = 5;
  google.type.Money price = 8;

  oneof k {
    option (my_option) = true;

    int32 x = 6;
    Other o = 7;
  }

  message N {
    google.protobuf.Timestamp t = 1;
  }
  message Empty {}
  enum E {
    option allow_alias = true;
    A = 0;
    B = -1;
    C = -1 [deprecated = true];
  }
}
message Second {
  string s = 1;
}
enum Third {
  D = 0;
}

service S {
  rpc Do (M) returns (stream M) {
    option deprecated = true;
  };
  rpc Other (M) returns (M);
}
service T {}
"""


def test_the_text_of_protobuf_goes_through_descriptors_unchanged():
    other = Referred("o.proto", 'syntax = "proto3"; package a.b; message Other { string s = 1; }')
    text = PROTO.replace("import public", 'import "confluent/meta.proto";\nimport public')
    made = parse("PROTOBUF", "// a comment\n" + text.replace(";", " ; /* another */"), (other,))
    assert made.canonical == text
    again = parse("PROTOBUF", made.formatted("serialized"), (other,))
    assert (again.normalized, made.problems_reading(again), again.problems_reading(made)) == (made.normalized, [], [])


def test_options_that_this_process_knows_are_those_of_the_text():
    """As confluent-kafka sends them: the base64 of descriptors whose extensions are classes of the same process."""
    options = 'syntax = "proto3"; package known; import "google/protobuf/descriptor.proto"; message O { map<string, int32> m = 1; repeated O inner = 2; }'
    options += " extend google.protobuf.MessageOptions { O o = 51741; }"
    defining = descriptor_pb2.FileDescriptorProto()
    defining.ParseFromString(base64.b64decode(parse("PROTOBUF", options, ()).formatted("serialized")))
    defining.name = "known_options.proto"
    descriptor_pool.Default().Add(defining)
    message_factory.GetMessageClass(descriptor_pool.Default().FindMessageTypeByName("known.O"))
    text = 'syntax = "proto3"; import "known_options.proto"; message M { option (known.o) = { m { key: "a" value: 3 } inner {} }; string s = 1; }'
    referred = (Referred("known_options.proto", options),)
    made = parse("PROTOBUF", text, referred)
    sent = parse("PROTOBUF", made.formatted("serialized"), referred)
    assert "known.o" in made.canonical
    assert (sent.problems_reading(made), made.problems_reading(sent)) == ([], [])
    again = parse("PROTOBUF", sent.canonical, referred)
    assert (again.canonical, again.normalized) == (sent.canonical, sent.normalized)


@pytest.mark.parametrize(
    ("kind", "text", "part"),
    [
        ("PROTOBUF", 'syntax = "proto4";', "unknown syntax 'proto4'"),
        ("PROTOBUF", 'edition = "2023";', "1:1: .*found 'edition'"),
        ("PROTOBUF", 'syntax = "proto3"; message A { X x = 1; }', "X"),
        ("PROTOBUF", 'syntax = "proto3"; message A { string a = 1; string b = 1; }', "already used"),
        ("PROTOBUF", 'syntax = "proto3";\nmessage A { string a = 1 }', "2:26: expected ';'"),
        ("PROTOBUF", 'syntax = "proto3"; message A { reserved 1; string a = 1; }', "reserved"),
        ("PROTOBUF", 'syntax = "proto3"; import "o.proto";', "no reference has this name"),
        ("PROTOBUF", 'syntax = "proto3"; message A { string a = 0; }', "between 1 and 536870911"),
        ("PROTOBUF", 'syntax = "proto3"; message A { required string a = 1; }', "required fields are not allowed in proto3"),
        ("PROTOBUF", "message A { string a = 1; }", "must have a label"),
        ("PROTOBUF", 'syntax = "proto3"; message A { string a = "x', "string terminator"),
        ("PROTOBUF", 'syntax = "proto3"; ' + "message A {" * 100, "recursion limit|levels"),
        ("JSON", "{", "no JSON"),
        ("JSON", "1", "object, true or false"),
        ("JSON", '{"type": "strange"}', "types are"),
        ("JSON", '{"$ref": "#/definitions/x"}', "leads nowhere"),
        ("JSON", '{"properties": []}', "object of schemas"),
        ("JSON", '{"properties": {"a": 1}}', "is no schema"),
        ("JSON", '{"$ref": "other.json"}', "no reference has the name"),
        ("AVRO", "[" * 5000, "nested|JSON"),
        ("AVRO", '{"type": "record", "name": "R"}', "fields"),
        ("AVRO", '["int", "int"]', "already"),
        ("AVRO", '{"type": "record", "name": "a-b", "fields": []}', "Illegal character in: a-b"),
        ("AVRO", '["null", {"type": "array", "items": {"type": "enum", "name": "E", "symbols": ["a b"]}}]', "enum symbol"),
        ("AVRO", '{"type": "record", "name": "R", "fields": [{"name": "a b", "type": "int"}]}', "Illegal character in: a b"),
        ("XML", "<a/>", "Invalid schema type"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused_in_words(kind, text, part):
    with pytest.raises(Exception, match=part) as error:
        parse(kind, text, (), is_new=True)
    assert (error.value.status, error.value.code) == (422, 42201)
