//! Text of .proto files -> descriptors, by protox.

use std::collections::BTreeMap;

use protox::Compiler;
use protox::file::{ChainFileResolver, File, FileResolver, GoogleFileResolver};

use crate::reason::SchemaError;

/// How deep braces may be inside each other: the parser uses the stack.
const MOST_BRACES: usize = 100;

/// Compiles the file `name` of `texts`: name of a file, as an import writes it -> its text.
///
/// Returns the bytes of a `google.protobuf.FileDescriptorSet`: that file and all that it imports, each after those it imports. The files of
/// `google/protobuf` need not be given.
///
/// # Errors
///
/// A text is not proto2 or proto3, or an import is not given: what is wrong, in which file and line.
pub fn compile(texts: BTreeMap<String, String>, name: &str) -> Result<Vec<u8>, SchemaError> {
    if let Some((deep, _)) = texts.iter().find(|(_, text)| deepest(text) > MOST_BRACES) {
        return Err(invalid(&format!("{deep}: braces in more than {MOST_BRACES} levels")));
    }
    let mut resolver = ChainFileResolver::new();
    resolver.add(Texts(texts));
    resolver.add(GoogleFileResolver::new());
    let mut compiler = Compiler::with_file_resolver(resolver);
    compiler.include_imports(true).include_source_info(false);
    // its Debug is the message behind file, line and column
    compiler
        .open_file(name)
        .map_err(|error| invalid(&format!("{error:?}")))?;
    Ok(compiler.encode_file_descriptor_set())
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

struct Texts(BTreeMap<String, String>);

impl FileResolver for Texts {
    fn open_file(&self, name: &str) -> Result<File, protox::Error> {
        match self.0.get(name) {
            Some(text) => File::from_source(name, text),
            None => Err(protox::Error::file_not_found(name)),
        }
    }
}
