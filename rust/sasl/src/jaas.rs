//! `sasl.jaas.config`: `MODULE FLAG (NAME=VALUE)*;`, values bare or in quotes. Kafka: `JaasConfig`.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::str::Chars;

use crate::Secret;

/// One login module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JaasEntry {
    /// Name of the Java class.
    pub login_module: String,
    /// Its options. Any of them may be a secret.
    pub options: BTreeMap<String, Secret>,
}

/// What is wrong with a text. It never shows a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JaasError {
    /// There is no login module.
    #[error("Login module not specified in JAAS config")]
    NoModule,
    /// The word after the module is not a control flag.
    #[error(
        "Invalid login module control flag in JAAS config: required, requisite, sufficient or optional follows the module's name"
    )]
    ControlFlag,
    /// An option without a value.
    #[error("Value not specified for key '{0}' in JAAS config")]
    NoValue(String),
    /// The last entry has no semicolon.
    #[error("JAAS config entry not terminated by semi-colon")]
    NoSemicolon,
    /// An option has no name.
    #[error("option without a name in JAAS config")]
    NoName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Word {
    Text(String),
    Equals,
    Semicolon,
}

/// Reads a text with one or more entries.
///
/// # Errors
/// It is not of this form.
pub fn parse(config: &str) -> Result<Vec<JaasEntry>, JaasError> {
    let mut words = words(config).into_iter();
    let mut entries = Vec::new();
    while let Some(word) = words.next() {
        let Word::Text(login_module) = word else {
            return Err(JaasError::NoModule);
        };
        match words.next() {
            Some(Word::Text(flag)) if is_control_flag(&flag) => {}
            _ => return Err(JaasError::ControlFlag),
        }
        let options = options(&mut words)?;
        entries.push(JaasEntry { login_module, options });
    }
    if entries.is_empty() {
        Err(JaasError::NoModule)
    } else {
        Ok(entries)
    }
}

fn is_control_flag(word: &str) -> bool {
    ["required", "requisite", "sufficient", "optional"]
        .iter()
        .any(|flag| word.eq_ignore_ascii_case(flag))
}

fn options(words: &mut impl Iterator<Item = Word>) -> Result<BTreeMap<String, Secret>, JaasError> {
    let mut options = BTreeMap::new();
    loop {
        let name = match words.next() {
            Some(Word::Text(name)) => name,
            Some(Word::Semicolon) => return Ok(options),
            Some(Word::Equals) => return Err(JaasError::NoName),
            None => return Err(JaasError::NoSemicolon),
        };
        match (words.next(), words.next()) {
            (Some(Word::Equals), Some(Word::Text(value))) => options.insert(name, Secret::new(value)),
            _ => return Err(JaasError::NoValue(name)),
        };
    }
}

/// Words, `=` and `;`, without white space and comments.
fn words(config: &str) -> Vec<Word> {
    let mut chars = config.chars().peekable();
    let mut words = Vec::new();
    while let Some(&c) = chars.peek() {
        match c {
            '\0'..=' ' => drop(chars.next()),
            '/' => skip_comment(&mut chars),
            ';' => words.extend(chars.next().map(|_| Word::Semicolon)),
            '=' => words.extend(chars.next().map(|_| Word::Equals)),
            '"' | '\'' => words.push(Word::Text(quoted(&mut chars))),
            _ => words.push(Word::Text(bare(&mut chars))),
        }
    }
    words
}

/// A comment: `/* ... */`, or any other text that begins with `/` up to the end of the line.
fn skip_comment(chars: &mut Peekable<Chars<'_>>) {
    chars.next();
    if chars.next_if_eq(&'*').is_none() {
        while chars.next_if(|&c| c != '\n').is_some() {}
        return;
    }
    let mut before = ' ';
    for c in chars.by_ref() {
        if before == '*' && c == '/' {
            return;
        }
        before = c;
    }
}

/// A text in quotes, which ends with its line at the latest.
fn quoted(chars: &mut Peekable<Chars<'_>>) -> String {
    let quote = chars.next();
    let mut text = String::new();
    while let Some(c) = chars.next_if(|&c| c != '\n' && c != '\r') {
        match c {
            _ if Some(c) == quote => break,
            '\\' => text.extend(chars.next().map(|escaped| match escaped {
                'n' => '\n',
                't' => '\t',
                'r' => '\r',
                other => other,
            })),
            _ => text.push(c),
        }
    }
    text
}

fn bare(chars: &mut Peekable<Chars<'_>>) -> String {
    let is_part = |c: &char| *c > ' ' && !";='\"/".contains(*c);
    std::iter::from_fn(|| chars.next_if(is_part)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(entry: &JaasEntry) -> Vec<(&str, &str)> {
        entry
            .options
            .iter()
            .map(|(name, value)| (name.as_str(), value.reveal()))
            .collect()
    }

    #[test]
    fn modules_flags_and_options_are_read() {
        let config = "org.apache.kafka.common.security.plain.PlainLoginModule required\n  username=\"admin\" \
             password='adm;in \"x\" = /* y */' user_alice=\"a\\\"b\\\\c\" // the rest\n user_bob=bare;";
        let entries = parse(config).unwrap();
        assert_eq!(entries.len(), 1);
        assert!(entries[0].login_module.ends_with(".PlainLoginModule"));
        assert_eq!(
            options(&entries[0]),
            [
                ("password", "adm;in \"x\" = /* y */"),
                ("user_alice", "a\"b\\c"),
                ("user_bob", "bare"),
                ("username", "admin")
            ]
        );
        assert_eq!(parse("A Required; /* x */ B optional a=b;").unwrap().len(), 2);
    }

    #[test]
    fn what_is_not_of_the_form_is_named_without_its_values() {
        for (config, error) in [
            ("", JaasError::NoModule),
            ("=", JaasError::NoModule),
            ("A", JaasError::ControlFlag),
            ("A sometimes;", JaasError::ControlFlag),
            ("A required", JaasError::NoSemicolon),
            ("A required a=\"secret\"", JaasError::NoSemicolon),
            ("A required a;", JaasError::NoValue("a".into())),
            ("A required a=;", JaasError::NoValue("a".into())),
            ("A required =secret;", JaasError::NoName),
        ] {
            assert_eq!(parse(config), Err(error.clone()), "{config}");
            assert!(!error.to_string().contains("secret"));
        }
        let shown = format!("{:?}", parse("A required password=secret;").unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
