//! One libFuzzer binary for all targets; the environment variable `FUZZ_TARGET` names the one to run.
#![no_main]

use std::sync::LazyLock;

use fletchlog_sim::fuzz::{TARGETS, Target};
use libfuzzer_sys::fuzz_target;

static TARGET: LazyLock<&'static Target> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let names = TARGETS.each_ref().map(|target| target.name).join(", ");
    let known = TARGETS.iter().find(|target| target.name == name);
    known.unwrap_or_else(|| panic!("FUZZ_TARGET={name:?} is no target; choose one of: {names}"))
});

fuzz_target!(|data: &[u8]| (TARGET.run)(data));
