//! Bugs planted on purpose, which `make mutants` switches on one after the other.

/// Whether this bug is switched on. Only the build of `make mutants` (`--cfg planted`) has the bugs: in every other build this is the
/// constant `false`, and what depends on it is left out. What has to find each bug is in rust/sim/mutants.toml.
#[macro_export]
macro_rules! planted {
    ($name:literal) => {
        $crate::planted::is($name)
    };
}

/// The value of [`planted!`](crate::planted!).
#[cfg(not(planted))]
#[doc(hidden)]
#[inline(always)]
pub const fn is(_: &str) -> bool {
    false
}

/// The value of [`planted!`](crate::planted!): the name of the bug is in the environment.
#[cfg(planted)]
#[doc(hidden)]
pub fn is(name: &str) -> bool {
    static ON: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
    ON.get_or_init(|| std::env::var("PLANTED").ok()).as_deref() == Some(name)
}
