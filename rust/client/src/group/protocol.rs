//! The consumer protocol's blobs inside JoinGroup and SyncGroup (spec 8.8). Kafka: `ConsumerProtocol`.
//!
//! All numbers are big-endian. STRING = i16 length, UTF-8; BYTES = i32 length (-1 null); ARRAY = i32 count.
//!
//! | Subscription      | type                                         | since |
//! |-------------------|----------------------------------------------|-------|
//! | version           | i16                                          | v0    |
//! | topics            | ARRAY of STRING                              | v0    |
//! | user data         | NULLABLE BYTES                               | v0    |
//! | owned partitions  | ARRAY of {topic STRING, partitions ARRAY i32}| v1    |
//! | generation id     | i32                                          | v2    |
//! | rack id           | NULLABLE STRING (i16 length -1)              | v3    |
//!
//! | Assignment        | type                                         |
//! |-------------------|----------------------------------------------|
//! | version           | i16                                          |
//! | partitions        | ARRAY of {topic STRING, partitions ARRAY i32}|
//! | user data         | NULLABLE BYTES                               |
//!
//! A newer version is read as the newest one supported here: fields are only ever appended.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_api::java_hash::{DEFAULT_CAPACITY, string_hash, walk_order};
use fletchlog_records::TopicPartition;

/// Newest version understood here.
pub const HIGHEST_VERSION: i16 = 3;

/// Bytes that do not follow the consumer protocol.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} of the consumer protocol is malformed at byte {position}: {reason}")]
pub struct ProtocolError {
    /// Subscription, Assignment or user data.
    pub what: &'static str,
    /// Byte position of the error.
    pub position: usize,
    /// Reason.
    pub reason: String,
}

/// What a member sends to the leader. Kafka: `ConsumerProtocolSubscription`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Subscription {
    /// Topics.
    pub topics: Vec<Arc<str>>,
    /// The assignor's own data.
    pub user_data: Option<Bytes>,
    /// Partitions that the member still owns (cooperative protocol).
    pub owned_partitions: Vec<TopicPartition>,
    /// Generation in which they were assigned, -1 none.
    pub generation_id: i32,
    /// client.rack.
    pub rack_id: Option<Arc<str>>,
}

impl Subscription {
    /// Encodes as `version` (0..=3).
    ///
    /// # Errors
    /// A name longer than 32767 bytes, or an unknown version.
    pub fn encode(&self, version: i16) -> Result<Bytes, ProtocolError> {
        let mut out = Writer::new("Subscription");
        out.version(version)?;
        out.count(self.topics.len())?;
        for topic in &self.topics {
            out.string(topic)?;
        }
        out.nullable_bytes(self.user_data.as_ref())?;
        if version >= 1 {
            out.partitions(&self.owned_partitions)?;
        }
        if version >= 2 {
            out.i32(self.generation_id);
        }
        if version >= 3 {
            match &self.rack_id {
                Some(rack) => out.string(rack)?,
                None => out.bytes.extend_from_slice(&(-1i16).to_be_bytes()),
            }
        }
        Ok(out.bytes.into())
    }

    /// Decodes any version from 0; fields that an older version lacks have their defaults.
    ///
    /// # Errors
    /// Bytes that are no subscription.
    pub fn decode(blob: &[u8]) -> Result<Self, ProtocolError> {
        let mut reader = Reader::new("Subscription", blob);
        let version = reader.version()?;
        let count = reader.count(2)?;
        let mut topics = Vec::with_capacity(count);
        for _ in 0..count {
            topics.push(reader.string()?);
        }
        let user_data = reader.nullable_bytes()?;
        let owned_partitions = if version >= 1 { reader.partitions()? } else { Vec::new() };
        let generation_id = if version >= 2 { reader.i32()? } else { -1 };
        let rack_id = if version >= 3 { reader.nullable_string()? } else { None };
        Ok(Self {
            topics,
            user_data,
            owned_partitions,
            generation_id,
            rack_id,
        })
    }
}

/// What the leader assigns to a member. Kafka: `ConsumerProtocolAssignment`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Assignment {
    /// Partitions, topic by topic.
    pub partitions: Vec<TopicPartition>,
    /// The assignor's own data.
    pub user_data: Option<Bytes>,
}

impl Assignment {
    /// Encodes as `version`: the topics in the iteration order of the HashMap that groups them (spec 7.2), partitions
    /// in the given order.
    ///
    /// # Errors
    /// A name longer than 32767 bytes, or an unknown version.
    pub fn encode(&self, version: i16) -> Result<Bytes, ProtocolError> {
        let mut out = Writer::new("Assignment");
        out.version(version)?;
        out.partitions(&self.partitions)?;
        out.nullable_bytes(self.user_data.as_ref())?;
        Ok(out.bytes.into())
    }

    /// Decodes any version from 0. An empty blob is an empty assignment: a member that the leader left out gets this.
    ///
    /// # Errors
    /// Bytes that are no assignment.
    pub fn decode(blob: &[u8]) -> Result<Self, ProtocolError> {
        if blob.is_empty() {
            return Ok(Self::default());
        }
        let mut reader = Reader::new("Assignment", blob);
        reader.version()?;
        Ok(Self {
            partitions: reader.partitions()?,
            user_data: reader.nullable_bytes()?,
        })
    }
}

/// User data of the sticky assignor: the previous assignment and its generation. Kafka: `StickyAssignor`, schema v1.
///
/// # Errors
/// A name longer than 32767 bytes.
pub fn encode_sticky_user_data(owned: &[TopicPartition], generation: i32) -> Result<Bytes, ProtocolError> {
    let mut out = Writer::new("user data");
    out.partitions(owned)?;
    out.i32(generation);
    Ok(out.bytes.into())
}

/// Decodes it; the generation is `None` under schema v0, which has none.
///
/// # Errors
/// Bytes that are no such user data.
pub fn decode_sticky_user_data(data: &[u8]) -> Result<(Vec<TopicPartition>, Option<i32>), ProtocolError> {
    let mut reader = Reader::new("user data", data);
    let owned = reader.partitions()?;
    let generation = if reader.rest().is_empty() {
        None
    } else {
        Some(reader.i32()?)
    };
    Ok((owned, generation))
}

/// User data of the cooperative sticky assignor: the generation.
pub fn encode_cooperative_user_data(generation: i32) -> Bytes {
    Bytes::copy_from_slice(&generation.to_be_bytes())
}

/// Decodes it.
///
/// # Errors
/// Fewer than four bytes.
pub fn decode_cooperative_user_data(data: &[u8]) -> Result<i32, ProtocolError> {
    Reader::new("user data", data).i32()
}

/// Partitions by topic, the topics in the iteration order of `new HashMap()` filled in order of appearance.
/// Kafka: `CollectionUtils#groupPartitionsByTopic`.
fn group_by_topic(partitions: &[TopicPartition]) -> Vec<(&Arc<str>, Vec<i32>)> {
    let mut groups: Vec<(&Arc<str>, Vec<i32>)> = Vec::new();
    let mut index = std::collections::BTreeMap::new();
    for tp in partitions {
        let at = *index.entry(&tp.topic).or_insert_with(|| {
            groups.push((&tp.topic, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push(tp.partition);
    }
    let hashes: Vec<i32> = groups.iter().map(|(topic, _)| string_hash(topic)).collect();
    let order = walk_order(&hashes, DEFAULT_CAPACITY);
    order
        .into_iter()
        .map(|i| (groups[i].0, std::mem::take(&mut groups[i].1)))
        .collect()
}

struct Writer {
    what: &'static str,
    bytes: Vec<u8>,
}

impl Writer {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            bytes: Vec::new(),
        }
    }
    fn error(&self, reason: String) -> ProtocolError {
        ProtocolError {
            what: self.what,
            position: self.bytes.len(),
            reason,
        }
    }
    fn version(&mut self, version: i16) -> Result<(), ProtocolError> {
        if !(0..=HIGHEST_VERSION).contains(&version) {
            return Err(self.error(format!("there is no version {version}")));
        }
        self.bytes.extend_from_slice(&version.to_be_bytes());
        Ok(())
    }
    fn i32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }
    fn count(&mut self, count: usize) -> Result<(), ProtocolError> {
        let count = i32::try_from(count).map_err(|_| self.error(format!("{count} elements do not fit")))?;
        self.i32(count);
        Ok(())
    }
    fn string(&mut self, text: &str) -> Result<(), ProtocolError> {
        let length = i16::try_from(text.len())
            .map_err(|_| self.error(format!("a name of {} bytes does not fit", text.len())))?;
        self.bytes.extend_from_slice(&length.to_be_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        Ok(())
    }
    fn nullable_bytes(&mut self, data: Option<&Bytes>) -> Result<(), ProtocolError> {
        let Some(data) = data else {
            self.i32(-1);
            return Ok(());
        };
        self.count(data.len())?;
        self.bytes.extend_from_slice(data);
        Ok(())
    }
    fn partitions(&mut self, partitions: &[TopicPartition]) -> Result<(), ProtocolError> {
        let groups = group_by_topic(partitions);
        self.count(groups.len())?;
        for (topic, numbers) in groups {
            self.string(topic)?;
            self.count(numbers.len())?;
            for number in numbers {
                self.i32(number);
            }
        }
        Ok(())
    }
}

struct Reader<'a> {
    what: &'static str,
    blob: &'a [u8],
    position: usize,
}

impl<'a> Reader<'a> {
    fn new(what: &'static str, blob: &'a [u8]) -> Self {
        Self {
            what,
            blob,
            position: 0,
        }
    }
    fn error(&self, reason: impl Into<String>) -> ProtocolError {
        ProtocolError {
            what: self.what,
            position: self.position,
            reason: reason.into(),
        }
    }
    fn rest(&self) -> &'a [u8] {
        self.blob.get(self.position..).unwrap_or_default()
    }
    fn take(&mut self, length: usize) -> Result<&'a [u8], ProtocolError> {
        let rest = self.rest();
        let taken = rest
            .get(..length)
            .ok_or_else(|| self.error(format!("{length} bytes wanted, {} left", rest.len())))?;
        self.position += length;
        Ok(taken)
    }
    fn i16(&mut self) -> Result<i16, ProtocolError> {
        let bytes = self.take(2)?;
        Ok(i16::from_be_bytes([bytes[0], bytes[1]]))
    }
    fn i32(&mut self) -> Result<i32, ProtocolError> {
        let bytes = self.take(4)?;
        Ok(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
    fn version(&mut self) -> Result<i16, ProtocolError> {
        let version = self.i16()?;
        if version < 0 {
            return Err(self.error(format!("there is no version {version}")));
        }
        Ok(version.min(HIGHEST_VERSION))
    }
    /// Reads an element count. It is at most what the rest of the bytes can hold, so that it is safe to reserve room
    /// for it.
    fn count(&mut self, smallest: usize) -> Result<usize, ProtocolError> {
        let count = self.i32()?;
        let most = self.rest().len() / smallest;
        usize::try_from(count)
            .ok()
            .filter(|&n| n <= most)
            .ok_or_else(|| self.error(format!("{count} elements, but at most {most} fit")))
    }
    fn text(&mut self, length: usize) -> Result<Arc<str>, ProtocolError> {
        let bytes = self.take(length)?;
        std::str::from_utf8(bytes)
            .map(Arc::from)
            .map_err(|_| self.error("a string is not UTF-8"))
    }
    fn string(&mut self) -> Result<Arc<str>, ProtocolError> {
        let length = self.i16()?;
        let length = usize::try_from(length).map_err(|_| self.error(format!("a string of length {length}")))?;
        self.text(length)
    }
    fn nullable_string(&mut self) -> Result<Option<Arc<str>>, ProtocolError> {
        match self.i16()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| self.error(format!("a string of length {length}")))?;
                self.text(length).map(Some)
            }
        }
    }
    fn nullable_bytes(&mut self) -> Result<Option<Bytes>, ProtocolError> {
        match self.i32()? {
            -1 => Ok(None),
            length => {
                let length = usize::try_from(length).map_err(|_| self.error(format!("bytes of length {length}")))?;
                self.take(length).map(|data| Some(Bytes::copy_from_slice(data)))
            }
        }
    }
    fn partitions(&mut self) -> Result<Vec<TopicPartition>, ProtocolError> {
        let mut partitions = Vec::new();
        for _ in 0..self.count(6)? {
            let topic = self.string()?;
            for _ in 0..self.count(4)? {
                partitions.push(TopicPartition {
                    topic: Arc::clone(&topic),
                    partition: self.i32()?,
                });
            }
        }
        Ok(partitions)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tps(list: &[(&str, i32)]) -> Vec<TopicPartition> {
        list.iter().map(|&(topic, p)| TopicPartition::new(topic, p)).collect()
    }

    fn full() -> Subscription {
        Subscription {
            topics: vec!["foo".into(), "bar".into()],
            user_data: Some(Bytes::from_static(&[7, 8])),
            owned_partitions: tps(&[("foo", 1), ("foo", 0)]),
            generation_id: 5,
            rack_id: Some("r1".into()),
        }
    }

    #[test]
    fn a_subscription_has_the_bytes_of_the_table() {
        let bytes = full().encode(3).unwrap();
        let mut expected: Vec<u8> = vec![0, 3, 0, 0, 0, 2, 0, 3];
        expected.extend(b"foo");
        expected.extend([0, 3]);
        expected.extend(b"bar");
        expected.extend([0, 0, 0, 2, 7, 8]);
        expected.extend([0, 0, 0, 1, 0, 3]);
        expected.extend(b"foo");
        expected.extend([0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0]);
        expected.extend([0, 0, 0, 5, 0, 2]);
        expected.extend(b"r1");
        assert_eq!(bytes, expected);
    }

    #[test]
    fn every_version_keeps_what_it_can_carry() {
        let carried = |version| Subscription::decode(&full().encode(version).unwrap()).unwrap();
        assert_eq!(carried(3), full());
        assert_eq!(
            carried(2),
            Subscription {
                rack_id: None,
                ..full()
            }
        );
        assert_eq!(
            carried(1),
            Subscription {
                rack_id: None,
                generation_id: -1,
                ..full()
            }
        );
        assert_eq!(
            carried(0),
            Subscription {
                rack_id: None,
                generation_id: -1,
                owned_partitions: vec![],
                ..full()
            }
        );
        assert!(full().encode(4).is_err());
        let without = Subscription {
            user_data: None,
            rack_id: None,
            ..full()
        };
        assert_eq!(Subscription::decode(&without.encode(3).unwrap()).unwrap(), without);
    }

    #[test]
    fn a_newer_version_is_read_as_the_newest_known_and_a_negative_one_is_refused() {
        let mut bytes = full().encode(3).unwrap().to_vec();
        bytes[1] = 9;
        bytes.extend([1, 2, 3]);
        assert_eq!(Subscription::decode(&bytes).unwrap(), full());
        bytes[0] = 0xff;
        assert!(
            Subscription::decode(&bytes)
                .unwrap_err()
                .to_string()
                .contains("no version")
        );
    }

    #[test]
    fn an_assignment_lists_topics_in_hash_order() {
        // Buckets of "C" (67), "A" (65), "B" (66) in a table of 16: A, B, C.
        let given = Assignment {
            partitions: tps(&[("C", 0), ("C", 1), ("A", 0), ("B", 2)]),
            user_data: None,
        };
        let read = Assignment::decode(&given.encode(1).unwrap()).unwrap();
        assert_eq!(read.partitions, tps(&[("A", 0), ("B", 2), ("C", 0), ("C", 1)]));
        assert_eq!(Assignment::decode(&[]).unwrap(), Assignment::default());
    }

    #[test]
    fn a_count_that_cannot_be_true_is_refused_before_room_is_reserved() {
        let error = Subscription::decode(&[0, 1, 0x7f, 0xff, 0xff, 0xff]).unwrap_err();
        assert!(error.to_string().contains("at most 0 fit"), "{error}");
        assert!(Subscription::decode(&[0, 0, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(Assignment::decode(&[0]).is_err());
    }

    #[test]
    fn user_data_of_the_sticky_assignors_survives() {
        let owned = tps(&[("t", 0), ("t", 4)]);
        let data = encode_sticky_user_data(&owned, 9).unwrap();
        assert_eq!(decode_sticky_user_data(&data).unwrap(), (owned.clone(), Some(9)));
        assert_eq!(decode_sticky_user_data(&data[..data.len() - 4]).unwrap(), (owned, None));
        assert_eq!(
            decode_cooperative_user_data(&encode_cooperative_user_data(3)).unwrap(),
            3
        );
        assert!(decode_cooperative_user_data(&[0, 0, 1]).is_err());
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Subscription::decode(&bytes);
            let _ = Assignment::decode(&bytes);
            let _ = decode_sticky_user_data(&bytes);
        }

        #[test]
        fn a_damaged_blob_is_an_error_or_another_value(at in 0usize..48, value in any::<u8>(), cut in 0usize..48) {
            let mut bytes = full().encode(3).unwrap().to_vec();
            let at = at % bytes.len();
            bytes[at] = value;
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            let _ = Subscription::decode(&bytes);
        }
    }
}
