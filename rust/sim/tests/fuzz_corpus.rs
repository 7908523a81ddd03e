//! Every input of `fuzz/corpus` through its target (see `fletchlog_sim::fuzz`), as it is and damaged.

use std::fs;
use std::panic::catch_unwind;

use fletchlog_sim::fuzz::{TARGETS, corpus};

/// The committed inputs of all targets together: small enough for a repository.
const MOST_BYTES: usize = 1 << 20;

/// Runs `each` over every input, with the target's function; names the inputs that broke a promise.
fn over_the_corpus(each: impl Fn(fn(&[u8]), Vec<u8>) + std::panic::RefUnwindSafe) {
    let mut broken = Vec::new();
    let mut bytes = 0;
    for target in &TARGETS {
        let dir = corpus(target);
        let entries = fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
        let paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        assert!(paths.len() >= 4, "{}: {} inputs", target.name, paths.len());
        for path in paths {
            let input = fs::read(&path).unwrap();
            bytes += input.len();
            if catch_unwind(|| each(target.run, input)).is_err() {
                broken.push(path);
            }
        }
    }
    assert!(
        broken.is_empty(),
        "what was promised of these inputs does not hold, see above: {broken:#?}"
    );
    assert!(bytes <= MOST_BYTES, "the corpus has grown to {bytes} bytes");
}

#[test]
fn every_committed_input_keeps_the_promises_of_its_target() {
    over_the_corpus(|run, input| run(&input));
}

#[test]
fn inputs_cut_short_keep_the_promises_too() {
    over_the_corpus(|run, input| {
        for len in [0, 1, input.len() / 2, input.len().saturating_sub(1)] {
            run(&input[..len.min(input.len())]);
        }
    });
}

/// The first byte chooses what a target does with the rest.
#[test]
fn inputs_with_other_choices_keep_the_promises_too() {
    over_the_corpus(|run, mut input| {
        for choice in [0x00, 0x01, 0x7f, 0xff] {
            if let Some(first) = input.first_mut() {
                *first = choice;
            }
            run(&input);
        }
    });
}
