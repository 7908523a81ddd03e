//! Which fields of nested types become columns.

use std::collections::BTreeMap;

/// All of a type, or some of its fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keep {
    /// Whether everything below is kept.
    all: bool,
    fields: BTreeMap<String, Self>,
}

/// Everything.
pub(crate) static ALL: Keep = Keep {
    all: true,
    fields: BTreeMap::new(),
};

impl Keep {
    /// These fields, each the names on the way to it, and all that is below them.
    pub(crate) fn of(paths: &[Vec<String>]) -> Self {
        let mut kept = Self::default();
        for path in paths {
            let mut at = &mut kept;
            for name in path {
                at = at.fields.entry(name.clone()).or_default();
            }
            at.all = true;
        }
        kept
    }

    /// Whether everything is kept.
    pub(crate) const fn is_all(&self) -> bool {
        self.all
    }

    /// What is kept of a field; `None`: nothing.
    pub(crate) fn field(&self, name: &str) -> Option<&Self> {
        if self.all {
            return Some(&ALL);
        }
        self.fields.get(name)
    }

    /// The first name that none of `names` is.
    pub(crate) fn unknown<'a>(&self, names: impl Iterator<Item = &'a str> + Clone) -> Option<&str> {
        let is_known = |name: &&String| names.clone().any(|known| known == name.as_str());
        if self.all {
            return None;
        }
        self.fields.keys().find(|name| !is_known(name)).map(String::as_str)
    }
}
