//! The docstrings of the stub `python/fletchlog/_core.pyi`, as a macro: `stub!(Producer.send)`. The stub is the only place that has them.

use std::path::Path;
use std::{env, fs};

const STUB: &str = "../../python/fletchlog/_core.pyi";

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed={STUB}");
    let stub = fs::read_to_string(STUB).map_err(|e| format!("{STUB}: {e}"))?;
    let rules: String = docstrings(&stub)
        .iter()
        .map(|(name, text)| format!("    ({name}) => {{ {text:?} }};\n"))
        .collect();
    let out = Path::new(&env::var("OUT_DIR")?).join("stub.rs");
    Ok(fs::write(out, format!("macro_rules! stub {{\n{rules}}}\n"))?)
}

/// (`Class`, `Class.method` or `function`, its text), in the order of the stub. Of overloads the first text counts.
fn docstrings(stub: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = Vec::new();
    let (mut class, mut name) = (String::new(), None);
    let mut lines = stub.lines();
    while let Some(line) = lines.next() {
        let inner = line.trim_start();
        if let Some(rest) = line.strip_prefix("class ") {
            class = identifier(rest);
            name = Some(class.clone());
        } else if let Some(rest) = line.strip_prefix("def ") {
            (class, name) = (String::new(), Some(identifier(rest)));
        } else if let Some(rest) = inner.strip_prefix("def ") {
            name = Some(format!("{class}.{}", identifier(rest)));
        } else if let (Some(first), Some(of)) = (inner.strip_prefix("\"\"\""), &name) {
            let mut text = first.to_owned();
            while !text.ends_with("\"\"\"") {
                let Some(more) = lines.next() else { break };
                text.push('\n');
                text.push_str(more.strip_prefix(&line[..line.len() - inner.len()]).unwrap_or_default());
            }
            let text = text.trim_end_matches("\"\"\"").trim_end().to_owned();
            if found.iter().all(|(known, _)| known != of) {
                found.push((of.clone(), text));
            }
            name = None;
        }
    }
    found
}

fn identifier(text: &str) -> String {
    text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect()
}
