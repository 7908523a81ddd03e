//! Patterns for the names of topics, in Java's syntax: of `subscribe(pattern)`, and of Spark's `subscribePattern`. A pattern is
//! read as Java reads it, and written in the syntax of the regex library. Topic names are ASCII without line breaks, so Java's
//! predefined classes become their ASCII characters. Java: `java.util.regex.Pattern`, `Matcher#matches` and `#find`.
//!
//! | Java | here |
//! |---|---|
//! | `\p{Lower}`, `\p{Alnum}`, .. (POSIX), `\p{javaLowerCase}`, .., `\h`, `\v` | classes of characters |
//! | `\p{IsAlphabetic}`, `\p{IsLatin}` | `\p{Alphabetic}`, `\p{Latin}` |
//! | `\Q..\E`, `\0n`, `\xhh`, `\uhhhh`, `\cX` | the characters |
//! | `\Z`, `\G` | `\z`, `\A` |
//! | possessive quantifiers | `(?>..)` |
//! | the flag `x` | white space and comments are left out |
//! | the flags `d`, `u`, `U` | left out: they make no difference for ASCII |
//!
//! `\X`, `\N{..}`, `\b{g}`, blocks (`\p{InGreek}`), a quantifier behind an anchor or another quantifier are refused.

use fancy_regex::{Regex, RegexBuilder, escape};

use crate::ClientError;

/// Limit of backtracking steps of a match: about a tenth of a second. A pattern such as `(a|aa)+\1-` would take far too
/// long.
const BACKTRACK_LIMIT: usize = 1_000_000;

/// A compiled topic pattern.
#[derive(Debug, Clone)]
pub struct TopicPattern {
    text: String,
    regex: Regex,
}

impl TopicPattern {
    /// A pattern that matches whole names.
    ///
    /// # Errors
    /// `IllegalArgument`: it is not a pattern, or has Java syntax that is not supported.
    pub fn new(pattern: &str) -> Result<Self, ClientError> {
        Self::compiled(pattern, |translated| format!(r"\A(?:{translated})\z"))
    }

    /// A pattern that matches names in which it is found.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn found_anywhere(pattern: &str) -> Result<Self, ClientError> {
        Self::compiled(pattern, |translated| translated)
    }

    fn compiled(pattern: &str, around: impl Fn(String) -> String) -> Result<Self, ClientError> {
        let refused = |why: &dyn std::fmt::Display| {
            ClientError::IllegalArgument(format!("the topic pattern {pattern:?} cannot be used: {why}"))
        };
        let mut translation = Translation::new(pattern);
        if let Err(why) = translation.whole() {
            let at = pattern.len() - translation.rest.len();
            let at = pattern.get(..at).unwrap_or(pattern).chars().count();
            return Err(refused(&format!("{why}, at character {}", at.max(1))));
        }
        let regex = RegexBuilder::new(&around(translation.out))
            .backtrack_limit(BACKTRACK_LIMIT)
            .build();
        Ok(Self {
            text: pattern.to_owned(),
            regex: regex.map_err(|error| refused(&error))?,
        })
    }

    /// The pattern as it was given.
    pub fn pattern(&self) -> &str {
        &self.text
    }

    /// Whether the name matches.
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

/// What is known of an open group, or of the whole pattern.
#[derive(Debug, Clone, Copy, Default)]
struct Group {
    /// Where its text begins in `out`.
    start: usize,
    /// The flag x (comments), as it is set here.
    has_comments: bool,
    /// It is, or is in, a look-behind, whose length must have a limit.
    is_look_behind: bool,
}

/// An element of a class of characters.
enum Item {
    Character(char),
    /// A class, in the library's syntax.
    Class(String),
}

/// One pass that rewrites a pattern from Java's syntax to the library's.
struct Translation<'a> {
    rest: &'a str,
    out: String,
    /// The groups around the one that is open.
    outside: Vec<Group>,
    open: Group,
    /// Where the element begins in `out` that a quantifier would repeat. None: there is none.
    element: Option<usize>,
    /// Number of groups that capture, up to here.
    captures: usize,
    names: Vec<&'a str>,
}

impl<'a> Translation<'a> {
    fn new(pattern: &'a str) -> Self {
        Self {
            rest: pattern,
            out: String::with_capacity(pattern.len()),
            outside: Vec::new(),
            open: Group::default(),
            element: None,
            captures: 0,
            names: Vec::new(),
        }
    }

    fn take(&mut self) -> Option<char> {
        let mut chars = self.rest.chars();
        let next = chars.next();
        self.rest = chars.as_str();
        next
    }

    /// Skips this text, if it is next.
    fn skips(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    /// Takes and returns the text before `end`, and skips `end`; None, and nothing taken: there is no `end`.
    fn take_until(&mut self, end: &str) -> Option<&'a str> {
        let (taken, rest) = self.rest.split_once(end)?;
        self.rest = rest;
        Some(taken)
    }

    /// Takes `count` characters if there are so many and all of them are digits of this radix.
    fn take_digits(&mut self, count: usize, radix: u32) -> Option<&'a str> {
        let (digits, rest) = self.rest.split_at_checked(count)?;
        if !digits.chars().all(|c| c.is_digit(radix)) {
            return None;
        }
        self.rest = rest;
        Some(digits)
    }

    /// Adds an element that a quantifier may repeat.
    fn add(&mut self, element: &str) {
        self.element = Some(self.out.len());
        self.out.push_str(element);
    }

    /// Adds what cannot be repeated.
    fn add_between(&mut self, text: &str) {
        self.element = None;
        self.out.push_str(text);
    }

    fn whole(&mut self) -> Result<(), String> {
        while let Some(next) = self.take() {
            match next {
                '\\' => self.escape()?,
                '[' => {
                    let class = self.class()?;
                    self.add(&class);
                }
                '(' => self.group()?,
                ')' => {
                    let outside = self.outside.pop();
                    self.out.push(')');
                    self.element = Some(self.open.start);
                    self.open = outside.ok_or("a parenthesis is closed that was not opened")?;
                }
                '*' | '+' | '?' | '{' => self.quantifier(next)?,
                '|' => self.add_between("|"),
                '^' => self.add_between(r"\A"),
                '$' => self.add_between(r"\z"),
                '.' => self.add("."),
                '#' if self.open.has_comments => {
                    self.rest = self.rest.split_once('\n').map_or("", |(_, rest)| rest);
                }
                _ if self.open.has_comments && is_blank(next) => (),
                other => self.add(&literal(other)),
            }
        }
        if !self.outside.is_empty() {
            return Err("a parenthesis is not closed".to_owned());
        }
        Ok(())
    }

    fn quantifier(&mut self, first: char) -> Result<(), String> {
        let element = self
            .element
            .take()
            .ok_or_else(|| format!("there is nothing to repeat before {first}"))?;
        let times = match first {
            '{' => {
                let refused = r"{ begins no number of repetitions; write \{ for the character";
                let times = self.take_until("}").ok_or(refused)?;
                let (least, most) = times.split_once(',').unwrap_or((times, "0"));
                let is_number = |text: &str| text.chars().all(|c| c.is_ascii_digit());
                if least.is_empty() || !is_number(least) || !is_number(most) {
                    return Err(refused.to_owned());
                }
                format!("{{{times}}}")
            }
            _ => first.to_string(),
        };
        if self.open.is_look_behind && (matches!(first, '*' | '+') || times.ends_with(",}")) {
            return Err("the length of a look-behind has no obvious maximum".to_owned());
        }
        self.out.push_str(&times);
        if self.skips("?") {
            self.out.push('?');
        } else if self.skips("+") {
            self.out.insert_str(element, "(?>");
            self.out.push(')');
        }
        Ok(())
    }

    /// Translates what follows `(`.
    fn group(&mut self) -> Result<(), String> {
        let inner = Group {
            start: self.out.len(),
            ..self.open
        };
        let Some(kind) = self.rest.strip_prefix('?') else {
            self.captures += 1;
            self.begin(inner, "(");
            return Ok(());
        };
        for opening in ["?=", "?!", "?>", "?:", "?<=", "?<!"] {
            if self.skips(opening) {
                let is_look_behind = inner.is_look_behind || opening.starts_with("?<");
                self.begin(
                    Group {
                        is_look_behind,
                        ..inner
                    },
                    &format!("({opening}"),
                );
                return Ok(());
            }
        }
        if self.skips("?<") {
            let name = self.name("a group's name has letters and digits, begins with a letter and ends with >")?;
            if self.names.contains(&name) {
                return Err(format!("there is a group {name} already"));
            }
            self.names.push(name);
            self.captures += 1;
            self.begin(inner, &format!("(?<{name}>"));
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
        let has_comments = (self.open.has_comments || on.contains('x')) && !off.contains('x');
        // The others make no difference in a name, or are translated.
        let (on, off) = (on.contains('i'), off.contains('i'));
        let kept = if off {
            "-i"
        } else if on {
            "i"
        } else {
            ""
        };
        if end == ":" {
            self.begin(Group { has_comments, ..inner }, &format!("(?{kept}:"));
            return Ok(());
        }
        self.open.has_comments = has_comments; // The flags apply to the end of the enclosing group.
        self.add_between(&if kept.is_empty() {
            String::new()
        } else {
            format!("(?{kept})")
        });
        Ok(())
    }

    fn begin(&mut self, inner: Group, opening: &str) {
        self.outside.push(self.open);
        self.open = inner;
        self.add_between(opening);
    }

    /// Takes the name of a group and the `>` behind it.
    fn name(&mut self, otherwise: &str) -> Result<&'a str, String> {
        let name = self.take_until(">").unwrap_or_default();
        let is_name =
            name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(|c| c.is_ascii_alphanumeric());
        if is_name { Ok(name) } else { Err(otherwise.to_owned()) }
    }

    /// Translates what follows `\`, outside of a class.
    fn escape(&mut self) -> Result<(), String> {
        match self.rest.chars().next() {
            Some('Q') => {
                self.take();
                for character in self.quotation().chars() {
                    self.add(&literal(character));
                }
            }
            Some('b') if self.rest.starts_with("b{") => return Err(r"\b{g} is not supported".to_owned()),
            Some(anchor @ ('b' | 'B' | 'A' | 'z' | 'Z' | 'G')) => {
                self.take();
                self.add_between(match anchor {
                    'b' => r"\b",
                    'B' => r"\B",
                    'A' | 'G' => r"\A",
                    _ => r"\z",
                });
            }
            Some('R') => {
                self.take();
                self.add(r"(?>\r\n|[\n-\r])");
            }
            Some('k') => {
                self.take();
                let known = self.skips("<").then(|| self.name("")).and_then(Result::ok);
                let known = known.filter(|name| self.names.contains(name));
                let name = known.ok_or(r"\k names no group before it")?;
                self.reference(&format!(r"\k<{name}>"))?;
            }
            Some('1'..='9') => {
                let number = self.number_of_group()?;
                self.reference(&format!(r"\{number}"))?;
            }
            _ => {
                let item = self.escaped_item()?;
                self.add(&match item {
                    Item::Character(character) => literal(character),
                    Item::Class(class) => class,
                });
            }
        }
        Ok(())
    }

    /// A text that is taken as it is, up to its end mark or the end of the pattern.
    fn quotation(&mut self) -> &'a str {
        let all = self.rest;
        self.take_until(r"\E").unwrap_or_else(|| {
            self.rest = "";
            all
        })
    }

    fn reference(&mut self, reference: &str) -> Result<(), String> {
        if self.open.is_look_behind {
            return Err("the length of a look-behind has no obvious maximum".to_owned());
        }
        self.add(&format!("(?:{reference})"));
        Ok(())
    }

    /// As many digits as there are groups for; one at least.
    fn number_of_group(&mut self) -> Result<usize, String> {
        let mut number = 0;
        while let Some(digit) = self.rest.chars().next().and_then(|c| c.to_digit(10)) {
            let longer = number * 10 + digit as usize;
            if number > 0 && longer > self.captures {
                break;
            }
            number = longer;
            self.take();
        }
        if number > self.captures {
            return Err(format!(r"there is no group {number} before \{number}"));
        }
        Ok(number)
    }

    /// Takes what follows `\`, in a class or outside: one character, or a class of them.
    fn escaped_item(&mut self) -> Result<Item, String> {
        let next = self.take().ok_or(r"the pattern ends with a single \")?;
        let class = |characters: &str, is_negated: bool| {
            let not = if is_negated { "^" } else { "" };
            Ok(Item::Class(format!("[{not}{characters}]")))
        };
        Ok(Item::Character(match next {
            'p' | 'P' => return self.property(next == 'P').map(Item::Class),
            'd' | 'D' => return class("0-9", next == 'D'),
            'w' | 'W' => return class("a-zA-Z0-9_", next == 'W'),
            's' | 'S' => return class(SPACE, next == 'S'),
            'h' | 'H' => return class(r"\x20\t", next == 'H'),
            'v' | 'V' => return class(r"\n\x0b\x0c\r", next == 'V'),
            't' => '\t',
            'n' => '\n',
            'r' => '\r',
            'f' => '\x0c',
            'a' => '\x07',
            'e' => '\x1b',
            '0' => {
                let most = if self.rest.starts_with(['0', '1', '2', '3']) {
                    3
                } else {
                    2
                };
                let digits = (1..=most).rev().find_map(|count| self.take_digits(count, 8));
                of_number(digits.ok_or(r"\0 needs octal digits")?, 8)?
            }
            'x' if self.skips("{") => of_number(self.take_until("}").unwrap_or_default(), 16)?,
            'x' => of_number(self.take_digits(2, 16).unwrap_or_default(), 16)?,
            'u' => of_number(self.take_digits(4, 16).unwrap_or_default(), 16)?,
            'c' => {
                let control = self.take().filter(char::is_ascii).ok_or(r"\c needs a character")?;
                char::from(control as u8 ^ 64)
            }
            _ if next.is_ascii_alphanumeric() => return Err(format!(r"\{next} is not supported")),
            other => other,
        }))
    }

    /// Translates what follows `\p` or `\P`.
    fn property(&mut self, is_negated: bool) -> Result<String, String> {
        let name = if self.skips("{") {
            self.take_until("}").ok_or(r"\p{ is not closed")?.to_owned()
        } else {
            self.take().map(String::from).unwrap_or_default()
        };
        if let Some(characters) = ascii_class(&name) {
            let not = if is_negated { "^" } else { "" };
            return Ok(format!("[{not}{characters}]"));
        }
        if name.starts_with("In") || name.starts_with("block=") || name.starts_with("blk=") {
            return Err(format!(r"\p{{{name}}}: blocks of Unicode are not supported"));
        }
        let of_unicode = name.strip_prefix("Is");
        let is_category = name.len() <= 2 && name.starts_with(|c: char| c.is_ascii_uppercase());
        let has_kind = ["gc=", "general_category=", "sc=", "script="];
        if of_unicode.is_none() && !is_category && !has_kind.iter().any(|kind| name.starts_with(kind)) {
            return Err(format!(
                "the property {name} is not known; there are Lower, Alpha, Alnum, .. (POSIX), javaLowerCase, .., Unicode's \
                 categories (L, Lu, Nd, ..) and IsLatin, IsAlphabetic, .."
            ));
        }
        let name = of_unicode.unwrap_or(&name);
        Ok(format!(r"\{}{{{name}}}", if is_negated { 'P' } else { 'p' }))
    }

    /// Translates what follows `[`, with its `]`. `&&` binds less than the union of what stands between, and `^` is for all.
    fn class(&mut self) -> Result<String, String> {
        let mut out = String::from(if self.skips("^") { "[^" } else { "[" });
        // Of the operand since the last `&&`.
        let (mut is_empty, mut begins_with_class, mut has_more) = (true, false, false);
        let mut operands = 1;
        loop {
            let empty = "&& needs characters on both sides";
            if self.skips("&&") {
                if is_empty || self.rest.starts_with([']', '&']) {
                    return Err(empty.to_owned());
                }
                if operands > 1 && begins_with_class && has_more {
                    // Java unites the class with the intersection of the rest.
                    return Err("put brackets around all that stands between two &&".to_owned());
                }
                (is_empty, begins_with_class, has_more) = (true, false, false);
                operands += 1;
                out.push_str("&&");
            } else if self.rest.starts_with(']') && (!is_empty || operands > 1) {
                self.take();
                if is_empty {
                    return Err(empty.to_owned());
                }
                out.push(']');
                return Ok(out);
            } else if self.open.has_comments && self.rest.starts_with(is_blank) {
                self.take();
            } else {
                let is_class = self.rest.starts_with('[');
                has_more |= !is_empty && !is_class;
                begins_with_class |= is_empty && is_class;
                let item = self.class_item()?;
                is_empty &= item.is_empty();
                out.push_str(&item);
            }
        }
    }

    /// A character, a range, a quotation or a class, in the library's syntax.
    fn class_item(&mut self) -> Result<String, String> {
        if self.skips("[") {
            return self.class();
        }
        if self.skips(r"\Q") {
            return Ok(self.quotation().chars().map(literal).collect());
        }
        let first = match self.class_character()? {
            Item::Class(class) => return Ok(class),
            Item::Character(character) => character,
        };
        let mut behind = self.rest.chars();
        if behind.next() != Some('-') || matches!(behind.next(), None | Some(']' | '[')) {
            // The library would read `[:alpha:]` as a POSIX class, Java reads these characters.
            return Ok(if first == ':' { ":-:".to_owned() } else { literal(first) });
        }
        self.take();
        match self.class_character()? {
            Item::Character(last) if first <= last => Ok(format!("{}-{}", literal(first), literal(last))),
            _ => Err("a range ends with a class, or before its beginning".to_owned()),
        }
    }

    fn class_character(&mut self) -> Result<Item, String> {
        match self.take().ok_or("a class is not closed: [ without ]")? {
            '\\' if self.rest.starts_with('Q') => Err(r"a range ends with \Q; write the character with \".to_owned()),
            '\\' => self.escaped_item(),
            '#' if self.open.has_comments => Err(r"in a class under the flag x, write \# for the character".to_owned()),
            '&' if self.rest.starts_with('&') => Err("&& needs characters on both sides".to_owned()),
            other => Ok(Item::Character(other)),
        }
    }
}

const SPACE: &str = r"\x20\t\n\x0b\x0c\r";

/// What the flag x leaves out.
fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t'..='\r')
}

fn of_number(digits: &str, radix: u32) -> Result<char, String> {
    let code = u32::from_str_radix(digits, radix).ok();
    code.and_then(char::from_u32)
        .ok_or_else(|| "a character's number is malformed or too large".to_owned())
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
        "Space" | "javaWhitespace" => SPACE,
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
