//! From a writer's schema and a reader's to the steps that read values of the one into columns of the other: Avro's rules of schema resolution.

use std::sync::Arc;

use super::default;
use super::logical::Logical;
use super::number::{Convert, Digits};
use super::read::{self, Field, Step};
use super::schema::{Kind, Name, Schema, Symbols, TypeId, too_deep};
use super::types::branches;
use crate::column::Column;
use crate::keep::{self, Keep};
use crate::reason::SchemaError;

/// Steps to make, at most: the types of two schemas are at most 100,000 each, but unions can pair them in many ways.
const MAX_STEPS: usize = 1_000_000;
const MAX_DEPTH: usize = 512;

/// Why there are no steps.
enum NoPlan {
    /// No value can be read: the reason.
    Unresolvable(String),
    /// A schema is at fault.
    Schema(SchemaError),
}

impl From<SchemaError> for NoPlan {
    fn from(error: SchemaError) -> Self {
        Self::Schema(error)
    }
}

type Planned = Result<Step, NoPlan>;

/// The steps that read values of `writer` as those of `reader`, with the fields `keep`.
pub fn plan(writer: &Arc<Schema>, reader: &Arc<Schema>, keep: &Keep) -> Result<Step, SchemaError> {
    let mut planner = Planner {
        writer,
        reader,
        left: MAX_STEPS,
    };
    let at = At {
        path: "",
        depth: 0,
        keep,
    };
    planner
        .of(writer.root, reader.root, &at)
        .map_err(|no_plan| match no_plan {
            NoPlan::Unresolvable(why) => SchemaError::Unresolvable(format!(
                "no value of the Avro schema can be read by the reader_schema: {why}"
            )),
            NoPlan::Schema(error) => error,
        })
}

/// Checks the defaults of all fields of a reader's schema.
pub fn check_defaults(schema: &Arc<Schema>) -> Result<(), SchemaError> {
    for found in schema.types() {
        let Kind::Record(name, fields) = &found.kind else {
            continue;
        };
        for field in fields {
            if let Some(default) = &field.default {
                let wrong = |text: String| {
                    let place = format!("{}.{}", name.full, field.name);
                    SchemaError::Invalid(format!(
                        "the Avro schema has a default at {place} that is not of its type: {text}"
                    ))
                };
                let bytes = default::encoded(schema, field.of, default).map_err(wrong)?;
                check_value(schema, field.of, &bytes).map_err(wrong)?;
            }
        }
    }
    Ok(())
}

/// Arrow's types may have no such value: a time may be beyond the end of the day, a decimal have too many digits.
fn check_value(schema: &Arc<Schema>, id: TypeId, bytes: &[u8]) -> Result<(), String> {
    let Ok(data_type) = super::types::data_type_of(schema, id) else {
        return Ok(());
    };
    let mut planner = Planner {
        writer: schema,
        reader: schema,
        left: MAX_STEPS,
    };
    let Ok(step) = planner.of(id, id, &At::TOP) else {
        return Ok(());
    };
    let mut column = Column::new(&data_type, 1);
    let mut cursor = super::cursor::Cursor::new(bytes);
    read::run(&step, &mut cursor, &mut column).map_err(super::bad::Bad::text)
}

/// A place in the reader's schema.
#[derive(Clone, Copy)]
struct At<'a> {
    path: &'a str,
    depth: usize,
    keep: &'a Keep,
}

impl At<'static> {
    const TOP: Self = Self {
        path: "",
        depth: 0,
        keep: &keep::ALL,
    };
}

impl<'a> At<'a> {
    const fn below(&self, path: &'a str, keep: &'a Keep) -> Self {
        Self {
            path,
            depth: self.depth + 1,
            keep,
        }
    }

    /// For messages.
    fn shown(&self) -> String {
        if self.path.is_empty() {
            String::new()
        } else {
            format!(" at {}", self.path)
        }
    }
}

struct Planner<'a> {
    writer: &'a Arc<Schema>,
    reader: &'a Arc<Schema>,
    /// How many steps may still be made.
    left: usize,
}

impl Planner<'_> {
    fn of(&mut self, writer: TypeId, reader: TypeId, at: &At<'_>) -> Planned {
        self.left = self.left.checked_sub(1).ok_or_else(|| {
            SchemaError::Invalid("the unions of the Avro schemas can be read as each other in too many ways".to_owned())
        })?;
        if at.depth > MAX_DEPTH {
            return Err(too_deep().into());
        }
        let (written, wanted) = (self.writer.get(writer), self.reader.get(reader));
        if let Kind::Union(union) = &written.kind {
            return self.of_each_branch(union, reader, at);
        }
        if let Kind::Union(union) = &wanted.kind {
            return self.as_a_branch(writer, union, at);
        }
        let no_alias = || {
            let (written, wanted) = (written.kind.shown(), wanted.kind.shown());
            let message = format!("{written}{} is read as {wanted}, which has no such alias", at.shown());
            NoPlan::Unresolvable(message)
        };
        let named = |written: &Name, wanted: &Name| if wanted.reads(written) { Ok(()) } else { Err(no_alias()) };
        match (&written.kind, &wanted.kind) {
            (Kind::Array(written), Kind::Array(wanted)) => {
                let path = format!("{}/items", at.path);
                let item = self.of(*written, *wanted, &at.below(&path, at.keep))?;
                let items_are_empty = self.writer.get(*written).is_empty;
                Ok(Step::Array(Box::new(item), items_are_empty))
            }
            (Kind::Map(written), Kind::Map(wanted)) => {
                let path = format!("{}/values", at.path);
                let value = self.of(*written, *wanted, &at.below(&path, at.keep))?;
                Ok(Step::Map(Box::new(value)))
            }
            (Kind::Record(written_name, _), Kind::Record(wanted_name, _)) => {
                named(written_name, wanted_name)?;
                self.record(writer, reader, at)
            }
            (Kind::Enum(written_name, written), Kind::Enum(wanted_name, wanted)) => {
                named(written_name, wanted_name)?;
                Ok(Step::Enum(symbols(written, wanted)))
            }
            (Kind::Fixed(written_name, given), Kind::Fixed(wanted_name, size)) => {
                named(written_name, wanted_name)?;
                if given != size {
                    let shown = written.kind.shown();
                    let message = format!(
                        "{shown}{} has {given} bytes in the schema and {size} in the reader_schema",
                        at.shown()
                    );
                    return Err(NoPlan::Unresolvable(message));
                }
                Ok(digits(written.logical, wanted.logical, Some(*size))
                    .map_or(Step::Fixed(*size), |digits| Step::FixedDecimal(*size, digits)))
            }
            (written_kind, wanted_kind) => {
                let step = scalar(written_kind, written.logical, wanted_kind, wanted.logical);
                step.ok_or_else(|| {
                    let (written, wanted) = (written_kind.shown(), wanted_kind.shown());
                    NoPlan::Unresolvable(format!("{written}{} is read as {wanted}", at.shown()))
                })
            }
        }
    }

    /// A union of the writer: each branch as what the reader has. A branch that cannot be read makes only its own values malformed.
    fn of_each_branch(&mut self, union: &[TypeId], reader: TypeId, at: &At<'_>) -> Planned {
        let mut steps = Vec::with_capacity(union.len());
        let mut why = None;
        for (number, branch) in union.iter().enumerate() {
            let step = match self.of_branch(*branch, reader, number, union, at) {
                Ok(step) => step,
                Err(NoPlan::Unresolvable(reason)) => {
                    let fail = Step::Fail(reason.as_str().into());
                    why = Some(reason);
                    fail
                }
                Err(error) => return Err(error),
            };
            steps.push(step);
        }
        if !steps.is_empty()
            && steps.iter().all(|step| matches!(step, Step::Fail(_)))
            && let Some(reason) = why
        {
            return Err(NoPlan::Unresolvable(reason));
        }
        Ok(Step::Union(steps.into()))
    }

    /// One branch of a union. A union that is read as itself is read branch by branch.
    fn of_branch(&mut self, branch: TypeId, reader: TypeId, number: usize, union: &[TypeId], at: &At<'_>) -> Planned {
        if Arc::ptr_eq(self.writer, self.reader)
            && let Kind::Union(wanted) = &self.reader.get(reader).kind
            && wanted == union
        {
            return self.as_this_branch(branch, wanted, number, at);
        }
        self.of(branch, reader, at)
    }

    /// A type that is read as a union: the branch of the same type, or the first that it can be read as.
    fn as_a_branch(&mut self, writer: TypeId, union: &[TypeId], at: &At<'_>) -> Planned {
        let written = self.writer.get(writer);
        let is_same = |branch: &TypeId| {
            let wanted = self.reader.get(*branch);
            match (written.kind.name(), wanted.kind.name()) {
                (Some(name), Some(other)) => written.kind.word() == wanted.kind.word() && name.full == other.full,
                _ => written.kind.word() == wanted.kind.word(),
            }
        };
        let (same, others): (Vec<usize>, Vec<usize>) = (0..union.len()).partition(|number| is_same(&union[*number]));
        let has_same = !same.is_empty();
        let mut why = None;
        for number in same.into_iter().chain(others) {
            match self.as_this_branch(writer, union, number, at) {
                // of the branches the one of the same type says most
                Err(NoPlan::Unresolvable(_)) if has_same && why.is_some() => {}
                Err(NoPlan::Unresolvable(reason)) => why = Some(reason),
                found => return found,
            }
        }
        let none = || {
            format!(
                "{}{} is read as a union without branches",
                written.kind.shown(),
                at.shown()
            )
        };
        Err(NoPlan::Unresolvable(why.unwrap_or_else(none)))
    }

    /// A type as one branch of a reader's union.
    fn as_this_branch(&mut self, writer: TypeId, union: &[TypeId], number: usize, at: &At<'_>) -> Planned {
        let branches = branches(self.reader, union);
        if branches.len() < 2 {
            return self.of(writer, union[number], at);
        }
        let Some((_, id, name)) = branches.iter().find(|(branch, ..)| *branch == number) else {
            // null: the struct is null
            return self.of(writer, union[number], at);
        };
        let path = format!("{}/{name}", at.path);
        let kept: Vec<&str> = branches
            .iter()
            .map(|(_, _, name)| *name)
            .filter(|name| at.keep.field(name).is_some())
            .collect();
        let Some(keep) = at.keep.field(name) else {
            self.of(writer, *id, &at.below(&path, &keep::ALL))?;
            return Ok(Step::SkippedBranch(Arc::clone(self.writer), writer));
        };
        let step = self.of(writer, *id, &at.below(&path, keep))?;
        let place = kept.iter().position(|kept| kept == name).unwrap_or_default();
        Ok(Step::Into(place, Box::new(step)))
    }

    fn record(&mut self, writer: TypeId, reader: TypeId, at: &At<'_>) -> Planned {
        let (Kind::Record(_, written), Kind::Record(_, wanted)) =
            (&self.writer.get(writer).kind, &self.reader.get(reader).kind)
        else {
            return Err(too_deep().into());
        };
        // for each field of the reader the writer's that it is read from
        let by_name = |name: &String| written.iter().position(|field| field.name == *name);
        let is_named = |place: usize| wanted.iter().any(|field| field.name == written[place].name);
        let found: Vec<Option<usize>> = wanted
            .iter()
            .map(|field| {
                let by_alias = |alias| by_name(alias).filter(|place| !is_named(*place));
                by_name(&field.name).or_else(|| field.aliases.iter().find_map(by_alias))
            })
            .collect();
        let mut steps: Vec<Option<Field>> = written.iter().map(|_| None).collect();
        let mut defaults = Vec::new();
        let mut column = 0;
        for (field, source) in wanted.iter().zip(found) {
            let path = format!("{}/{}", at.path, field.name);
            let keep = at.keep.field(&field.name);
            let below = at.below(&path, keep.unwrap_or(&keep::ALL));
            let Some(place) = source else {
                let step = self.default(field, &below)?;
                if keep.is_some() {
                    defaults.push((column, step));
                    column += 1;
                }
                continue;
            };
            let step = self.of(written[place].of, field.of, &below)?;
            if keep.is_some() {
                steps[place] = Some(Field::Read(column, step));
                column += 1;
            }
        }
        let skipped = |(place, step): (usize, Option<Field>)| step.unwrap_or(Field::Skip(written[place].of));
        Ok(Step::Record(Box::new(read::Record {
            writer: Arc::clone(self.writer),
            depth: at.depth,
            fields: steps.into_iter().enumerate().map(skipped).collect(),
            defaults: defaults.into(),
        })))
    }

    /// A field that the writer does not have.
    fn default(&mut self, field: &super::schema::Field, at: &At<'_>) -> Planned {
        let default = field.default.as_ref().ok_or_else(|| {
            let path = at.path;
            let message = format!("the field {path} is not in the schema, and has no default in the reader_schema");
            NoPlan::Unresolvable(message)
        })?;
        // checked before, with the name of its record
        let bytes = default::encoded(self.reader, field.of, default).map_err(SchemaError::Invalid)?;
        let mut planner = Planner {
            writer: self.reader,
            reader: self.reader,
            left: self.left,
        };
        let step = planner.of(field.of, field.of, at)?;
        self.left = planner.left;
        Ok(Step::Constant(bytes.into(), Box::new(step)))
    }
}

/// For each symbol of the writer the reader's; `None` where it has none.
fn symbols(written: &Symbols, wanted: &Symbols) -> Box<[Result<Box<str>, Box<str>>]> {
    let symbol = |symbol: &String| {
        if wanted.all.contains(symbol) {
            return Ok(symbol.as_str().into());
        }
        let none = || format!("the symbol {symbol} is none of the reader_schema's, which has no default").into();
        wanted.default.as_deref().map(Into::into).ok_or_else(none)
    };
    written.all.iter().map(symbol).collect()
}

/// How the digits of decimals are read, if the type read is a decimal.
fn digits(written: Option<Logical>, wanted: Option<Logical>, size: Option<usize>) -> Option<Digits> {
    let Some(Logical::Decimal { precision, scale }) = wanted else {
        return None;
    };
    let given = match written {
        Some(Logical::Decimal { scale, .. }) => scale,
        _ => scale,
    };
    Some(Digits {
        precision,
        scale,
        more_places: scale - given,
        size,
    })
}

/// A type without parts as another one; `None` where Avro has no promotion.
fn scalar(written: &Kind, given: Option<Logical>, wanted: &Kind, logical: Option<Logical>) -> Option<Step> {
    let time = |step: fn(Option<Convert>, Option<i64>) -> Step| {
        let convert = given.zip(logical).and_then(|(from, to)| Convert::new(from, to));
        let convert = convert.filter(|_| given != logical);
        let per_day = logical.and_then(Logical::per_day);
        match (convert, per_day) {
            (None, None) => None,
            (convert, per_day) => Some(step(convert, per_day)),
        }
    };
    Some(match (written, wanted) {
        (Kind::Null, Kind::Null) => Step::Null,
        (Kind::Boolean, Kind::Boolean) => Step::Boolean,
        (Kind::Int, Kind::Int) => time(Step::Time32).unwrap_or(Step::Int),
        (Kind::Int | Kind::Long, Kind::Long) => time(Step::Time64).unwrap_or(Step::Long),
        (Kind::Int | Kind::Long, Kind::Float) => Step::LongAsFloat,
        (Kind::Int | Kind::Long, Kind::Double) => Step::LongAsDouble,
        (Kind::Float, Kind::Float) => Step::Float,
        (Kind::Float, Kind::Double) => Step::FloatAsDouble,
        (Kind::Double, Kind::Double) => Step::Double,
        (Kind::Bytes, Kind::Bytes) => digits(given, logical, None).map_or(Step::Bytes, Step::Decimal),
        (Kind::String, Kind::Bytes) => digits(None, logical, None).map_or(Step::TextAsBytes, Step::Decimal),
        (Kind::Bytes | Kind::String, Kind::String) => Step::Text,
        _ => return None,
    })
}
