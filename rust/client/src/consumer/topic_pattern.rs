//! The pattern of subscribe(pattern), in Java's syntax. Where the syntax of the regex library differs, the pattern is
//! rewritten. Topic names are ASCII without line breaks, so Java's predefined classes become their ASCII characters.
//! Java: `java.util.regex.Pattern`, `Matcher#matches`.
//!
//! | Java | here |
//! |---|---|
//! | `\p{Lower}`, `\p{Alnum}`, .. (POSIX), `\p{javaLowerCase}`, .., `\h`, `\v` | classes of characters |
//! | `\p{IsAlphabetic}`, `\p{IsLatin}` | `\p{Alphabetic}`, `\p{Latin}` |
//! | `\Q..\E`, `\0n`, `\cX` | the characters |
//! | `\Z`, `\G` | `\z`, `\A` |
//! | the flags `d`, `u`, `U` | left out: they make no difference for ASCII |
//!
//! `\X`, `\N{..}` and blocks (`\p{InGreek}`) are refused.

use fancy_regex::{Regex, RegexBuilder, escape};

use crate::ClientError;

/// Limit of backtracking steps of a match: about a tenth of a second. A pattern such as `(a|aa)+\1-` would take far too
/// long.
const BACKTRACK_LIMIT: usize = 1_000_000;

/// A compiled topic pattern.
#[derive(Debug)]
pub struct TopicPattern {
    text: String,
    regex: Regex,
}

impl TopicPattern {
    /// # Errors
    /// `IllegalArgument`: it is not a pattern, or has Java syntax that is not supported.
    pub fn new(pattern: &str) -> Result<Self, ClientError> {
        let refused = |why: &dyn std::fmt::Display| {
            ClientError::IllegalArgument(format!("the topic pattern {pattern:?} cannot be used: {why}"))
        };
        let translated = Translation::new(pattern).whole().map_err(|why| refused(&why))?;
        let regex = RegexBuilder::new(&format!(r"\A(?:{translated})\z"))
            .backtrack_limit(BACKTRACK_LIMIT)
            .build();
        Ok(Self {
            text: pattern.to_owned(),
            regex: regex.map_err(|error| refused(&error))?,
        })
    }

    /// Whether the whole name matches.
    ///
    /// # Errors
    /// `IllegalArgument`: the match takes too many steps.
    pub fn is_match(&self, topic: &str) -> Result<bool, ClientError> {
        self.regex.is_match(topic).map_err(|error| {
            ClientError::IllegalArgument(format!(
                "the topic pattern {:?} could not be compared with topic {topic}: {error}; use a simpler pattern",
                self.text
            ))
        })
    }
}

/// One pass that rewrites a pattern from Java's syntax to the library's.
struct Translation<'a> {
    rest: &'a str,
    out: String,
    /// The flag x (comments) at the beginning of each open group.
    groups: Vec<bool>,
    has_comments: bool,
    /// Number of open `[`.
    classes: usize,
}

impl<'a> Translation<'a> {
    fn new(pattern: &'a str) -> Self {
        Self {
            rest: pattern,
            out: String::with_capacity(pattern.len()),
            groups: Vec::new(),
            has_comments: false,
            classes: 0,
        }
    }

    fn take(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    /// Takes and returns the text before `end`, and skips `end`; takes all of the rest if it has no `end`.
    fn take_until(&mut self, end: &str) -> &'a str {
        let (taken, rest) = self.rest.split_once(end).unwrap_or((self.rest, ""));
        self.rest = rest;
        taken
    }

    fn whole(mut self) -> Result<String, String> {
        while let Some(next) = self.take() {
            match next {
                '\\' => self.escape()?,
                _ if self.classes > 0 => self.in_class(next),
                '[' => self.open_class(),
                '(' => self.group()?,
                ')' => {
                    let outside = self.groups.pop();
                    self.has_comments = outside.ok_or("a parenthesis is closed that was not opened")?;
                    self.out.push(')');
                }
                '#' if self.has_comments => {
                    self.take_until("\n");
                }
                other => self.out.push(other),
            }
        }
        Ok(self.out)
    }

    fn open_class(&mut self) {
        self.classes += 1;
        self.out.push('[');
        for first in ["^", "]"] {
            if let Some(rest) = self.rest.strip_prefix(first) {
                self.rest = rest;
                self.out.push_str(if first == "]" { r"\]" } else { first });
            }
        }
        // The library reads `[:alpha:]` as a POSIX class, Java as these characters.
        if self.rest.starts_with(':') && !self.rest.starts_with(":-") {
            self.out.push_str(":-");
        }
    }

    /// Escapes what has another meaning in the library's classes: the operators `--` and `~~`.
    fn in_class(&mut self, next: char) {
        match next {
            '[' => self.open_class(),
            ']' => {
                self.classes -= 1;
                self.out.push(']');
            }
            '-' if self.rest.starts_with('-') => {
                self.take();
                self.out.push_str(r"-\-");
            }
            '~' => self.out.push_str(r"\~"),
            other => self.out.push(other),
        }
    }

    /// Translates what follows `(`.
    fn group(&mut self) -> Result<(), String> {
        self.groups.push(self.has_comments);
        self.out.push('(');
        let Some(kind) = self.rest.strip_prefix('?') else {
            return match self.rest.starts_with('*') {
                true => Err("there is nothing to repeat before *".to_owned()),
                false => Ok(()),
            };
        };
        if kind.starts_with(['=', '!', '>', ':', '<']) {
            return Ok(());
        }
        let flags = kind.split([':', ')']).next().unwrap_or(kind);
        let end = kind
            .get(flags.len()..flags.len() + 1)
            .ok_or("a parenthesis is not closed")?;
        if let Some(unknown) = flags.chars().find(|c| !"idmsuxU-".contains(*c)) {
            return Err(format!(
                "(?{unknown} begins no group and is no flag; the flags are i, d, m, s, u, x and U"
            ));
        }
        self.rest = &kind[flags.len() + 1..];
        let (on, off) = flags.split_once('-').unwrap_or((flags, ""));
        self.has_comments = (self.has_comments || on.contains('x')) && !off.contains('x');
        let kept = |flags: &str| flags.replace(['d', 'u', 'U'], "");
        let (on, off) = (kept(on), kept(off));
        let off = if off.is_empty() { off } else { format!("-{off}") };
        if end == ":" {
            self.out.push_str(&format!("?{on}{off}:"));
            return Ok(());
        }
        self.groups.pop(); // The flags apply to the end of the enclosing group.
        self.out.pop();
        if !(on.is_empty() && off.is_empty()) {
            self.out.push_str(&format!("(?{on}{off})"));
        }
        Ok(())
    }

    /// Translates what follows `\`.
    fn escape(&mut self) -> Result<(), String> {
        let next = self.take().ok_or(r"the pattern ends with a single \")?;
        match next {
            'Q' => {
                let quoted = self.take_until(r"\E");
                for character in quoted.chars() {
                    self.out.push_str(&literal(character));
                }
            }
            'p' | 'P' => self.property(next == 'P')?,
            'h' | 'H' => self.class(r"\x20\t", next == 'H'),
            'v' | 'V' => self.class(r"\n\x0b\x0c\r", next == 'V'),
            'Z' => self.out.push_str(r"\z"),
            'G' => self.out.push_str(r"\A"),
            '0' => {
                let digits = self.rest.len() - self.rest.trim_start_matches(|c: char| c.is_digit(8)).len();
                let most = if self.rest.starts_with(['0', '1', '2', '3']) {
                    3
                } else {
                    2
                };
                let (octal, rest) = self.rest.split_at(digits.min(most));
                let code = u32::from_str_radix(octal, 8).map_err(|_| r"\0 needs octal digits")?;
                self.rest = rest;
                self.out.push_str(&format!(r"\x{{{code:x}}}"));
            }
            'c' => {
                let control = self.take().filter(char::is_ascii).ok_or(r"\c needs a character")?;
                self.out.push_str(&format!(r"\x{{{:x}}}", u32::from(control) ^ 64));
            }
            '1'..='9' => self.out.extend(['\\', next]),
            _ if "dDsSwWbBAzkRnrtfaexu".contains(next) => self.out.extend(['\\', next]),
            _ if next.is_ascii_alphabetic() => return Err(format!(r"\{next} is not supported")),
            other => self.out.push_str(&literal(other)),
        }
        Ok(())
    }

    /// Translates what follows `\p` or `\P`.
    fn property(&mut self, is_negated: bool) -> Result<(), String> {
        let name = match self.rest.strip_prefix('{') {
            Some(rest) => {
                let (name, rest) = rest.split_once('}').ok_or(r"\p{ is not closed")?;
                self.rest = rest;
                name.to_owned()
            }
            None => self.take().map(String::from).unwrap_or_default(),
        };
        if let Some(characters) = ascii_class(&name) {
            self.class(characters, is_negated);
            return Ok(());
        }
        if name.starts_with("In") || name.starts_with("block=") || name.starts_with("blk=") {
            return Err(format!(r"\p{{{name}}}: blocks of Unicode are not supported"));
        }
        let name = name.strip_prefix("Is").unwrap_or(&name);
        self.out
            .push_str(&format!(r"\{}{{{name}}}", if is_negated { 'P' } else { 'p' }));
        Ok(())
    }

    fn class(&mut self, characters: &str, is_negated: bool) {
        let not = if is_negated { "^" } else { "" };
        self.out.push_str(&format!("[{not}{characters}]"));
    }
}

/// A literal character, valid also within a class and under the flag x.
fn literal(character: char) -> String {
    match character {
        'a'..='z' | 'A'..='Z' | '0'..='9' => character.to_string(),
        _ if character.is_ascii() => format!(r"\x{:02x}", u32::from(character)),
        _ => escape(&character.to_string()).into_owned(),
    }
}

/// Java's classes of ASCII characters. Java: `Pattern`, "POSIX character classes", "java.lang.Character classes".
fn ascii_class(name: &str) -> Option<&'static str> {
    Some(match name {
        "Lower" | "javaLowerCase" => "a-z",
        "Upper" | "javaUpperCase" => "A-Z",
        "ASCII" => r"\x00-\x7f",
        "Alpha" | "javaLetter" | "javaAlphabetic" => "a-zA-Z",
        "Digit" | "javaDigit" => "0-9",
        "Alnum" | "javaLetterOrDigit" => "a-zA-Z0-9",
        "Punct" => r"!-/:-@\[-`\{-\x7e",
        "Graph" => r"!-\x7e",
        "Print" => r"\x20-\x7e",
        "Blank" => r"\x20\t",
        "Cntrl" | "javaISOControl" => r"\x00-\x1f\x7f",
        "XDigit" => "0-9a-fA-F",
        "Space" | "javaWhitespace" => r"\x20\t\n\x0b\x0c\r",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, names: &[&str]) -> Vec<String> {
        let pattern = TopicPattern::new(pattern).unwrap();
        let matching = names.iter().filter(|name| pattern.is_match(name).unwrap());
        matching.map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn patterns_match_whole_names_as_java_does() {
        let names = [
            "orders",
            "ORDERS",
            "orders-dlq",
            "_internal",
            "a.b",
            "a1",
            "a\tb",
            "it's",
            "foofoo",
            "foobar",
            "~",
            "a:",
        ];
        for (pattern, expected) in [
            ("orders", &["orders"][..]),
            ("orders|orders-dlq", &["orders", "orders-dlq"]),
            ("(?i)orders", &["orders", "ORDERS"]),
            ("(?iu:Orders)", &["orders", "ORDERS"]),
            ("(?U)(?d)orders(?-i)", &["orders"]),
            ("^(?!_)o.*$", &["orders", "orders-dlq"]),
            ("(?!.*-dlq)orders.*", &["orders"]),
            (".*(?<=-dlq)", &["orders-dlq"]),
            (r"(\w{3})\1", &["foofoo"]),
            (r"(?<half>foo)\k<half>", &["foofoo"]),
            ("o++rders", &["orders"]),
            ("(?>orders|orders-dlq)", &["orders"]),
            (r"\p{Alpha}+", &["orders", "ORDERS", "foofoo", "foobar"]),
            (r"\p{Lower}\p{Digit}", &["a1"]),
            (r"\p{javaUpperCase}+", &["ORDERS"]),
            (r"[\p{Alnum}_&&[^o]]+", &["ORDERS", "_internal", "a1"]),
            (r"\P{Alnum}", &["~"]),
            (r"\p{Punct}", &["~"]),
            (r"\p{IsAlphabetic}\p{Nd}", &["a1"]),
            (r"\p{L}\p{IsN}", &["a1"]),
            (r"\p{IsLatin}{6}", &["orders", "ORDERS", "foofoo", "foobar"]),
            (r"\Qa.b\E", &["a.b"]),
            (r"\Qa.\Eb", &["a.b"]),
            (r"a\hb", &["a\tb"]),
            (r"a\Hb", &["a.b"]),
            (r"a\011b|a\cIb", &["a\tb"]),
            (r"a[.]b\Z", &["a.b"]),
            (r"\Ga[]1]", &["a1"]),
            ("[[:alpha:]]", &[]),
            ("a[[:alpha:]]", &["a:"]),
            ("[~~]", &["~"]),
            ("[a~]1|[+--]", &["a1"]),
            ("(?x) or ders # a comment", &["orders"]),
            ("((?x) or # )\n)ders", &["orders"]),
            (r"it\'s", &["it's"]),
            (r"\<?orders\>?", &["orders"]),
            ("", &[]),
        ] {
            assert_eq!(matches(pattern, &names), expected, "{pattern}");
        }
    }

    #[test]
    fn what_is_no_pattern_or_is_not_supported_is_refused_with_the_reason() {
        for (pattern, reason) in [
            ("a)(b", "closed that was not opened"),
            ("(a", "paren"),
            ("[a", "class"),
            ("*a", "repeat"),
            ("(*a)", "repeat"),
            ("a\\", "ends with"),
            (r"\p{InGreek}", "blocks"),
            (r"\p{Nothing}", "Nothing"),
            (r"\X", r"\X is not supported"),
            (r"\K", r"\K is not supported"),
            ("(?P<a>b)", "(?P"),
            ("(?", "not closed"),
            (r"\0", "octal"),
        ] {
            let error = TopicPattern::new(pattern).unwrap_err().to_string();
            assert!(
                error.contains("cannot be used") && error.contains(reason),
                "{pattern}: {error}"
            );
            assert!(!error.contains("not a regular expression"));
        }
    }

    #[test]
    fn a_pattern_that_takes_too_long_is_an_error() {
        let pattern = TopicPattern::new(r"(?:(a|aa)+)\1-").unwrap();
        let name = format!("{}-b", "a".repeat(100));
        let error = pattern.is_match(&name).unwrap_err().to_string();
        assert!(error.contains("simpler pattern"), "{error}");
        // Without syntax that has to step back, the time is linear.
        assert!(!TopicPattern::new("(a+)+b").unwrap().is_match(&"a".repeat(200)).unwrap());
    }
}
