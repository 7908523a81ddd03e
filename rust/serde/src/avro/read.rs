//! The loop over a value: each step reads one value of the writer's schema and appends one row to a column.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::bad::Bad;
use super::cursor::Cursor;
use super::number::{Convert, Digits, within_day};
use super::schema::{Kind, Schema, TypeId};
use crate::column::{Column, List, NOT_UTF8, Values};
use crate::reason::Reason;

/// Levels of a value that is left out: only types within themselves have more than their schema.
const MAX_DEPTH: usize = 128;
/// Keys of a map that are compared with each other; more are hashed.
const FEW_KEYS: usize = 8;

/// Reads one value.
#[derive(Debug)]
pub enum Step {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    LongAsFloat,
    LongAsDouble,
    FloatAsDouble,
    Bytes,
    /// UTF-8, into a column of strings.
    Text,
    /// UTF-8, into a column of bytes.
    TextAsBytes,
    Fixed(usize),
    /// An int of a time: from another unit, and how many are in a day.
    Time32(Option<Convert>, Option<i64>),
    Time64(Option<Convert>, Option<i64>),
    Decimal(Digits),
    FixedDecimal(usize, Digits),
    /// The symbols of the reader, by the writer's numbers; or why there is none.
    Enum(Box<[Result<Box<str>, Box<str>>]>),
    /// Items, and whether they take no bytes.
    Array(Box<Step>, bool),
    /// Values; keys are strings.
    Map(Box<Step>),
    Record(Box<Record>),
    /// A union of the writer: one step a branch.
    Union(Box<[Step]>),
    /// A branch of a reader's union of several types: the field of a struct whose other fields are null.
    Into(usize, Box<Step>),
    /// A branch that has no field: a type of this schema, which is left out.
    SkippedBranch(Arc<Schema>, TypeId),
    /// A default, encoded.
    Constant(Box<[u8]>, Box<Step>),
    /// No value of this type can be read.
    Fail(Box<str>),
}

/// The fields of a record, in the writer's order.
#[derive(Debug)]
pub struct Record {
    pub writer: Arc<Schema>,
    /// Levels around the record.
    pub depth: usize,
    pub fields: Box<[Field]>,
    /// Columns whose fields the writer does not have.
    pub defaults: Box<[(usize, Step)]>,
}

/// A field of the writer.
#[derive(Debug)]
pub enum Field {
    /// Read into the column of this number.
    Read(usize, Step),
    /// Left out: its type.
    Skip(TypeId),
}

#[cold]
fn other_column() -> Bad {
    Bad::value("the column has another type than the schema")
}

/// Reads one value into one row of `column`, which was made for the type of the steps.
// a call for each value costs more than reading its bytes
#[inline(always)]
pub fn run(step: &Step, cursor: &mut Cursor<'_>, column: &mut Column) -> Result<(), Bad> {
    match (step, &mut column.values) {
        (Step::Boolean, Values::Boolean(bits)) => bits.append(cursor.array::<1>()? != [0]),
        (Step::Int, Values::Int32(numbers)) => numbers.push(int(cursor.long()?)?),
        (Step::Long, Values::Int64(numbers)) => numbers.push(cursor.long()?),
        (Step::Float, Values::Float32(numbers)) => numbers.push(f32::from_le_bytes(cursor.array()?)),
        (Step::Double, Values::Float64(numbers)) => numbers.push(f64::from_le_bytes(cursor.array()?)),
        (Step::Text, Values::Bytes(texts)) => texts.push_text(cursor.bytes()?).map_err(not_utf8)?,
        (Step::Bytes, Values::Bytes(all)) => all.push(cursor.bytes()?)?,
        _ => return other(step, cursor, column),
    }
    column.push_valid();
    Ok(())
}

/// What [`run`] does for all other types.
#[inline(never)]
fn other(step: &Step, cursor: &mut Cursor<'_>, column: &mut Column) -> Result<(), Bad> {
    match (step, &mut column.values) {
        (Step::Record(record), Values::Struct(columns)) => fields(record, cursor, columns)?,
        (Step::Array(item, items_are_empty), Values::List(list)) => array(item, *items_are_empty, cursor, list)?,
        (Step::Map(value), Values::List(list)) => map(value, cursor, list)?,
        (Step::Union(branches), _) => {
            let branch = cursor.number()?;
            let step = branches.get(branch).ok_or_else(|| no_branch(branch, branches.len()))?;
            return run(step, cursor, column);
        }
        (Step::Null, _) => {
            column.push_null();
            return Ok(());
        }
        (Step::Constant(bytes, step), _) => return run(step, &mut Cursor::new(bytes), column),
        (Step::Fail(why), _) => return Err(Bad::no_value(why.to_string())),
        (Step::Into(place, step), Values::Struct(columns)) => into_branch(*place, step, cursor, columns)?,
        (Step::SkippedBranch(schema, id), Values::Struct(columns)) => {
            columns.iter_mut().for_each(Column::push_null);
            skip(schema, *id, cursor, 0)?;
        }
        (leaf, values) => rare(leaf, cursor, values)?,
    }
    column.push_valid();
    Ok(())
}

#[cold]
fn no_branch(branch: usize, branches: usize) -> Bad {
    Bad::no_value(format!("there is no branch {branch} of a union of {branches}"))
}

#[cold]
fn not_utf8(reason: Reason) -> Bad {
    if reason == NOT_UTF8 {
        return Bad::no_value(reason.0.into_owned());
    }
    reason.into()
}

#[cold]
fn no_symbol(number: usize, symbols: usize) -> Bad {
    Bad::no_value(format!("there is no symbol {number} of an enum of {symbols}"))
}

fn rare(step: &Step, cursor: &mut Cursor<'_>, values: &mut Values) -> Result<(), Bad> {
    match (step, values) {
        (Step::Fixed(size), Values::Fixed { data, .. }) => data.extend_from_slice(cursor.take(*size)?),
        (Step::Enum(symbols), Values::Bytes(texts)) => {
            let number = cursor.number()?;
            let symbol = symbols.get(number).ok_or_else(|| no_symbol(number, symbols.len()))?;
            let symbol = symbol.as_ref().map_err(|why| Bad::no_value(why.to_string()))?;
            texts.push(symbol.as_bytes())?;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the nearest float is meant, by way of a double as everywhere"
        )]
        (Step::LongAsFloat, Values::Float32(numbers)) => numbers.push(cursor.long()? as f64 as f32),
        (Step::LongAsDouble, Values::Float64(numbers)) => numbers.push(cursor.long()? as f64),
        (Step::FloatAsDouble, Values::Float64(numbers)) => {
            numbers.push(f64::from(f32::from_le_bytes(cursor.array()?)));
        }
        (Step::Time32(convert, per_day), Values::Int32(numbers)) => {
            numbers.push(int(time(cursor.long()?, convert.as_ref(), *per_day)?)?);
        }
        (Step::Time64(convert, per_day), Values::Int64(numbers)) => {
            numbers.push(time(cursor.long()?, convert.as_ref(), *per_day)?);
        }
        (Step::TextAsBytes, Values::Bytes(all)) => {
            let bytes = cursor.bytes()?;
            std::str::from_utf8(bytes).map_err(|_| not_utf8(NOT_UTF8))?;
            all.push(bytes)?;
        }
        (Step::Decimal(digits), values) => decimal(digits, cursor.bytes()?, values)?,
        (Step::FixedDecimal(size, digits), values) => decimal(digits, cursor.take(*size)?, values)?,
        _ => return Err(other_column()),
    }
    Ok(())
}

fn decimal(digits: &Digits, bytes: &[u8], values: &mut Values) -> Result<(), Bad> {
    match values {
        Values::Decimal128(numbers) => numbers.push(digits.decimal128(bytes)?),
        Values::Decimal256(numbers) => numbers.push(digits.decimal256(bytes)?),
        _ => return Err(other_column()),
    }
    Ok(())
}

#[inline]
fn int(number: i64) -> Result<i32, Bad> {
    i32::try_from(number).map_err(|_| Bad::no_value(format!("the number {number} is too large for 32 bits")))
}

fn time(number: i64, convert: Option<&Convert>, per_day: Option<i64>) -> Result<i64, Bad> {
    let number = convert.map_or(Ok(number), |convert| convert.of(number))?;
    per_day.map_or(Ok(number), |per_day| within_day(number, per_day))
}

fn fields(record: &Record, cursor: &mut Cursor<'_>, columns: &mut [Column]) -> Result<(), Bad> {
    for field in &record.fields {
        match field {
            Field::Read(place, step) => {
                let column = columns.get_mut(*place).ok_or_else(other_column)?;
                run(step, cursor, column)?;
            }
            Field::Skip(id) => skip(&record.writer, *id, cursor, record.depth + 1)?,
        }
    }
    for (place, step) in &record.defaults {
        let column = columns.get_mut(*place).ok_or_else(other_column)?;
        run(step, cursor, column)?;
    }
    Ok(())
}

fn array(item: &Step, items_are_empty: bool, cursor: &mut Cursor<'_>, list: &mut List<i32>) -> Result<(), Bad> {
    loop {
        let count = cursor.block()?;
        if count == 0 {
            break;
        }
        if items_are_empty {
            cursor.empty_items(count)?;
        }
        for _ in 0..count {
            run(item, cursor, &mut list.items)?;
        }
    }
    list.close()?;
    Ok(())
}

fn map(value: &Step, cursor: &mut Cursor<'_>, list: &mut List<i32>) -> Result<(), Bad> {
    let first = list.items.len();
    let (begin, mut keys) = (cursor.at(), Vec::new());
    loop {
        let count = cursor.block()?;
        if count == 0 {
            break;
        }
        for _ in 0..count {
            keys.push(entry(value, cursor, &mut list.items)?);
        }
    }
    if !are_unique(&keys) {
        list.items.truncate(first);
        let mut again = cursor.from(begin);
        last_of_each(value, &mut again, &mut list.items)?;
    }
    list.close()?;
    Ok(())
}

/// Reads one entry of a map.
fn entry<'a>(value: &Step, cursor: &mut Cursor<'a>, entries: &mut Column) -> Result<&'a [u8], Bad> {
    let Values::Struct(columns) = &mut entries.values else {
        return Err(other_column());
    };
    let [keys, values] = &mut columns[..] else {
        return Err(other_column());
    };
    let before = cursor.at();
    run(&Step::Text, cursor, keys)?;
    let key = cursor.from(before).bytes()?;
    run(value, cursor, values)?;
    entries.push_valid();
    Ok(key)
}

fn are_unique(keys: &[&[u8]]) -> bool {
    if keys.len() <= FEW_KEYS {
        return keys.iter().enumerate().all(|(place, key)| !keys[..place].contains(key));
    }
    let mut seen = HashSet::with_capacity(keys.len());
    keys.iter().all(|key| seen.insert(*key))
}

/// Reads a map again in which a key occurs several times: the last value is that of the key, which keeps its place.
fn last_of_each(value: &Step, cursor: &mut Cursor<'_>, entries: &mut Column) -> Result<(), Bad> {
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let mut starts: Vec<usize> = Vec::new();
    // entries are read into a column that is thrown away, to find where each begins
    let Values::Struct(columns) = &mut entries.values else {
        return Err(other_column());
    };
    let [_, values] = &mut columns[..] else {
        return Err(other_column());
    };
    loop {
        let count = cursor.block()?;
        if count == 0 {
            break;
        }
        for _ in 0..count {
            let start = cursor.at();
            let key = cursor.bytes()?;
            let rows = values.len();
            run(value, cursor, values)?;
            values.truncate(rows);
            match places.get(key) {
                Some(place) => starts[*place] = start,
                None => {
                    places.insert(key, starts.len());
                    starts.push(start);
                }
            }
        }
    }
    for start in starts {
        entry(value, &mut cursor.from(start), entries)?;
    }
    Ok(())
}

fn into_branch(place: usize, step: &Step, cursor: &mut Cursor<'_>, columns: &mut [Column]) -> Result<(), Bad> {
    for (number, column) in columns.iter_mut().enumerate() {
        if number == place {
            run(step, cursor, column)?;
        } else {
            column.push_null();
        }
    }
    Ok(())
}

/// Goes over a value without reading it.
pub fn skip(schema: &Schema, id: TypeId, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Bad> {
    if depth > MAX_DEPTH {
        return Err(Bad::limit("it is nested more than 128 levels deep"));
    }
    match &schema.get(id).kind {
        Kind::Null => {}
        Kind::Boolean => drop(cursor.array::<1>()?),
        Kind::Int | Kind::Long => drop(cursor.long()?),
        Kind::Float => drop(cursor.array::<4>()?),
        Kind::Double => drop(cursor.array::<8>()?),
        Kind::Bytes | Kind::String => drop(cursor.bytes()?),
        Kind::Fixed(_, size) => drop(cursor.take(*size)?),
        Kind::Enum(_, symbols) => {
            let number = cursor.number()?;
            if number >= symbols.all.len() {
                return Err(no_symbol(number, symbols.all.len()));
            }
        }
        Kind::Record(_, fields) => {
            for field in fields {
                skip(schema, field.of, cursor, depth + 1)?;
            }
        }
        Kind::Union(branches) => {
            let number = cursor.number()?;
            let branch = branches.get(number).ok_or_else(|| no_branch(number, branches.len()))?;
            skip(schema, *branch, cursor, depth + 1)?;
        }
        Kind::Array(items) => blocks(schema, *items, false, cursor, depth)?,
        Kind::Map(values) => blocks(schema, *values, true, cursor, depth)?,
    }
    Ok(())
}

fn blocks(schema: &Schema, item: TypeId, is_map: bool, cursor: &mut Cursor<'_>, depth: usize) -> Result<(), Bad> {
    let is_empty = !is_map && schema.get(item).is_empty;
    loop {
        let count = cursor.block()?;
        if count == 0 {
            return Ok(());
        }
        if is_empty {
            cursor.empty_items(count)?;
            continue;
        }
        for _ in 0..count {
            if is_map {
                cursor.bytes()?;
            }
            skip(schema, item, cursor, depth + 1)?;
        }
    }
}
