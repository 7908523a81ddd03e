"""The schema registry: Confluent's REST API, its error codes, and its state."""

import base64
import threading
import urllib.request
from contextlib import closing

import pytest

import fletchlog as fl
from fletchlog.errors import InvalidArgumentError, ListenerError
from tests.registry.conftest import Caller, body_of, json_schema, opened, record, refer

GUID = "66fed72e-47e0-e008-c0d5-2b82ef18e4af"


def code(answer):
    """Status and error code."""
    status, body = answer
    return status, body["error_code"]


def test_a_schema_has_one_id_in_all_subjects_and_a_subject_has_versions(call):
    assert call("GET", "/subjects") == (200, [])
    assert call.register("orders", record("x")) == 1
    assert call.register("orders", record("x", "y=1")) == 2
    assert call.register("orders", record("x")) == 1, "it is registered already"
    assert call.register("bills", record("x")) == 1
    assert call("GET", "/subjects") == (200, ["bills", "orders"])
    assert call("GET", "/subjects/orders/versions") == (200, [1, 2])
    text = '{"type":"record","name":"R","fields":[{"name":"x","type":"int"}]}'
    status, found = call("GET", "/subjects/orders/versions/1")
    assert (status, found.pop("ts") > 0) == (200, True)
    assert found == {"subject": "orders", "version": 1, "id": 1, "guid": GUID, "schemaType": "AVRO", "schema": text, "deleted": False}
    assert call("GET", "/subjects/orders/versions/latest")[1]["version"] == call("GET", "/subjects/orders/versions/-1")[1]["version"] == 2
    assert call("GET", "/subjects/orders/versions/1/schema") == (200, {"type": "record", "name": "R", "fields": [{"name": "x", "type": "int"}]})
    assert call("GET", "/schemas/ids/1")[1]["schema"] == text
    assert call("GET", "/schemas/ids/1?fetchMaxId=true")[1]["maxId"] == 2
    assert call("GET", "/schemas/ids/1/schema")[1]["name"] == "R"
    assert call("GET", "/schemas/ids/1/subjects") == (200, ["bills", "orders"])
    assert call("GET", "/schemas/ids/1/versions") == (200, [{"subject": "bills", "version": 1}, {"subject": "orders", "version": 1}])
    assert call("GET", f"/schemas/guids/{GUID}")[1]["schema"] == text
    assert call("GET", f"/schemas/guids/{GUID}/ids") == (200, [{"context": ".", "id": 1}])
    assert [(one["subject"], one["version"]) for one in call("GET", "/schemas")[1]] == [("bills", 1), ("orders", 1), ("orders", 2)]
    assert [one["version"] for one in call("GET", "/schemas?subjectPrefix=or&latestOnly=true")[1]] == [2]
    assert call("GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    status, found = call("POST", "/subjects/orders", body_of(record("x", "y=1")))
    assert (status, found["id"], found["version"], found["subject"]) == (200, 2, 2, "orders")
    assert call("GET", "/") == (200, {})


def test_guids_are_those_of_confluents_registry(call):
    # the first one is in a recording of the header that Confluent's serializer writes, the second one is what another implementation of the rule gives
    call.register("common", {"type": "record", "name": "Common", "namespace": "example", "fields": []})
    call.register("a", "string")
    call.register("b", body_of("example.Common") | {"references": [refer("example.Common", "common")]})
    guids = [call("GET", f"/subjects/{subject}/versions/1")[1]["guid"] for subject in "ab"]
    assert guids == ["095d71cf-1255-6b9d-5e33-0ad575b3df5d", "7d9c3148-064e-8899-1975-db468e59ad53"]


def test_pages(call):
    for name in "abcd":
        call.register(name, record("x"))
    assert call("GET", "/subjects?offset=1&limit=2") == (200, ["b", "c"])
    assert call("GET", "/subjects?offset=3&limit=-1") == (200, ["d"])
    assert call("GET", "/subjects?subjectPrefix=c") == (200, ["c"])
    assert call("GET", "/schemas/ids/1/subjects?limit=1") == (200, ["a"])


def test_errors_have_confluents_codes(call):
    call.register("a", record("x"))
    for method, path, body, wanted in [
        ("GET", "/nothing", None, (404, 404)),
        ("PUT", "/subjects", {}, (405, 405)),
        ("GET", "/subjects/b/versions", None, (404, 40401)),
        ("GET", "/subjects/b/versions/1", None, (404, 40401)),
        ("GET", "/subjects/a/versions/2", None, (404, 40402)),
        ("GET", "/subjects/a/versions/0", None, (422, 42202)),
        ("GET", "/subjects/a/versions/x", None, (422, 42202)),
        ("GET", "/schemas/ids/9", None, (404, 40403)),
        ("GET", "/schemas/guids/9", None, (404, 40403)),
        ("POST", "/subjects/b", body_of(record("x")), (404, 40401)),
        ("POST", "/subjects/a", body_of(record("y")), (404, 40403)),
        ("POST", "/subjects/a", {"schema": "{"}, (422, 42201)),
        ("POST", "/subjects/a", {}, (404, 40403)),
        ("POST", "/subjects/b", {}, (404, 40401)),
        ("POST", "/subjects/a/versions", {"schema": '{"type": "strange"}'}, (422, 42201)),
        ("POST", "/subjects/a/versions", {"schema": "{}", "schemaType": "XML"}, (422, 42201)),
        ("POST", "/subjects/n/versions", {}, (422, 42201)),
        ("POST", "/subjects/a/versions", b"{", (400, 400)),
        ("POST", "/subjects/a/versions", b"[]", (400, 400)),
        ("POST", "/subjects/a/versions", body_of(record("x", "y")), (409, 409)),
        ("POST", "/subjects/a/versions", body_of(record("x")) | {"id": 7}, (422, 42205)),
        ("POST", "/subjects/a%0A/versions", body_of(record("x")), (422, 42208)),
        ("POST", "/subjects/a/versions", body_of({"type": "record", "name": "R", "fields": [{"name": "x", "type": "int", "default": "1"}]}), (422, 42201)),
        ("POST", "/subjects/a/versions", body_of(record("x")) | {"metadata": {"tags": {"a": "PII"}}}, (422, 42201)),
        ("POST", "/subjects/a/versions", body_of(record("x")) | {"metadata": {"properties": {"a": []}}}, (422, 42201)),
        ("POST", "/subjects/a/versions", body_of(record("x")) | {"ruleSet": {"domainRules": [{"name": 5}]}}, (422, 42201)),
        ("PUT", "/config", {"compatibility": "SOME"}, (422, 42203)),
        ("PUT", "/config/a", {"alias": 1.5}, (400, 400)),
        ("PUT", "/config/a", {"normalize": "yes"}, (400, 400)),
        ("PUT", "/config", {"defaultMetadata": {"sensitive": "a"}}, (400, 400)),
        ("PUT", "/config", {"overrideRuleSet": {"migrationRules": {"name": "a"}}}, (400, 400)),
        ("GET", "/config/a", None, (404, 40408)),
        ("DELETE", "/config/a", None, (404, 40401)),
        ("PUT", "/mode", {"mode": "SOME"}, (422, 42204)),
        ("GET", "/mode/a", None, (404, 40409)),
        ("DELETE", "/mode/a", None, (404, 40401)),
        ("DELETE", "/subjects/b", None, (404, 40401)),
        ("DELETE", "/subjects/a?permanent=true", None, (404, 40405)),
        ("DELETE", "/subjects/a/versions/1?permanent=true", None, (404, 40407)),
        ("POST", "/compatibility/subjects/a/versions/3", body_of(record("x")), (404, 40402)),
    ]:
        assert code(call(method, path, body)) == wanted, (method, path)
    assert call("POST", "/subjects/a/versions", body_of(record("x")) | {"strange": 1})[1] == {"error_code": 422, "message": "Unrecognized field: strange"}
    assert call("PUT", "/config/a", {"strange": 1})[0] == call("PUT", "/mode/a", {"strange": 1})[0] == 422
    assert call("POST", "/subjects/a", body_of(record("x")) | {"strange": 1}, Confluent_Accept_Unknown_Properties="true")[0] == 200
    assert call("POST", "/subjects/a", body_of(record("x")), Content_Type="application/octet-stream")[0] == 200
    assert call("GET", "/subjects", None, Accept="application/json;q=0.1, application/vnd.schemaregistry+json;q=.9, text/html")[0] == 200
    assert call.headers["Content-Type"] == "application/vnd.schemaregistry+json"
    assert code(call("GET", "/subjects", None, Accept="text/html")) == (406, 406)
    assert code(call("POST", "/subjects/a/versions", body_of(record("x")), Content_Type="text/plain")) == (415, 415)
    assert call("GET", "/subjects", None, Accept="application/json;q=0.5")[0] == 200
    assert call.headers["Content-Type"] == "application/json"
    assert call("GET", "/subjects", None, Accept="*/json")[0] == 200
    assert call("GET", "/subjects", None, Accept="*/*")[0] == 200
    assert call.headers["Content-Type"] == "application/vnd.schemaregistry.v1+json"


def test_deletion_is_soft_then_permanent(call):
    for schema in (record("x"), record("x", "y=1"), record("x", "y=2")):
        call.register("a", schema)
    assert call("DELETE", "/subjects/a/versions/2") == (200, 2)
    assert code(call("DELETE", "/subjects/a/versions/2")) == (404, 40406)
    assert call("GET", "/subjects/a/versions") == (200, [1, 3])
    assert call("GET", "/subjects/a/versions?deleted=true") == (200, [1, 2, 3])
    assert call("GET", "/subjects/a/versions?deletedOnly=true") == (200, [2])
    assert code(call("GET", "/subjects/a/versions/2")) == (404, 40402)
    assert call("GET", "/subjects/a/versions/2?deleted=true")[1]["deleted"] is True
    assert call("GET", "/schemas/ids/2")[0] == 200, "data with the id can still be read"
    assert call("GET", "/schemas/ids/2/versions") == (200, [])
    assert call("GET", "/schemas/ids/2/versions?deleted=true") == (200, [{"subject": "a", "version": 2}])
    assert call("DELETE", "/subjects/a/versions/2?permanent=true") == (200, 2)
    assert code(call("GET", "/schemas/ids/2")) == (404, 40403)
    assert call("DELETE", "/subjects/a") == (200, [1, 3])
    assert code(call("DELETE", "/subjects/a")) == (404, 40404)
    assert call("GET", "/subjects") == (200, [])
    assert call("GET", "/subjects?deleted=true") == (200, ["a"]) == call("GET", "/subjects?deletedOnly=true")
    assert call.register("a", record("x")) == 1, "its id returns"
    assert call("GET", "/subjects/a/versions") == (200, [4])
    assert call("GET", "/subjects/a/versions?deleted=true") == (200, [3, 4]), "the deleted version with the same id is gone"
    assert call("DELETE", "/subjects/a/versions/latest") == (200, 4)
    assert call("DELETE", "/subjects/a?permanent=true") == (200, [3, 4])
    assert code(call("DELETE", "/subjects/a?permanent=true")) == (404, 40401)
    assert call.register("a", record("z")) == 4, "no id is given twice"
    assert call("GET", "/subjects/a/versions") == (200, [1])


def test_what_a_subject_has_configured_goes_with_its_versions(call):
    call.register("a", record("x"))
    call("PUT", "/config/a", {"compatibility": "NONE"})
    call("DELETE", "/subjects/a/versions/1")
    assert code(call("GET", "/config/a")) == (404, 40408)


def test_references_are_found_and_keep_what_they_refer_to(call):
    call.register("inner", record("x", name="Inner"))
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}
    assert call.register("outer", outer) == 42201
    assert call.register("outer", body_of(outer) | {"references": [refer("Inner", "inner")]}) == 2
    assert call("GET", "/subjects/inner/versions/1/referencedby") == (200, [2])
    assert call("GET", "/subjects/outer/versions/1")[1]["references"] == [refer("Inner", "inner")]
    assert code(call("DELETE", "/subjects/inner")) == code(call("DELETE", "/subjects/inner/versions/1")) == (422, 42206)
    assert call("DELETE", "/subjects/outer") == (200, [1])
    assert call("GET", "/subjects/inner/versions/1/referencedby") == (200, [])
    assert call("DELETE", "/subjects/inner") == (200, [1])
    assert call.register("other", body_of(outer) | {"references": [refer("Inner", "nothing")]}) == 42201


def test_compatibility_levels(call):
    def test(new, level, *path):
        assert call("PUT", "/config/a", {"compatibility": level}) == (200, {"compatibility": level})
        return call("POST", f"/compatibility/subjects/a/versions{''.join(path)}", body_of(new))[1]["is_compatible"]

    for schema in (record("x", "y"), record("x", "y=1")):
        call("PUT", "/config/a", {"compatibility": "NONE"})
        call.register("a", schema)
    added, removed = record("x", "y=1", "z"), record("x")
    assert [test(added, level) for level in ("NONE", "BACKWARD", "FORWARD", "FULL")] == [True, False, True, False]
    assert [test(removed, level) for level in ("NONE", "BACKWARD", "FORWARD", "FULL")] == [True, True, True, True]
    assert [test(removed, f"{level}_TRANSITIVE") for level in ("BACKWARD", "FORWARD", "FULL")] == [True, False, False]
    assert [test(removed, "FORWARD", path) for path in ("/1", "/2", "/latest")] == [False, True, True]
    status, body = call("POST", "/compatibility/subjects/a/versions/1?verbose=true", body_of(removed))
    assert (status, body["is_compatible"], "READER_FIELD_MISSING_DEFAULT_VALUE" in body["messages"][0]) == (200, False, True)
    assert call("POST", "/compatibility/subjects/new/versions/latest", body_of(removed)) == (200, {"is_compatible": True})
    assert code(call("POST", "/compatibility/subjects/a/versions", {"schema": "{"})) == (422, 42201)


def test_schemas_of_another_type_are_not_compatible(call):
    call.register("a", record("x"))
    assert call.register("a", json_schema({"type": "object"})) == 409


def test_configuration_is_of_a_subject_a_context_or_all(call):
    assert call("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert call("PUT", "/config", {"compatibility": "FULL"}) == (200, {"compatibility": "FULL"})
    assert call("PUT", "/config/:.one:", {"compatibility": "FORWARD"}) == (200, {"compatibility": "FORWARD"})
    call("PUT", "/config/a", {"compatibility": "NONE", "normalize": True, "compatibilityGroup": "major"})
    wanted = {"compatibilityLevel": "NONE", "normalize": True, "compatibilityGroup": "major"}
    assert call("GET", "/config/a") == (200, wanted)
    call("PUT", "/config/a", {"compatibilityGroup": None})
    assert call("GET", "/config/a") == (200, {"compatibilityLevel": "NONE", "normalize": True})
    assert call("GET", "/config/:.one:b?defaultToGlobal=true")[1]["compatibilityLevel"] == "FORWARD"
    assert call("GET", "/config/b?defaultToGlobal=true")[1]["compatibilityLevel"] == "FULL"
    assert call("DELETE", "/config/a") == (200, {"compatibilityLevel": "NONE", "normalize": True})
    assert call("GET", "/config/a?defaultToGlobal=true") == (200, {"compatibilityLevel": "FULL"})
    assert call("DELETE", "/config") == (200, {"compatibilityLevel": "FULL"})
    assert call("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})


def test_an_alias_stands_for_its_subject(call):
    call("PUT", "/config/short", {"alias": "a"})
    assert call.register("short", record("x")) == 1
    assert call("GET", "/subjects") == (200, ["a"])
    assert call("GET", "/subjects/short/versions/latest")[1]["subject"] == "a"


def test_compatibility_holds_within_a_group(call):
    call("PUT", "/config/a", {"compatibilityGroup": "major"})

    def put(schema, major):
        return call.register("a", body_of(schema) | {"metadata": {"properties": {"major": major}}})

    assert [put(record("x"), "1"), put(record("x", "y"), "1"), put(record("x", "y"), "2"), put(record("x", "y", "z=1"), "2")] == [1, 409, 2, 3]
    assert call("GET", "/subjects/a/metadata?key=major&value=1")[1]["version"] == 1
    call.register("plain", record("x"))
    assert code(call("GET", "/subjects/plain/metadata")) == (404, 40403), "a version without properties has no metadata"
    assert call("GET", "/subjects/a/versions/3")[1]["metadata"] == {"properties": {"major": "2"}}


def test_modes(call):
    assert call("GET", "/mode") == (200, {"mode": "READWRITE"})
    call.register("a", record("x"))
    assert call("PUT", "/mode/a", {"mode": "READONLY"}) == (200, {"mode": "READONLY"})
    for method, path, body in [
        ("POST", "/subjects/a/versions", body_of(record("y"))),
        ("DELETE", "/subjects/a", None),
        ("PUT", "/config/a", {"compatibility": "NONE"}),
    ]:
        assert code(call(method, path, body)) == (422, 42205)
    assert call.register("b", record("x")) == 1
    assert code(call("PUT", "/mode/a", {"mode": "IMPORT"})) == (422, 42205), "it has versions"
    assert call("PUT", "/mode/a?force=true", {"mode": "import"}) == (200, {"mode": "IMPORT"})
    assert call.register("a", record("y")) == 42205, "an id is needed"
    assert call.register("a", record("y"), id=70, version=9) == 70, "no compatibility is asked for"
    assert call("GET", "/subjects/a/versions") == (200, [1, 9])
    assert call.register("a", record("z"), id=70) == 42205, "another schema has the id"
    assert call("DELETE", "/mode/a") == (200, {"mode": "IMPORT"})
    assert call.register("b", record("x", "y=2")) == 71
    assert call.register("b", record("x", "y=3"), version=5) == 42201
    assert call("PUT", "/mode", {"mode": "READONLY_OVERRIDE"})[0] == 200
    call("PUT", "/mode/b", {"mode": "READWRITE"})
    assert call.register("b", record("x", "y=4")) == 42205
    assert call("GET", "/mode/b?defaultToGlobal=true") == (200, {"mode": "READONLY_OVERRIDE"})


def test_contexts_have_ids_of_their_own(call):
    assert call.register("a", record("x")) == 1
    assert call.register(":.one:a", record("y")) == 1
    assert call.register(":.one:a", record("y", "z=1")) == 2
    assert call.register(":.:a", record("x")) == 1, "the default context"
    assert call("GET", "/contexts") == (200, [".", ".one"])
    assert call("GET", "/subjects") == (200, [":.one:a", "a"])
    assert call("GET", "/subjects?subjectPrefix=:.one:") == (200, [":.one:a"])
    assert call("GET", "/contexts/.one/subjects") == (200, [":.one:a"])
    assert call("GET", "/contexts/one/subjects/a/versions") == (200, [1, 2])
    assert "y" in call("GET", "/schemas/ids/1?subject=:.one:a")[1]["schema"]
    assert "y" in call("GET", "/contexts/.one/schemas/ids/1")[1]["schema"]
    assert '"x"' in call("GET", "/schemas/ids/1")[1]["schema"]
    assert call("GET", "/schemas/ids/2?subject=a")[0] == 200, "found in the context that has it for a subject of this name"
    assert call("POST", "/subjects/a", body_of(record("y")))[1]["subject"] == ":.one:a", "a schema is looked up in every context"
    assert code(call("POST", "/subjects/:.:a", body_of(record("q")))) == (404, 40403)
    assert code(call("POST", "/subjects/:.one:a", body_of(record("x")))) == (404, 40403), "a context is not left"
    assert code(call("DELETE", "/contexts/.one")) == (422, 42211)
    assert call("GET", "/contexts/.one/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert call("PUT", "/contexts/.one/config", {"compatibility": "NONE"})[0] == 200
    assert call("GET", "/config/:.one:") == (200, {"compatibilityLevel": "NONE"})
    assert call("GET", "/config") == (200, {"compatibilityLevel": "BACKWARD"})
    assert call("GET", "/contexts?contextPrefix=.o") == (200, [".one"])
    assert call("DELETE", "/subjects/:.one:a") == (200, [1, 2])
    assert call("GET", "/subjects") == (200, ["a"])
    assert call("DELETE", "/subjects/:.one:a?permanent=true") == (200, [1, 2])
    assert call("DELETE", "/contexts/.one") == (204, "")
    assert call("GET", "/contexts") == (200, ["."])
    assert code(call("DELETE", "/contexts/.")) == (422, 42205)


def test_normalization_makes_one_schema_of_two(call):
    def put(text, query=""):
        return call("POST", f"/subjects/a/versions{query}", {"schema": text})[1]["id"]

    call("PUT", "/config/a", {"compatibility": "NONE"})
    one = '{"type":"record","namespace":"n","name":"R","fields":[],"b":1,"a":2}'
    other = '{"name":"n.R","a":2,"b":1,"type":"record","fields":[]}'
    assert (put(one), put(other)) == (1, 2)
    assert put(one, "?normalize=true") == put(other, "?normalize=true") == 3
    assert call("POST", "/subjects/a?normalize=true", {"schema": other})[1]["id"] == 3


def test_a_second_registry_and_a_later_one_have_the_same_state(broker):
    paths = ["/subjects?deleted=true", "/schemas?deleted=true", "/config/a", "/mode/b", "/contexts", "/schemas/ids/2?subject=:.one:c"]
    with opened(broker) as first, opened(broker) as second:
        first.register("a", record("x"))
        second.register("a", record("x", "y=1"))
        first.register("b", record("x", "y=1"))
        first("PUT", "/config/a", {"compatibility": "FULL"})
        second("PUT", "/mode/b", {"mode": "READONLY"})
        first.register(":.one:c", record("x"))
        second.register(":.one:c", record("x", "z=1"))
        second("DELETE", "/subjects/a")
        states = [[call("GET", path) for path in paths] for call in (first, second)]
    assert states[0] == states[1]
    with opened(broker) as third:
        assert [third("GET", path) for path in paths] == states[0]
        assert third.register("d", record("w")) == 3


def test_the_topic_has_confluents_records(broker, call):
    call.register("a", record("x"))
    call("PUT", "/config", {"compatibility": "NONE"})
    call.register("a", json_schema(True))
    call("PUT", "/mode/b", {"mode": "READONLY"})
    call("DELETE", "/subjects/a/versions/1")
    call("DELETE", "/subjects/a")
    call.register(":.one:c", record("x"))
    text = '{\\"type\\":\\"record\\",\\"name\\":\\"R\\",\\"fields\\":[{\\"name\\":\\"x\\",\\"type\\":\\"int\\"}]}'
    first = f'"version":1,"id":1,"guid":"{GUID}","schema":"{text}"'
    assert [(record.key.decode(), record.value and record.value.decode()) for record in broker.scan("_schemas").records()] == [
        ('{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', f'{{"subject":"a",{first},"deleted":false}}'),
        ('{"keytype":"CONFIG","subject":null,"magic":0}', '{"compatibilityLevel":"NONE"}'),
        (
            '{"keytype":"SCHEMA","subject":"a","version":2,"magic":1}',
            '{"subject":"a","version":2,"id":2,"guid":"b326b506-2b2f-0e69-0468-10717534cb09","schemaType":"JSON","schema":"true","deleted":false}',
        ),
        ('{"keytype":"MODE","subject":"b","magic":0}', '{"subject":"b","mode":"READONLY"}'),
        ('{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', f'{{"subject":"a",{first},"deleted":true}}'),
        ('{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', '{"subject":"a","version":2}'),
        ('{"keytype":"CONTEXT","tenant":"default","context":".one","magic":0}', '{"tenant":"default","context":".one"}'),
        ('{"keytype":"SCHEMA","subject":":.one:c","version":1,"magic":1}', f'{{"subject":":.one:c",{first},"deleted":false}}'),
    ]
    topic = broker.describe_topic("_schemas")
    assert len(topic.partitions) == 1
    assert {entry.name: entry.value for entry in broker.describe_config("_schemas")}["cleanup.policy"] == "compact"


def test_records_of_a_real_registry_are_read_and_unreadable_ones_passed_over(broker):
    broker.create_topic("_schemas", config={"cleanup.policy": "compact"})
    with fl.Producer(broker) as producer:
        for key, value in [
            (b'{"keytype":"NOOP","magic":0}', None),
            (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}', b'{"subject":"a","version":1,"id":5,"schema":"\\"string\\"","deleted":false}'),
            (b'{"keytype":"SCHEMA","subject":"b","version":1,"magic":1}', b"{"),
            (b"strange", b"strange"),
            (b'{"keytype":"CONFIG","subject":"a","magic":0}', b'{"compatibilityLevel":"NONE","future":1}'),
            (b'{"keytype":"MODE","subject":"","magic":0}', b'{"mode":"READWRITE"}'),
        ]:
            producer.send("_schemas", value=value, key=key)
    with opened(broker) as call:
        assert call("GET", "/subjects") == (200, ["a"])
        assert call("GET", "/schemas/ids/5")[1]["schema"] == '"string"'
        assert call("GET", "/config/a")[1]["compatibilityLevel"] == "NONE"
        assert call.register("a", record("x")) == 6


def test_the_topic_may_be_deleted(broker, call):
    call.register("a", record("x"))
    call.register("a", record("x", "y=1"))
    broker.delete_topic("_schemas")
    assert call("GET", "/subjects") == (200, [])
    broker.delete_topic("_schemas")
    broker.create_topic("_schemas", config={"cleanup.policy": "compact"})
    assert call.register("b", record("y")) == 1


def test_many_threads_register_and_each_schema_has_one_id(broker):
    with broker.schema_registry() as registry, broker.schema_registry() as other:
        found = []

        def work(number):
            with closing(Caller((registry, other)[number % 2].url)) as call:
                for n in range(10):
                    found.append((n, call.register(f"s{number}-{n}", record(f"f{n}"))))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(found) == 80
    assert len(dict(found)) == 10 == len(set(found))
    assert sorted(set(dict(found).values())) == list(range(1, 11))


def test_a_broker_that_is_read_only_is_read_and_not_written(tmp_path):
    with fl.Broker(tmp_path / "data", create=True) as broker, opened(broker) as call:
        call.register("a", record("x"))
    with fl.Broker(tmp_path / "data", read_only=True) as broker, opened(broker) as call:
        assert call("GET", "/subjects/a/versions") == (200, [1])
        assert code(call("POST", "/subjects/a/versions", body_of(record("x", "y=1")))) == (500, 50001)
        assert call.register("a", record("x")) == 1


def test_a_write_that_the_broker_refuses_is_an_error_and_changes_nothing(monkeypatch):
    monkeypatch.setattr("fletchlog.registry.log.LONGEST_WRITE_S", 0.5)
    with fl.Broker.in_memory(nodes=2) as broker, opened(broker) as call:
        call.register("a", record("x"))
        leader = broker.describe_topic("_schemas").partitions[0].leader
        broker.stop_node(leader)
        assert call.register("b", record("x")) == 50001
        broker.start_node(leader)
        assert call("GET", "/subjects") == (200, ["a"])
        assert call.register("b", record("x")) == 1


def test_only_users_are_answered(broker):
    with broker.schema_registry(users={"app": "secret"}) as registry, closing(Caller(registry.url)) as call:
        assert code(call("GET", "/subjects")) == (401, 401)
        assert "Basic" in call.headers["WWW-Authenticate"]
        wrong, right = (base64.b64encode(f"app:{word}".encode()).decode() for word in ("wrong", "secret"))
        assert call("GET", "/subjects", Authorization=f"Basic {wrong}")[0] == 401
        assert call("GET", "/subjects", Authorization=f"Basic {right}") == (200, [])


def test_wrong_addresses_are_refused_and_closing_twice_is_nothing(broker):
    for address in ("", "localhost", "127.0.0.1:x", "127.0.0.1:70000"):
        with pytest.raises(InvalidArgumentError, match="HOST:PORT"):
            broker.schema_registry(address)
    registry = broker.schema_registry()
    with pytest.raises(ListenerError, match="cannot listen"):
        broker.schema_registry(registry.url.removeprefix("http://"))
    url = registry.url
    registry.close()
    registry.close()
    assert repr(registry) == f"<SchemaRegistry at {url}, closed>"
    with pytest.raises(OSError, match=r"refused"):
        urllib.request.urlopen(url, timeout=5)


def test_a_closed_broker_is_an_error_of_the_store():
    broker = fl.Broker.in_memory()
    with opened(broker) as call:
        broker.close()
        assert code(call("GET", "/subjects")) == (500, 50001)


def test_metadata_of_the_server(broker, call):
    assert call("GET", "/v1/metadata/id")[1]["scope"]["clusters"]["kafka-cluster"] == (broker.cluster_id or "")
    assert call("GET", "/v1/metadata/version")[1]["version"]


def test_the_fixture_opens_one_registry(kafka):
    assert kafka.registry is kafka.registry
    with closing(Caller(kafka.registry.url)) as call:
        assert call.register("a", record("x")) == 1


def test_what_has_another_shape_is_named(call):
    rules = {"domainRules": [{"name": "a", "tags": ["x"], "params": {"b": 1}, "disabled": True}]}
    metadata = {"tags": {"R.x": ["PII"]}, "properties": {"owner": "me", "version": 2}, "sensitive": ["owner"]}
    assert call("POST", "/subjects/a/versions", body_of(record("x")) | {"metadata": metadata, "ruleSet": rules})[0] == 200
    assert call("PUT", "/config", {"defaultMetadata": metadata, "overrideRuleSet": None, "alias": None})[0] == 200
    wrong = {"domainRules": [{"name": "a", "disabled": "no"}]}
    message = "`ruleSet` is an object whose `domainRules` is a list, each an object whose `disabled` is true or false"
    assert call("POST", "/subjects/a/versions", body_of(record("x")) | {"ruleSet": wrong})[1] == {"error_code": 42201, "message": message}
    assert call("PUT", "/config/a", {"defaultMetadata": {"tags": {"a": [1]}}})[1]["message"] == (
        "`defaultMetadata` is an object whose `tags` is an object, each value a list, each a text"
    )
