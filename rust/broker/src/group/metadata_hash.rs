//! The hash of the topics that a consumer or share group subscribes to: when it changes, the group gets a new epoch (spec 8.9). Kafka:
//! `Utils#computeTopicHash`, `#computeGroupHash`.
//!
//! | of a topic | bytes |
//! |---|---|
//! | 0 | 1 |
//! | its id, as two numbers | 8 each |
//! | its name: UTF-16 units, then their number | 2 each, 4 |
//! | its number of partitions | 4 |
//! | each partition's number | 4 |
//!
//! All numbers are little-endian. What Kafka adds for the racks of a partition's replicas is left out: with racks the hash is another one, and
//! nothing shows it. The group's hash is that of its topics' hashes, by name; topics that do
//! not exist are left out, and if none is left it is 0.

use std::collections::BTreeSet;
use std::sync::Arc;

use twox_hash::XxHash3_64;

use crate::topics::{Topic, TopicTable};

/// The hash of the topics with these names.
pub(crate) fn group_hash(topics: &TopicTable, names: &BTreeSet<&Arc<str>>) -> i64 {
    let mut names: Vec<&Arc<str>> = names.iter().copied().collect();
    // Java orders texts by UTF-16 units.
    if !names.iter().all(|name| name.is_ascii()) {
        names.sort_by(|a, b| a.encode_utf16().cmp(b.encode_utf16()));
    }
    let hashes: Vec<u64> = names
        .iter()
        .filter_map(|name| topics.get(name).map(|topic| topic_hash(topic)))
        .collect();
    if hashes.is_empty() {
        return 0;
    }
    let bytes: Vec<u8> = hashes.into_iter().flat_map(u64::to_le_bytes).collect();
    XxHash3_64::oneshot(&bytes).cast_signed()
}

fn topic_hash(topic: &Topic) -> u64 {
    let record = &topic.record;
    let mut bytes = vec![0];
    for half in record.id.chunks_exact(8) {
        bytes.extend(half.iter().rev());
    }
    bytes.extend(topic.name.encode_utf16().flat_map(u16::to_le_bytes));
    let units = i32::try_from(topic.name.encode_utf16().count()).unwrap_or(i32::MAX);
    bytes.extend(units.to_le_bytes());
    bytes.extend(record.partitions.to_le_bytes());
    bytes.extend((0..record.partitions).flat_map(i32::to_le_bytes));
    XxHash3_64::oneshot(&bytes)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fletchlog_api::{Config, Scope};

    use super::*;
    use crate::directory::{Directory, TopicRecord};
    use crate::dynamic_config::{BrokerConfigs, DynamicConfigs};

    #[test]
    fn the_hash_is_that_of_a_real_broker() {
        // From the directory of a 4.4.0: two topics of one partition each, and the group's record.
        let topics = [
            ("g-gzip", 0x5f7a_5862_d498_4614_8a5d_b788_69b1_917e_u128),
            ("g-none", 0xfecf_4b66_b4cc_476e_8f71_0eff_232a_fc6a),
        ];
        let path = std::path::Path::new("/memory");
        let fs = Arc::new(fletchlog_log::fs::MemoryFs::new());
        let (directory, _) = Directory::open(fs, path, None, &[], false).unwrap();
        let config = Config::parse(Scope::Broker, [("num.partitions", "1")]).unwrap();
        let configs = BrokerConfigs::new(&config, &DynamicConfigs::default(), directory.nodes());
        let mut table = TopicTable::default();
        for (name, id) in topics {
            let record = TopicRecord {
                id: id.to_be_bytes(),
                partitions: 1,
                first_leader: 0,
                replication_factor: 1,
                assigned: BTreeMap::new(),
                states: BTreeMap::new(),
                config: BTreeMap::new(),
            };
            table.insert(Arc::new(Topic::new(name, record, &configs, &directory).unwrap()));
        }
        let names: Vec<Arc<str>> = vec!["g-none".into(), "g-gzip".into()];
        assert_eq!(group_hash(&table, &names.iter().collect()), 0x3742_0434_6bff_1ec2);
        assert_eq!(group_hash(&table, &BTreeSet::new()), 0);
        let unknown: Vec<Arc<str>> = vec!["g-gzip".into(), "g-none".into(), "other".into()];
        assert_eq!(group_hash(&table, &unknown.iter().collect()), 0x3742_0434_6bff_1ec2);
        assert_eq!(group_hash(&table, &unknown[2..].iter().collect()), 0);
    }
}
