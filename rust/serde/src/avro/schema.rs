//! An Avro schema: JSON -> types by number, each name replaced by the number of its type.

use std::collections::{HashMap, HashSet};

use super::json::{Json, NoJson};
use super::logical::Logical;
use crate::reason::SchemaError;

/// The most types that a schema may have once every name is replaced, as in Arrow: a schema can double them with every line.
const MAX_TYPES: u64 = 100_000;
/// Named types within each other: more than Arrow takes.
const MAX_NESTING: usize = 512;

/// The number of a type in its schema.
pub type TypeId = usize;

/// A parsed schema.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
    pub root: TypeId,
    /// Whether a type contains itself.
    is_recursive: bool,
}

/// One type. A type that is named several times has one number.
#[derive(Debug)]
pub struct Type {
    pub kind: Kind,
    /// Its annotation, if it is one that has an Arrow type.
    pub logical: Option<Logical>,
    /// Whether every value takes no bytes.
    pub is_empty: bool,
    /// How many types it is, once names are replaced.
    count: u64,
}

#[derive(Debug)]
pub enum Kind {
    Null,
    Boolean,
    Int,
    Long,
    Float,
    Double,
    Bytes,
    String,
    Fixed(Name, usize),
    Enum(Name, Symbols),
    Array(TypeId),
    Map(TypeId),
    Record(Name, Vec<Field>),
    Union(Vec<TypeId>),
}

#[derive(Debug)]
pub struct Symbols {
    pub all: Vec<String>,
    pub default: Option<String>,
}

/// A name with its namespace, and the others by which a reader's type is known.
#[derive(Debug)]
pub struct Name {
    pub full: String,
    aliases: Vec<String>,
}

impl Name {
    /// The name without its namespace.
    pub fn short(&self) -> &str {
        short(&self.full)
    }

    /// Whether a writer's type of the name `written` is read as this one. As in Java and fastavro, namespaces are left out of it.
    pub fn reads(&self, written: &Self) -> bool {
        let is_alias = |alias: &String| *alias == written.full || alias == written.short();
        self.short() == written.short() || self.aliases.iter().any(is_alias)
    }
}

#[derive(Debug)]
pub struct Field {
    pub name: String,
    pub aliases: Vec<String>,
    pub of: TypeId,
    /// As it is in the schema.
    pub default: Option<Json>,
}

impl Schema {
    /// Parses the text of a schema; a name of a primitive type may be without quotes.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        let json = match primitive(text.trim()) {
            Some(_) => Json::Text(text.trim().to_owned()),
            None => Json::parse(text).map_err(|error| match error {
                NoJson::TooDeep => too_deep(),
                NoJson::Text(text) => no_schema(format!("it is not JSON: {text}")),
            })?,
        };
        let mut parser = Parser::default();
        parser.know_other_schemas(&json);
        let root = parser.of(&json, "", 0)?;
        let types = parser.types.get(root).map_or(1, |found| found.count);
        if types > MAX_TYPES {
            let message = format!(
                "the Avro schema has {} types once its names are replaced; at most 100,000 are read",
                grouped(types)
            );
            return Err(SchemaError::Invalid(message));
        }
        Ok(Self {
            types: parser.types,
            root,
            is_recursive: parser.is_recursive,
        })
    }

    /// A type by its number.
    pub fn get(&self, id: TypeId) -> &Type {
        &self.types[id]
    }

    /// Whether a value takes memory in proportion to its bytes: no type contains itself, and none that takes no bytes is repeated.
    pub fn is_bounded(&self) -> bool {
        let is_repeated = |found: &Type| matches!(found.kind, Kind::Array(items) if self.get(items).is_empty);
        !self.is_recursive && !self.get(self.root).is_empty && !self.types.iter().any(is_repeated)
    }

    /// Every type, named ones once.
    pub fn types(&self) -> &[Type] {
        &self.types
    }
}

impl Kind {
    /// The name of the type, as Avro has it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Int => "int",
            Self::Long => "long",
            Self::Float => "float",
            Self::Double => "double",
            Self::Bytes => "bytes",
            Self::String => "string",
            Self::Fixed(..) => "fixed",
            Self::Enum(..) => "enum",
            Self::Array(_) => "array",
            Self::Map(_) => "map",
            Self::Record(..) => "record",
            Self::Union(_) => "union",
        }
    }

    /// The name of a named type.
    pub const fn name(&self) -> Option<&Name> {
        match self {
            Self::Fixed(name, _) | Self::Enum(name, _) | Self::Record(name, _) => Some(name),
            _ => None,
        }
    }

    /// For messages: the type, and its name.
    pub fn shown(&self) -> String {
        self.name().map_or_else(
            || self.word().to_owned(),
            |name| format!("{} {}", self.word(), name.full),
        )
    }
}

fn primitive(word: &str) -> Option<Kind> {
    Some(match word {
        "null" => Kind::Null,
        "boolean" => Kind::Boolean,
        "int" => Kind::Int,
        "long" => Kind::Long,
        "float" => Kind::Float,
        "double" => Kind::Double,
        "bytes" => Kind::Bytes,
        "string" => Kind::String,
        _ => return None,
    })
}

fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

pub fn too_deep() -> SchemaError {
    SchemaError::Invalid("not an Avro schema with an Arrow type: it is nested too deep".to_owned())
}

fn no_schema(why: impl AsRef<str>) -> SchemaError {
    SchemaError::Invalid(format!("not an Avro schema: {}", why.as_ref()))
}

/// A number with commas.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut made = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            made.push(',');
        }
        made.push(digit);
    }
    made
}

#[derive(Default)]
struct Parser<'a> {
    types: Vec<Type>,
    names: HashMap<String, TypeId>,
    /// Named types of other schemas, which are parsed when they are named.
    others: HashMap<&'a str, &'a Json>,
    /// Records whose fields are being parsed.
    inside: Vec<TypeId>,
    is_recursive: bool,
}

impl<'a> Parser<'a> {
    /// A schema that fastavro has parsed keeps named types of other schemas.
    fn know_other_schemas(&mut self, json: &'a Json) {
        let parts = json.list().unwrap_or(std::slice::from_ref(json));
        for part in parts {
            if let Some(Json::Object(named)) = part.get("__named_schemas") {
                self.others
                    .extend(named.iter().map(|(name, known)| (name.as_str(), known)));
            }
        }
    }

    fn of(&mut self, json: &'a Json, namespace: &str, depth: usize) -> Result<TypeId, SchemaError> {
        if depth > MAX_NESTING {
            return Err(too_deep());
        }
        match json {
            Json::Text(name) => self.named(name, namespace, depth),
            Json::List(branches) => self.union(branches, namespace, depth),
            Json::Object(_) => self.object(json, namespace, depth),
            other => Err(no_schema(format!("{other} is no type"))),
        }
    }

    fn add(&mut self, kind: Kind, logical: Option<Logical>) -> TypeId {
        self.types.push(Type {
            kind,
            logical,
            is_empty: false,
            count: 1,
        });
        self.finished(self.types.len() - 1)
    }

    /// Counts a type whose parts are known. Of a type within itself the outer one is not finished, and counts as one.
    fn finished(&mut self, id: TypeId) -> TypeId {
        let parts: Vec<TypeId> = match &self.types[id].kind {
            Kind::Array(part) | Kind::Map(part) => vec![*part],
            Kind::Union(branches) => branches.clone(),
            Kind::Record(_, fields) => fields.iter().map(|field| field.of).collect(),
            _ => Vec::new(),
        };
        let count = |total: u64, part: &TypeId| total.saturating_add(self.types[*part].count);
        let count = parts.iter().fold(1, count);
        let is_empty = match &self.types[id].kind {
            Kind::Null | Kind::Fixed(_, 0) => true,
            Kind::Record(..) => parts.iter().all(|part| self.types[*part].is_empty),
            _ => false,
        };
        self.types[id].count = count;
        self.types[id].is_empty = is_empty;
        id
    }

    fn named(&mut self, name: &'a str, namespace: &str, depth: usize) -> Result<TypeId, SchemaError> {
        if let Some(kind) = primitive(name) {
            return Ok(self.add(kind, None));
        }
        let in_namespace = format!("{namespace}.{name}");
        let candidates = if name.contains('.') || namespace.is_empty() {
            [name, name]
        } else {
            [in_namespace.as_str(), name]
        };
        for candidate in candidates {
            if let Some(id) = self.names.get(candidate) {
                self.is_recursive |= self.inside.contains(id);
                return Ok(*id);
            }
            if let Some(json) = self.others.remove(candidate) {
                return self.of(json, "", depth + 1);
            }
        }
        Err(no_schema(format!(
            "{name} is no type, and none before it has that name"
        )))
    }

    fn union(&mut self, branches: &'a [Json], namespace: &str, depth: usize) -> Result<TypeId, SchemaError> {
        let mut ids = Vec::with_capacity(branches.len());
        let mut seen = HashSet::new();
        for branch in branches {
            let id = self.of(branch, namespace, depth + 1)?;
            let kind = &self.types[id].kind;
            if matches!(kind, Kind::Union(_)) {
                return Err(no_schema("a union has a union as a branch"));
            }
            let named = kind.name().map_or(kind.word(), |name| name.full.as_str());
            if !seen.insert(named.to_owned()) {
                return Err(no_schema(format!("a union has two branches of the type {named}")));
            }
            ids.push(id);
        }
        Ok(self.add(Kind::Union(ids), None))
    }

    fn object(&mut self, json: &'a Json, namespace: &str, depth: usize) -> Result<TypeId, SchemaError> {
        let kind = json
            .get("type")
            .ok_or_else(|| no_schema(format!("{json} has no type")))?;
        let Json::Text(word) = kind else {
            return self.of(kind, namespace, depth + 1);
        };
        match word.as_str() {
            "array" => {
                let items = part(json, "array", "items")?;
                let items = self.of(items, namespace, depth + 1)?;
                Ok(self.add(Kind::Array(items), None))
            }
            "map" => {
                let values = part(json, "map", "values")?;
                let values = self.of(values, namespace, depth + 1)?;
                Ok(self.add(Kind::Map(values), None))
            }
            "record" | "error" => self.record(json, namespace, depth),
            "enum" => {
                let name = name_of(json, namespace, word)?;
                let symbols = symbols(json, &name)?;
                self.define(Kind::Enum(name, symbols), None)
            }
            "fixed" => {
                let name = name_of(json, namespace, word)?;
                let size = json.get("size").and_then(Json::int).map(usize::try_from);
                let Some(Ok(size)) = size else {
                    return Err(no_schema(format!("the fixed type {} has no size", name.full)));
                };
                let logical = Logical::of("fixed", size, json);
                self.define(Kind::Fixed(name, size), logical)
            }
            _ => match primitive(word) {
                Some(kind) => {
                    let logical = Logical::of(word, 0, json);
                    Ok(self.add(kind, logical))
                }
                None => self.named(word, namespace, depth + 1),
            },
        }
    }

    fn define(&mut self, kind: Kind, logical: Option<Logical>) -> Result<TypeId, SchemaError> {
        let full = kind.name().map(|name| name.full.clone()).unwrap_or_default();
        let id = self.add(kind, logical);
        if self.names.insert(full.clone(), id).is_some() {
            return Err(no_schema(format!("two types have the name {full}")));
        }
        Ok(id)
    }

    fn record(&mut self, json: &'a Json, namespace: &str, depth: usize) -> Result<TypeId, SchemaError> {
        let name = name_of(json, namespace, "record")?;
        let full = name.full.clone();
        let space = full.rsplit_once('.').map_or("", |(space, _)| space);
        let id = self.define(Kind::Record(name, Vec::new()), None)?;
        // within itself it is not known to be empty
        self.types[id].is_empty = false;
        self.inside.push(id);
        let fields = json.get("fields").and_then(Json::list);
        let fields = fields.ok_or_else(|| no_schema(format!("the record {full} has no fields")))?;
        let mut made: Vec<Field> = Vec::with_capacity(fields.len());
        let mut seen = HashSet::new();
        for field in fields {
            let name = field.get("name").and_then(Json::text);
            let name = name.ok_or_else(|| no_schema(format!("a field of the record {full} has no name")))?;
            let of = field.get("type");
            let of = of.ok_or_else(|| no_schema(format!("the field {full}.{name} has no type")))?;
            check_name(name, &format!("field of the record {full}"))?;
            if !seen.insert(name) {
                return Err(no_schema(format!("the record {full} has two fields {name}")));
            }
            made.push(Field {
                name: name.to_owned(),
                aliases: texts(field.get("aliases"), &format!("aliases of {full}.{name}"))?,
                of: self.of(of, space, depth + 1)?,
                default: field.get("default").cloned(),
            });
        }
        self.inside.pop();
        if let Kind::Record(_, fields) = &mut self.types[id].kind {
            *fields = made;
        }
        Ok(self.finished(id))
    }
}

fn part<'a>(json: &'a Json, word: &str, name: &str) -> Result<&'a Json, SchemaError> {
    json.get(name)
        .ok_or_else(|| no_schema(format!("a type {word} has no {name}")))
}

fn name_of(json: &Json, namespace: &str, word: &str) -> Result<Name, SchemaError> {
    let name = json.get("name").and_then(Json::text).filter(|name| !name.is_empty());
    let name = name.ok_or_else(|| no_schema(format!("a type {word} has no name")))?;
    let space = json.get("namespace").and_then(Json::text).unwrap_or(namespace);
    let qualified = |name: &str| match name {
        _ if name.contains('.') || space.is_empty() => name.to_owned(),
        _ => format!("{space}.{name}"),
    };
    let full = qualified(name);
    check_name(short(&full), word)?;
    if primitive(&full).is_some() {
        return Err(no_schema(format!("a {word} has the name {full} of a primitive type")));
    }
    let mut aliases = texts(json.get("aliases"), &format!("aliases of {full}"))?;
    for alias in aliases.clone() {
        aliases.push(qualified(&alias));
    }
    Ok(Name { full, aliases })
}

/// A name has letters, digits and underscores, and does not begin with a digit. Avro: `NameValidator.UTF_VALIDATOR` (Java), where letters are those of any language.
fn check_name(name: &str, what: &str) -> Result<(), SchemaError> {
    let is_first = |first: char| first.is_alphabetic() || first == '_';
    let is_rest = |one: char| one.is_alphanumeric() || one == '_';
    if name.starts_with(is_first) && name.chars().all(is_rest) {
        return Ok(());
    }
    Err(no_schema(format!(
        "{name:?} is no name of a {what}: it has letters, digits and underscores, and no digit in front"
    )))
}

fn texts(json: Option<&Json>, what: &str) -> Result<Vec<String>, SchemaError> {
    let Some(json) = json else { return Ok(Vec::new()) };
    let texts = json
        .list()
        .map(|items| items.iter().map(|item| item.text().map(str::to_owned)).collect());
    let texts: Option<Option<Vec<String>>> = texts;
    texts
        .flatten()
        .ok_or_else(|| no_schema(format!("the {what} are no list of names")))
}

fn symbols(json: &Json, name: &Name) -> Result<Symbols, SchemaError> {
    let full = &name.full;
    if json.get("symbols").is_none() {
        return Err(no_schema(format!("the enum {full} has no symbols")));
    }
    let all = texts(json.get("symbols"), &format!("symbols of the enum {full}"))?;
    for symbol in &all {
        check_name(symbol, &format!("symbol of the enum {full}"))?;
    }
    let mut seen = HashSet::new();
    if let Some(twice) = all.iter().find(|symbol| !seen.insert(symbol.as_str())) {
        return Err(no_schema(format!("the enum {full} has the symbol {twice} twice")));
    }
    let default = match json.get("default") {
        None | Some(Json::Null) => None,
        Some(Json::Text(symbol)) if all.contains(symbol) => Some(symbol.clone()),
        Some(other) => {
            return Err(no_schema(format!(
                "the default {other} of the enum {full} is no symbol of it"
            )));
        }
    };
    Ok(Symbols { all, default })
}
