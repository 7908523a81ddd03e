use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Date32Type, Decimal128Type, Int64Type};
use arrow_array::{Array, ArrayRef, BinaryArray};
use arrow_schema::{DataType, Field, TimeUnit};
use proptest::prelude::*;

use super::check::refused;
use super::{JsonReader, JsonSchema, JsonSchemaWriter, JsonWriter, decode_inferred};
use crate::{Decoded, decode, encode};

fn column(values: &[&str]) -> BinaryArray {
    BinaryArray::from_iter_values(values)
}

fn decoded(data_type: &DataType, values: &[&str]) -> Decoded {
    decode(&JsonReader::new(data_type).unwrap(), &column(values)).unwrap()
}

/// The values that were decoded, as JSON.
fn texts(array: &ArrayRef) -> Vec<Option<String>> {
    let encoded = encode(&JsonWriter, array).unwrap();
    let bytes = encoded.column.as_binary::<i32>();
    bytes
        .iter()
        .map(|value| value.map(|value| String::from_utf8_lossy(value).into_owned()))
        .collect()
}

fn order() -> DataType {
    DataType::Struct(
        vec![
            Field::new("id", DataType::Int64, true),
            Field::new("tags", DataType::new_list(DataType::Utf8, true), true),
            Field::new(
                "in",
                DataType::Struct(vec![Field::new("b", DataType::Boolean, true)].into()),
                true,
            ),
        ]
        .into(),
    )
}

#[test]
fn null_fields_that_a_schema_refuses_are_left_out() {
    let schema = r##"{"type": "object", "required": ["needed"], "properties": {
        "needed": {"type": "string"}, "may": {"type": ["null", "string"]}, "open": {}, "not": {"type": "string"},
        "either": {"anyOf": [{"type": "null"}, {"type": "string"}]}, "one": {"oneOf": [{"const": "a"}, {"enum": ["b"]}]},
        "own": {"$ref": "#/definitions/text"}, "other": {"$ref": "other.json"}, "never": false,
        "all": {"allOf": [{"$ref": "#/definitions/text"}]},
        "list": {"type": "array", "items": {"type": "object", "properties": {"in": {"type": "string"}}}},
        "map": {"type": ["object", "null"], "additionalProperties": {"$ref": "#/definitions/pair"}}},
        "definitions": {"text": {"type": "string"}, "pair": {"properties": {"in": {"type": "string"}, "may": true}}}}"##;
    let references = std::collections::HashMap::from([("other.json".to_owned(), r#"{"type": "string"}"#.to_owned())]);
    let schema = JsonSchema::new(schema, &references).unwrap();
    let text = |name: &str| Field::new(name, DataType::Utf8, true);
    let pair = DataType::Struct(vec![text("in"), text("may")].into());
    let names = [
        "needed", "may", "open", "not", "either", "one", "own", "other", "never", "all",
    ];
    let mut fields: Vec<Field> = names.into_iter().map(text).collect();
    fields.push(Field::new("list", DataType::new_list(pair.clone(), true), true));
    let entry = vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", pair, true),
    ];
    let entries = Field::new("entries", DataType::Struct(entry.into()), false);
    fields.push(Field::new("map", DataType::Map(Arc::new(entries), false), true));
    let values = [
        r#"{"needed":"x","list":[{"in":null,"may":null},null],"map":{"k":{"in":null,"may":null},"l":null}}"#,
        "{}",
    ];
    let decoded = decoded(&DataType::Struct(fields.into()), &values);
    let encoded = encode(&JsonSchemaWriter::new(&schema), &decoded.column).unwrap();
    let bytes = encoded.column.as_binary::<i32>();
    let texts: Vec<_> = bytes
        .iter()
        .map(|value| String::from_utf8_lossy(value.unwrap()))
        .collect();
    let none = r#""may":null,"open":null,"either":null"#;
    assert_eq!(
        texts,
        [
            format!(r#"{{"needed":"x",{none},"list":[{{"may":null}},null],"map":{{"k":{{"may":null}},"l":null}}}}"#),
            // the schema refuses what a required field is missing in, by its name
            format!(r#"{{{none},"map":null}}"#),
        ]
    );
    assert_eq!(schema.refused_rows(&encoded.column).unwrap().len(), 2);
}

#[test]
fn a_malformed_value_leaves_nothing_of_it_behind() {
    let values = [
        r#"{"id":1,"tags":["a","b"],"in":{"b":true}}"#,
        r#"{"id":2,"tags":["c",4],"in":{"b":true}}"#,
        r#"{"in":{"b":false,"b":true}}"#,
        r#"{"tags":["d"],"more":[{"x":null}]}"#,
    ];
    let made = decoded(&order(), &values);
    assert_eq!(
        texts(&made.column),
        [
            Some(values[0].to_owned()),
            None,
            None,
            Some(r#"{"id":null,"tags":["d"],"in":null}"#.to_owned())
        ]
    );
    let reasons: Vec<String> = made
        .reasons
        .iter()
        .map(|(row, reason)| format!("{row}: {reason}"))
        .collect();
    assert_eq!(
        reasons,
        [
            "1: a number where the type is string at /tags/items",
            "2: the object has the name \"b\" twice at /in"
        ]
    );
    made.column.to_data().validate_full().unwrap();
}

#[test]
fn texts_are_dates_and_decimals_exactly() {
    let made = decoded(
        &DataType::Date32,
        &[r#""1970-01-02""#, r#""+10000-01-01""#, "19849", r#""2023-02-29""#],
    );
    let days: Vec<_> = made.column.as_primitive::<Date32Type>().iter().collect();
    assert_eq!(days, [Some(1), Some(2_932_897), Some(19849), None]);
    let made = decoded(
        &DataType::Decimal128(5, 2),
        &[r#""-1.5""#, "12e1", "0.001", r#""1000""#, r#"".""#],
    );
    let units: Vec<_> = made.column.as_primitive::<Decimal128Type>().iter().collect();
    assert_eq!(units, [Some(-150), Some(12000), None, None, None]);
}

#[test]
fn the_type_of_a_column_is_that_of_its_longest_beginning_that_agrees() {
    let made = decode_inferred(&column(&[
        r#"{"a":1}"#,
        r#"{"a":[1,"x"]}"#,
        r#"{"b":"2024-05-06"}"#,
        r#"{"a":2.5}"#,
        "7",
        r#"{"c":1}"#,
    ]))
    .unwrap();
    let fields = vec![
        Field::new("a", DataType::Float64, true),
        Field::new("b", DataType::Timestamp(TimeUnit::Second, None), true),
    ];
    assert_eq!(made.column.data_type(), &DataType::Struct(fields.into()));
    let rows: Vec<usize> = made.reasons.iter().map(|(row, _)| *row).collect();
    assert_eq!(rows, [1, 4]);
    assert!(
        made.reasons[0]
            .1
            .to_string()
            .contains("of different kinds: a number and a string")
    );
    assert_eq!(texts(&made.column)[5].as_deref(), Some(r#"{"a":null,"b":null}"#));
}

#[test]
fn keys_of_maps_are_strings_that_are_read_as_their_type() {
    let entry = DataType::Struct(
        vec![
            Field::new("key", DataType::Int64, false),
            Field::new("value", DataType::Boolean, true),
        ]
        .into(),
    );
    let map = DataType::Map(Arc::new(Field::new("entries", entry, false)), false);
    let made = decoded(
        &map,
        &[
            r#"{"-5":true,"7":null}"#,
            r#"{"x":true}"#,
            r#"{"1":true,"1":true}"#,
            "{}",
        ],
    );
    assert_eq!(
        texts(&made.column),
        [
            Some(r#"{"-5":true,"7":null}"#.to_owned()),
            None,
            None,
            Some("{}".to_owned())
        ]
    );
    assert_eq!(
        made.column.as_map().keys().as_primitive::<Int64Type>().values(),
        &[-5, 7]
    );
}

/// What looks like JSON more often than not.
fn nearly_json() -> impl Strategy<Value = Vec<u8>> {
    let token = prop_oneof![
        Just("[".to_owned()),
        Just("]".to_owned()),
        Just("{".to_owned()),
        Just("}".to_owned()),
        Just(",".to_owned()),
        Just(":".to_owned()),
        Just("\"\"".to_owned()),
        Just("\"\\ud83d\\ude00\"".to_owned()),
        Just("\"\\ud83d\"".to_owned()),
        Just("null".to_owned()),
        Just("true".to_owned()),
        r#"-?[0-9]{1,3}(\.[0-9]{0,2})?([eE][+-]?[0-9]{0,3})?"#,
        r#""[a-c\\/"nu0-9\t]{0,9}""#,
        "[ \n]",
        "é",
    ];
    let tokens = prop::collection::vec(token, 0..8).prop_map(|tokens| tokens.concat().into_bytes());
    let value = prop_oneof![
        Just("1".to_owned()),
        Just("\"a\"".to_owned()),
        Just("{\"a\":[1,2]}".to_owned()),
        Just("[]".to_owned())
    ];
    let nested = prop::collection::vec(value, 0..4).prop_map(|items| format!("[{}]", items.join(",")).into_bytes());
    prop_oneof![tokens, nested, prop::collection::vec(any::<u8>(), 0..12)]
}

#[test]
fn other_fields_are_left_out_or_refused() {
    let inner = DataType::Struct(vec![Field::new("b", DataType::Int64, true)].into());
    let whole = DataType::Struct(vec![Field::new("a", inner, true)].into());
    let values = [r#"{"a":{"b":1}}"#, r#"{"a":{"b":1,"c":[2,{}]}}"#, r#"{"aa":null}"#];
    assert!(decoded(&whole, &values).reasons.is_empty());
    let strict = JsonReader::new(&whole).unwrap().refusing_other_fields();
    let reasons = decode(&strict, &column(&values)).unwrap().reasons;
    let reasons: Vec<_> = reasons.iter().map(|(row, reason)| (*row, reason.to_string())).collect();
    let expected = [
        (1, "there is no field \"c\" (there are b) at /a"),
        (2, "there is no field \"aa\" (there are a)"),
    ];
    assert_eq!(reasons, expected.map(|(row, reason)| (row, reason.to_owned())));
}

proptest! {
    #[test]
    fn exactly_what_a_full_parser_takes_is_json(value in nearly_json()) {
        let reader = JsonReader::new(&DataType::Struct(vec![Field::new("zz", DataType::Null, true)].into())).unwrap();
        let made = decode(&reader, &BinaryArray::from_iter_values([&value])).unwrap();
        let is_json = refused(&value).is_none();
        let is_object = is_json && value.trim_ascii().first().is_some_and(|byte| b"{n".contains(byte));
        prop_assert_eq!(made.reasons.is_empty(), is_object, "{:?}: {:?}", String::from_utf8_lossy(&value), made.reasons);
        if let Some((_, reason)) = made.reasons.first() {
            prop_assert_eq!(reason.to_string().starts_with("not JSON: "), !is_json);
        }
    }

    #[test]
    fn nesting_ends_where_the_full_parser_ends_it(depth in 120_usize..136, open in prop_oneof![Just("["), Just("{\"a\":")]) {
        let close = if open == "[" { "]" } else { "}" };
        let value = format!("{}1{}", open.repeat(depth), close.repeat(depth));
        let made = decode_inferred(&column(&[&value])).unwrap();
        prop_assert_eq!(made.reasons.is_empty(), refused(value.as_bytes()).is_none());
    }

    #[test]
    fn strings_are_what_the_full_parser_reads(text in any::<String>(), plain in "[ -~]{0,40}") {
        for text in [text, plain] {
            let value = serde_json::to_string(&text).unwrap();
            let made = decoded(&DataType::Utf8, &[&value]);
            prop_assert_eq!(made.column.as_string::<i32>().value(0), &text);
            let back = texts(&made.column).remove(0).unwrap();
            prop_assert_eq!(serde_json::from_str::<String>(&back).unwrap(), text);
        }
    }

    #[test]
    fn dates_and_timestamps_are_read_as_they_were_written(number in any::<i64>(), days in any::<i32>()) {
        for unit in [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond] {
            for in_utc in [false, true] {
                let mut text = String::new();
                super::iso8601::write_timestamp(number, unit, in_utc, &mut text);
                prop_assert_eq!(super::iso8601::timestamp(&text, unit), Some(number), "{}", text);
            }
        }
        let mut text = String::new();
        super::iso8601::write_date(days.into(), &mut text);
        prop_assert_eq!(super::iso8601::date(&text), Some(days.into()));
    }
}
