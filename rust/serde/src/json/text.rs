//! JSON's tokens (RFC 8259), read one after the other from the bytes of a value.
//!
//! A fault here has no text: the bytes are then looked at again by a parser that says what is wrong ([`super::check`]).

use std::borrow::Cow;

/// The bytes are not JSON, or nested too deep.
#[derive(Debug)]
pub(crate) struct NotJson;

/// Arrays and objects within each other. What is deeper is refused: each level takes stack.
pub(crate) const MAX_DEPTH: usize = 127;

/// What a value is, by its first byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Null,
    Boolean,
    Number,
    String,
    Array,
    Object,
}

impl Kind {
    /// With an article, for errors.
    pub(crate) const fn described(self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean => "a boolean",
            Self::Number => "a number",
            Self::String => "a string",
            Self::Array => "an array",
            Self::Object => "an object",
        }
    }
}

/// A number as it is written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Number<'a> {
    pub(crate) text: &'a str,
    /// Neither a point nor an exponent.
    pub(crate) is_whole: bool,
}

/// The rest of a value.
pub(crate) struct Text<'a> {
    text: &'a str,
    at: usize,
    depth: usize,
    /// See [`super::read::JsonReader::refusing_other_fields`].
    pub(crate) refuses_other_fields: bool,
}

impl<'a> Text<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self, NotJson> {
        let text = std::str::from_utf8(bytes).map_err(|_| NotJson)?;
        Ok(Self {
            text,
            at: 0,
            depth: 0,
            refuses_other_fields: false,
        })
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while matches!(self.byte(), Some(b' ' | b'\n' | b'\r' | b'\t')) {
            self.at += 1;
        }
    }

    /// What comes next.
    pub(crate) fn kind(&mut self) -> Result<Kind, NotJson> {
        self.skip_blanks();
        match self.byte() {
            Some(b'"') => Ok(Kind::String),
            Some(b'{') => Ok(Kind::Object),
            Some(b'[') => Ok(Kind::Array),
            Some(b'-' | b'0'..=b'9') => Ok(Kind::Number),
            Some(b't' | b'f') => Ok(Kind::Boolean),
            Some(b'n') => Ok(Kind::Null),
            _ => Err(NotJson),
        }
    }

    /// Nothing but blanks may be left.
    pub(crate) fn end(&mut self) -> Result<(), NotJson> {
        self.skip_blanks();
        if self.at == self.text.len() {
            Ok(())
        } else {
            Err(NotJson)
        }
    }

    fn word(&mut self, word: &str) -> Result<(), NotJson> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            return Ok(());
        }
        Err(NotJson)
    }

    pub(crate) fn null(&mut self) -> Result<(), NotJson> {
        self.word("null")
    }

    pub(crate) fn boolean(&mut self) -> Result<bool, NotJson> {
        let is_true = self.byte() == Some(b't');
        self.word(if is_true { "true" } else { "false" })?;
        Ok(is_true)
    }

    pub(crate) fn number(&mut self) -> Result<Number<'a>, NotJson> {
        let begin = self.at;
        let mut is_whole = true;
        if self.byte() == Some(b'-') {
            self.at += 1;
        }
        match self.byte() {
            Some(b'0') => self.at += 1,
            _ => self.digits()?,
        }
        if self.byte() == Some(b'.') {
            is_whole = false;
            self.at += 1;
            self.digits()?;
        }
        let has_exponent = matches!(self.byte(), Some(b'e' | b'E'));
        if has_exponent {
            is_whole = false;
            self.at += 1;
            if matches!(self.byte(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        let text = &self.text[begin..self.at];
        // what a double cannot hold is no number to most readers
        if (has_exponent || text.len() > 300) && !text.parse::<f64>().is_ok_and(f64::is_finite) {
            return Err(NotJson);
        }
        Ok(Number { text, is_whole })
    }

    fn digits(&mut self) -> Result<(), NotJson> {
        let begin = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        if self.at > begin { Ok(()) } else { Err(NotJson) }
    }

    /// A string without its quotes, escapes replaced.
    pub(crate) fn string(&mut self) -> Result<Cow<'a, str>, NotJson> {
        self.at += 1;
        let begin = self.at;
        self.at = plain_until(self.text.as_bytes(), self.at);
        if self.byte() == Some(b'"') {
            let text = &self.text[begin..self.at];
            self.at += 1;
            return Ok(Cow::Borrowed(text));
        }
        let mut made = String::new();
        let mut from = begin;
        loop {
            made.push_str(&self.text[from..self.at]);
            match self.byte() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(made));
                }
                Some(b'\\') => made.push(self.escape()?),
                _ => return Err(NotJson),
            }
            from = self.at;
            self.at = plain_until(self.text.as_bytes(), self.at);
        }
    }

    fn escape(&mut self) -> Result<char, NotJson> {
        self.at += 1;
        let letter = self.byte().ok_or(NotJson)?;
        self.at += 1;
        Ok(match letter {
            b'"' | b'\\' | b'/' => char::from(letter),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let first = self.unit()?;
                let is_first_half = (0xD800..0xDC00).contains(&first);
                if is_first_half {
                    self.word("\\u")?;
                    let second = self.unit()?;
                    let low = second.checked_sub(0xDC00).filter(|low| *low < 0x400).ok_or(NotJson)?;
                    char::from_u32(0x10000 + ((first - 0xD800) << 10) + low).ok_or(NotJson)?
                } else {
                    char::from_u32(first).ok_or(NotJson)?
                }
            }
            _ => return Err(NotJson),
        })
    }

    fn unit(&mut self) -> Result<u32, NotJson> {
        let digits = self.text.as_bytes().get(self.at..self.at + 4).ok_or(NotJson)?;
        self.at += 4;
        digits.iter().try_fold(0, |unit, digit| {
            let digit = char::from(*digit).to_digit(16).ok_or(NotJson)?;
            Ok(unit << 4 | digit)
        })
    }

    /// Enters an array or object.
    pub(crate) fn open(&mut self) -> Result<(), NotJson> {
        self.at += 1;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(NotJson) } else { Ok(()) }
    }

    /// Whether another item or member follows; else the array or object has ended. `is_first`: none was read yet.
    pub(crate) fn more(&mut self, is_first: bool, close: u8) -> Result<bool, NotJson> {
        self.skip_blanks();
        match self.byte() {
            Some(byte) if byte == close => {
                self.at += 1;
                self.depth -= 1;
                Ok(false)
            }
            Some(b',') if !is_first => {
                self.at += 1;
                Ok(true)
            }
            Some(_) if is_first => Ok(true),
            _ => Err(NotJson),
        }
    }

    /// The name of a member, up to its value.
    pub(crate) fn name(&mut self) -> Result<Cow<'a, str>, NotJson> {
        self.skip_blanks();
        if self.byte() != Some(b'"') {
            return Err(NotJson);
        }
        let name = self.string()?;
        self.skip_blanks();
        if self.byte() != Some(b':') {
            return Err(NotJson);
        }
        self.at += 1;
        Ok(name)
    }

    /// Passes a value, which must be JSON.
    pub(crate) fn skip(&mut self) -> Result<(), NotJson> {
        match self.kind()? {
            Kind::Null => self.null(),
            Kind::Boolean => self.boolean().map(drop),
            Kind::Number => self.number().map(drop),
            Kind::String => self.string().map(drop),
            Kind::Array => {
                self.open()?;
                let mut is_first = true;
                while self.more(is_first, b']')? {
                    self.skip()?;
                    is_first = false;
                }
                Ok(())
            }
            Kind::Object => {
                self.open()?;
                let mut is_first = true;
                while self.more(is_first, b'}')? {
                    self.name()?;
                    self.skip()?;
                    is_first = false;
                }
                Ok(())
            }
        }
    }
}

/// The first quote, backslash or control character from `at` on; the end if there is none.
fn plain_until(bytes: &[u8], mut at: usize) -> usize {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const HIGH: u64 = ONES << 7;
    // a byte of zero in `word` sets the high bit of its byte, and maybe of those above it: the bytes are looked at again
    let has_zero = |word: u64| word.wrapping_sub(ONES) & !word & HIGH;
    while let Some(eight) = bytes.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        let word = u64::from_ne_bytes(*eight);
        let is_control = word.wrapping_sub(ONES * 0x20) & !word & HIGH;
        if has_zero(word ^ (ONES * u64::from(b'"'))) | has_zero(word ^ (ONES * u64::from(b'\\'))) | is_control != 0 {
            break;
        }
        at += 8;
    }
    while bytes
        .get(at)
        .is_some_and(|byte| !matches!(byte, b'"' | b'\\' | 0..0x20))
    {
        at += 1;
    }
    at
}
