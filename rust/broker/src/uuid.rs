//! Random 16-byte ids (Kafka: `Uuid`; their text form is the log crate's), and random numbers.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};

use fletchlog_log::checkpoint::encode_uuid;

/// Each `RandomState` has fresh keys, so its empty hash is a random number.
fn random_bits() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A random number above 0.
pub(crate) fn random_positive() -> i32 {
    i32::try_from(random_bits() >> 33).map_or(1, |n| n.max(1))
}

/// A new random id. Like Kafka's, its text does not begin with `-`, so that it can be an argument on a command line.
pub(crate) fn random() -> [u8; 16] {
    loop {
        let mut id = [0; 16];
        for half in id.chunks_exact_mut(8) {
            half.copy_from_slice(&random_bits().to_be_bytes());
        }
        if !encode_uuid(&id).starts_with('-') && id != [0; 16] {
            return id;
        }
    }
}

/// Lower-case hexadecimal digits of a random id: the middle part of a `-delete` directory name.
pub(crate) fn random_hex() -> String {
    random().iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_ids_differ_and_never_look_like_an_option() {
        let ids: std::collections::HashSet<[u8; 16]> = (0..500).map(|_| random()).collect();
        assert_eq!(ids.len(), 500);
        assert!(ids.iter().all(|id| !encode_uuid(id).starts_with('-')));
    }
}
