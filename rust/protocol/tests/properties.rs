//! Every message and value at every version: what is decoded comes back; whatever the bytes are, nothing panics and memory is bounded.

use bytes::Bytes;
use fletchlog_protocol::ApiKey;
use proptest::prelude::*;

use crate::counting::peak;
use crate::generated::{Body, Choices};
use crate::messages::{Kind, kinds, values};

/// All messages in all their versions.
pub fn all() -> impl Iterator<Item = (ApiKey, Kind, Body)> {
    ApiKey::ALL.iter().flat_map(|api| {
        let versions = api.min_version()..=api.max_version();
        versions.flat_map(move |version| {
            let flexible = version >= api.first_flexible_version();
            kinds(*api).map(|kind| (*api, kind, Body { version, flexible }))
        })
    })
}

/// All messages and values in all their versions.
fn all_kinds() -> impl Iterator<Item = (Kind, Body)> {
    let of_values = values().into_iter().flat_map(|(kind, versions, first_flexible)| {
        versions.map(move |version| {
            let flexible = version >= first_flexible;
            (kind, Body { version, flexible })
        })
    });
    all().map(|(_, kind, body)| (kind, body)).chain(of_values)
}

/// A body, and what it was made for.
pub fn generate(kind: Kind, body: Body, choices: &[u8]) -> Bytes {
    let mut out = Vec::new();
    body.structure(&mut out, kind.table, &mut Choices(choices));
    Bytes::from(out)
}

fn decode_is_bounded(kind: Kind, version: i16, bytes: Bytes) {
    let len = bytes.len();
    let (peak, _) = peak(|| (kind.decode)(bytes, version));
    // besides the bytes: the version of a value, and what holds them
    let most_memory = (kind.memory_factor * (len + 8)).max(64 * 1024);
    assert!(peak <= most_memory, "{} v{version}: {peak} bytes for {len}", kind.name);
}

/// One case takes every message at every version, so a few are many.
fn config() -> ProptestConfig {
    ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_message_of_any_version_is_encoded_to_the_bytes_it_was_decoded_from(choices in prop::collection::vec(any::<u8>(), 0..400)) {
        for (kind, body) in all_kinds() {
            let bytes = generate(kind, body, &choices);
            let what = format!("{} v{}", kind.name, body.version);
            let (chunks, left) = (kind.again)(bytes.clone(), body.version).unwrap_or_else(|error| panic!("{what}: {error}"));
            prop_assert_eq!(left, 0, "{}", &what);
            prop_assert_eq!(Bytes::from(chunks.concat()), bytes.clone(), "{}", &what);
            decode_is_bounded(kind, body.version, bytes);
        }
    }

    #[test]
    fn any_bytes_give_a_message_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        for (kind, body) in all_kinds() {
            decode_is_bounded(kind, body.version, Bytes::copy_from_slice(&bytes));
        }
    }

    #[test]
    fn a_damaged_message_gives_a_message_or_an_error(
        choices in prop::collection::vec(any::<u8>(), 0..200),
        damage in prop::collection::vec((any::<prop::sample::Index>(), prop::sample::select(vec![0x00, 0x01, 0x7f, 0x80, 0xfe, 0xff])), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        for (kind, body) in all_kinds() {
            let mut bytes = generate(kind, body, &choices).to_vec();
            for (at, byte) in &damage {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = *byte;
                }
            }
            decode_is_bounded(kind, body.version, Bytes::from(bytes.clone()));
            bytes.truncate(cut.index(bytes.len() + 1));
            decode_is_bounded(kind, body.version, Bytes::from(bytes));
        }
    }
}

/// Large frames of one byte: each such byte is a length, a count, a tag or a value somewhere.
#[test]
fn large_frames_of_one_byte_take_at_most_eight_times_their_size_and_values_sixteen() {
    for byte in [0x00, 0x01, 0x02, 0x03, 0x7f, 0x80, 0xff] {
        for (kind, body) in all_kinds() {
            // a large count first, so that the rest are elements
            for count in [&[][..], &[0x00, 0x01, 0x00, 0x00], &[0xff, 0xff, 0x03]] {
                let mut bytes = count.to_vec();
                bytes.resize(80_000, byte);
                decode_is_bounded(kind, body.version, Bytes::from(bytes));
            }
        }
    }
}

#[test]
fn a_message_cut_anywhere_is_an_error() {
    let choices: Vec<u8> = (0..=255).collect();
    for (kind, body) in all_kinds() {
        let bytes = generate(kind, body, &choices);
        for len in 0..bytes.len().min(2000) {
            let cut = (kind.decode)(bytes.slice(..len), body.version);
            assert!(
                cut.is_err(),
                "{} v{} of {len} bytes of {}",
                kind.name,
                body.version,
                bytes.len()
            );
        }
    }
}
