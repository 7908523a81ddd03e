//! Which regular expressions the crate `regex` reads as RE2J does, Kafka's library (version 1.8, as in 4.4.0). All others are invalid here:
//!
//! | form | RE2J | the crate |
//! |---|---|---|
//! | `[` in a class, and `&&`, `--`, `~~` there | mean themselves, or a range | a class in a class, operations on classes |
//! | `{,n}`, a `{` that begins no repetition | mean themselves | `{0,n}`, invalid |
//! | `\<`, `\>`, `\b{start}` and the like | `<`, `>`, a repetition | begin and end of a word |
//! | `\Q..\E`, octal numbers, `\p{^L}`, a backslash before what is not ASCII | known | unknown |
//! | a repetition of a repetition (`a**`), more than 1000 times | invalid | known |
//! | `\p{..}` | general categories by one or two letters, `Any`, scripts of [`SCRIPTS`], exactly as written | any property, in any spelling |
//! | `\u0061`, the flags x, u, R, names of groups beyond `[A-Za-z0-9_]` | invalid | known |
//!
//! In the rest they differ only where a text is not ASCII, or has more than a line: names of topics are ASCII.

use regex_syntax::ast::{
    AssertionKind, Ast, ClassBracketed, ClassSetBinaryOp, ClassSetItem, ClassUnicode, ClassUnicodeKind, Flag, Flags,
    FlagsItemKind, Group, GroupKind, HexLiteralKind, Literal, LiteralKind, Repetition, RepetitionKind, RepetitionRange,
    Span, Visitor, parse::Parser, visit,
};

/// Kafka's `Parser` of RE2J refuses more repetitions.
const MOST_REPETITIONS: u32 = 1000;

/// General categories: RE2J's `UnicodeTables.CATEGORIES`.
const CATEGORIES: &str =
    "C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp Zs";

/// RE2J's `UnicodeTables.SCRIPTS`.
const SCRIPTS: &str = "Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid \
    Canadian_Aboriginal Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret Devanagari \
    Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han Hangul Hanunoo Hebrew Hiragana \
    Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li \
    Kharoshthi Khmer Lao Latin Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar \
    New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya Phags_Pa Phoenician \
    Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri Syriac Tagalog Tagbanwa Tai_Le Tai_Tham \
    Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh Ugaritic Unknown Vai Yi";

/// The first form of an expression that RE2J reads otherwise, or not at all. `None` too if the crate cannot read the expression: it says
/// so when it compiles it.
pub(super) fn other_form(text: &str) -> Option<&str> {
    let parsed = Parser::new().parse(text).ok()?;
    let found = visit(&parsed, OtherForms { text }).err()?;
    text.get(found.start.offset..found.end.offset)
}

/// Ends with the place of the first one.
struct OtherForms<'a> {
    text: &'a str,
}

impl Visitor for OtherForms<'_> {
    type Output = ();
    type Err = Span;

    fn finish(self) -> Result<(), Span> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), Span> {
        match ast {
            Ast::Assertion(assertion) => refuse_if(!is_assertion(&assertion.kind), &assertion.span),
            Ast::Flags(set) => refuse_if(!are_flags(&set.flags), &set.span),
            Ast::Group(group) => refuse_if(!is_group(group), &group.span),
            Ast::Literal(literal) => refuse_if(!is_literal(literal), &literal.span),
            Ast::ClassUnicode(class) => refuse_if(!is_class(class), &class.span),
            Ast::ClassBracketed(class) => refuse_if(self.begins_with_dashes(class), &class.span),
            Ast::Repetition(repetition) => refuse_if(!self.is_repetition(repetition), &repetition.op.span),
            _ => Ok(()),
        }
    }

    fn visit_class_set_item_pre(&mut self, item: &ClassSetItem) -> Result<(), Span> {
        match item {
            ClassSetItem::Bracketed(class) => Err(class.span),
            ClassSetItem::Literal(literal) => refuse_if(!is_literal(literal), &literal.span),
            ClassSetItem::Range(range) => {
                refuse_if(!is_literal(&range.start), &range.start.span)?;
                refuse_if(!is_literal(&range.end), &range.end.span)
            }
            ClassSetItem::Unicode(class) => refuse_if(!is_class(class), &class.span),
            _ => Ok(()),
        }
    }

    fn visit_class_set_binary_op_pre(&mut self, operation: &ClassSetBinaryOp) -> Result<(), Span> {
        Err(operation.span)
    }
}

impl OtherForms<'_> {
    /// `[--a]`: dashes to the crate, a range to RE2J.
    fn begins_with_dashes(&self, class: &ClassBracketed) -> bool {
        let written = self.text.get(class.span.start.offset + 1..).unwrap_or_default();
        written.strip_prefix('^').unwrap_or(written).starts_with("--")
    }

    fn is_repetition(&self, repetition: &Repetition) -> bool {
        let most = match &repetition.op.kind {
            RepetitionKind::Range(RepetitionRange::Exactly(n) | RepetitionRange::AtLeast(n)) => *n,
            RepetitionKind::Range(RepetitionRange::Bounded(_, n)) => *n,
            _ => 0,
        };
        let written = self.text.get(repetition.op.span.start.offset..).unwrap_or_default();
        most <= MOST_REPETITIONS && !written.starts_with("{,") && !matches!(*repetition.ast, Ast::Repetition(_))
    }
}

fn refuse_if(is_other: bool, span: &Span) -> Result<(), Span> {
    if is_other { Err(*span) } else { Ok(()) }
}

fn is_assertion(kind: &AssertionKind) -> bool {
    use AssertionKind::{EndLine, EndText, NotWordBoundary, StartLine, StartText, WordBoundary};
    matches!(
        kind,
        StartLine | EndLine | StartText | EndText | WordBoundary | NotWordBoundary
    )
}

fn are_flags(flags: &Flags) -> bool {
    use Flag::{CaseInsensitive, DotMatchesNewLine, MultiLine, SwapGreed};
    let is_known = |kind: &FlagsItemKind| match kind {
        FlagsItemKind::Negation => true,
        FlagsItemKind::Flag(flag) => matches!(flag, CaseInsensitive | MultiLine | DotMatchesNewLine | SwapGreed),
    };
    flags.items.iter().all(|item| is_known(&item.kind))
}

fn is_group(group: &Group) -> bool {
    match &group.kind {
        GroupKind::CaptureIndex(_) => true,
        GroupKind::CaptureName { name, .. } => name.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
        GroupKind::NonCapturing(flags) => are_flags(flags),
    }
}

fn is_literal(literal: &Literal) -> bool {
    match &literal.kind {
        LiteralKind::HexFixed(kind) | LiteralKind::HexBrace(kind) => *kind == HexLiteralKind::X,
        _ => true,
    }
}

fn is_class(class: &ClassUnicode) -> bool {
    let is_in = |names: &str, name: &str| names.split_ascii_whitespace().any(|known| known == name);
    match &class.kind {
        ClassUnicodeKind::OneLetter(letter) => is_in(CATEGORIES, letter.encode_utf8(&mut [0; 4])),
        ClassUnicodeKind::Named(name) => name == "Any" || is_in(CATEGORIES, name) || is_in(SCRIPTS, name),
        ClassUnicodeKind::NamedValue { .. } => false,
    }
}
