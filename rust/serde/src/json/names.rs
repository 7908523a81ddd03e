//! Names of fields with the character NUL. Arrow's C interface ends a name there, so the types that cross it have an escape in its place.
//!
//! | in the type | in JSON |
//! |---|---|
//! | U+10FFFF `0` | U+0000 |
//! | U+10FFFF `1` | U+10FFFF |

const MARK: char = '\u{10FFFF}';

/// The name in JSON of a field that has this one in its type.
pub(super) fn in_json(name: &str) -> String {
    if !name.contains(MARK) {
        return name.to_owned();
    }
    name.replace("\u{10FFFF}0", "\0").replace("\u{10FFFF}1", "\u{10FFFF}")
}

/// The name in a type of a field that has this one in JSON.
pub(super) fn in_type(name: &str) -> String {
    if !name.contains([MARK, '\0']) {
        return name.to_owned();
    }
    name.replace(MARK, "\u{10FFFF}1").replace('\0', "\u{10FFFF}0")
}

#[cfg(test)]
mod tests {
    use super::{in_json, in_type};

    #[test]
    fn a_name_has_its_nul_again() {
        for (escaped, name) in [
            ("a", "a"),
            ("\u{10FFFF}0", "\0"),
            ("\u{10FFFF}10x", "\u{10FFFF}0x"),
            ("\u{10FFFF}1\u{10FFFF}0", "\u{10FFFF}\0"),
        ] {
            assert_eq!((in_json(escaped).as_str(), in_type(name).as_str()), (name, escaped));
        }
    }
}
