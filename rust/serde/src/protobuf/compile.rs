//! .proto files -> descriptors, by protox.

use std::collections::BTreeMap;

use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};
use protox::prost::Message;
use protox::prost_reflect::prost_types::FileDescriptorProto;

use crate::reason::SchemaError;

/// How deep braces may be inside each other: the parser uses the stack.
const MOST_BRACES: usize = 100;

/// A .proto file.
#[derive(Debug, Clone)]
pub enum Source {
    /// proto2 or proto3.
    Text(String),
    /// A serialised `google.protobuf.FileDescriptorProto`, whose types need not be resolved.
    Descriptor(Vec<u8>),
}

/// Parses the text of a .proto file alone. Returns the bytes of its `google.protobuf.FileDescriptorProto`: types are names as written, options are
/// uninterpreted.
///
/// # Errors
///
/// It is not proto2 or proto3: what is wrong, in which line.
pub fn parse(text: &str, name: &str) -> Result<Vec<u8>, SchemaError> {
    check_depth(text, name)?;
    let file = File::from_source(name, text).map_err(|error| invalid(&format!("{error:?}")))?;
    let mut made = FileDescriptorProto::from(file);
    made.source_code_info = None;
    Ok(made.encode_to_vec())
}

/// Compiles the file `name` of `files`: name of a file, as an import writes it -> what it has.
///
/// Returns the bytes of a `google.protobuf.FileDescriptorSet`: that file and all that it imports, each after those it imports. The files of
/// `google/protobuf` need not be given.
///
/// # Errors
///
/// A file is not proto2 or proto3, or an import is not given: what is wrong, in which file and line.
pub fn compile(files: BTreeMap<String, Source>, name: &str) -> Result<Vec<u8>, SchemaError> {
    for (name, file) in &files {
        if let Source::Text(text) = file {
            check_depth(text, name)?;
        }
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(Files(files));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(false);
    // its Debug is the message behind file, line and column
    compiler
        .open_file(name)
        .map_err(|error| invalid(&format!("{error:?}")))?;
    Ok(compiler.encode_file_descriptor_set())
}

fn check_depth(text: &str, name: &str) -> Result<(), SchemaError> {
    if deepest(text) > MOST_BRACES {
        return Err(invalid(&format!("{name}: braces in more than {MOST_BRACES} levels")));
    }
    Ok(())
}

fn invalid(why: &str) -> SchemaError {
    SchemaError::Invalid(format!("not a Protobuf schema: {}", why.trim()))
}

/// How many braces and brackets are open at most, those in comments and texts too.
fn deepest(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'{' | b'[' | b'<' | b'(' => open += 1,
            b'}' | b']' | b'>' | b')' => open = open.saturating_sub(1),
            _ => {}
        }
        most = most.max(open);
    }
    most
}

struct Files(BTreeMap<String, Source>);

impl FileResolver for Files {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(Source::Text(text)) => File::from_source(name, text),
            Some(Source::Descriptor(bytes)) => {
                File::decode_file_descriptor_proto(bytes.as_slice()).map_err(protox::Error::new)
            }
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}
