//! What consumers put into JoinGroup and SyncGroup (spec 8.8). Kafka: `ConsumerProtocol`.
//!
//! A newer version is read as the newest one of the table: fields are only ever appended. The user data of the sticky assignors has no
//! version in front.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::WireError;
use crate::reader::Reader;
use crate::schema::since;
use crate::table::Value;
use crate::types::Nullable;
use crate::writer::Writer;

/// The protocol type of groups of consumers. Kafka: `ConsumerProtocol#PROTOCOL_TYPE`.
pub const PROTOCOL_TYPE: &str = "consumer";

value! {
    ConsumerProtocolSubscription, consumer_protocol_subscription: versions 0 to 3 or newer, flexible from i16::MAX;
    ConsumerProtocolSubscription {
        topics: Vec<Arc<str>>, since(0);
        user_data: Option<Bytes>, since(0).nullable(0);
        owned_partitions: Vec<super::TopicPartition>, since(1).ignorable();
        generation_id: i32 = -1, since(2).ignorable();
        rack_id: Option<Arc<str>> = None, since(3).nullable(3).ignorable();
    }
}

value! {
    ConsumerProtocolAssignment, consumer_protocol_assignment: versions 0 to 3 or newer, flexible from i16::MAX;
    ConsumerProtocolAssignment {
        assigned_partitions: Vec<super::TopicPartition>, since(0);
        user_data: Option<Bytes>, since(0).nullable(0);
    }
}

value! {
    StickyAssignorUserData, sticky_assignor_user_data: versions 0 to 1, flexible from i16::MAX;
    StickyAssignorUserData {
        previous_assignment: Vec<super::TopicPartition>, since(0);
        generation: i32 = -1, since(1);
    }
}

value! {
    CooperativeStickyAssignorUserData, cooperative_sticky_assignor_user_data: versions 0 to 0, flexible from i16::MAX;
    CooperativeStickyAssignorUserData {
        generation: i32, since(0);
    }
}

structs! {
    TopicPartition {
        topic: Arc<str>, since(0);
        partitions: Vec<i32>, since(0);
    }
}

/// Nests partitions: an entry is a topic and its partitions.
impl From<(Arc<str>, Vec<i32>)> for TopicPartition {
    fn from((topic, partitions): (Arc<str>, Vec<i32>)) -> Self {
        Self { topic, partitions }
    }
}

/// The partitions of all topics, in the order of the bytes.
pub fn flattened(topics: &[TopicPartition]) -> Vec<fletchlog_records::TopicPartition> {
    let of = |entry: &TopicPartition, partition| fletchlog_records::TopicPartition {
        topic: Arc::clone(&entry.topic),
        partition,
    };
    let all = topics
        .iter()
        .flat_map(|entry| entry.partitions.iter().map(move |&number| of(entry, number)));
    all.collect()
}

impl ConsumerProtocolSubscription {
    /// The topics alone, which are at the same place in every version; what follows them is not read. No list of them is an empty one.
    ///
    /// # Errors
    /// Bytes that do not begin with topics.
    pub fn topics_of(bytes: Bytes) -> Result<Vec<Arc<str>>, WireError> {
        let mut r = Reader::of_value(bytes);
        let mut read = || {
            let version = r.i16()?;
            Vec::read_nullable(&mut r, version)
        };
        let topics = read().map_err(|error| error.within(Self::NAME))?;
        Ok(topics.unwrap_or_default())
    }
}

impl ConsumerProtocolAssignment {
    /// What SyncGroup gave a member: no bytes are an empty assignment, which a member gets that the leader left out.
    ///
    /// # Errors
    /// Bytes that are no assignment.
    pub fn of_member(bytes: Bytes) -> Result<Self, WireError> {
        match bytes.is_empty() {
            true => Ok(Self::default()),
            false => Self::decode(bytes),
        }
    }
}

impl StickyAssignorUserData {
    /// Reads the bytes of version 1, or those of version 0, which end without a generation. Kafka:
    /// `StickyAssignor#deserializeTopicPartitionAssignment`.
    ///
    /// # Errors
    /// Bytes that are no such user data.
    pub fn of_member(bytes: Bytes) -> Result<Self, WireError> {
        let mut r = Reader::of_value(bytes.clone());
        let old = Self::decode_fields(&mut r, 0)?;
        match r.remaining() {
            0 => Ok(old),
            _ => Self::decode_fields(&mut Reader::of_value(bytes), 1),
        }
    }

    /// The bytes of version 1.
    ///
    /// # Errors
    /// A name longer than 32767 bytes.
    pub fn to_bytes(&self) -> Result<Bytes, WireError> {
        fields_of(self, 1)
    }
}

impl CooperativeStickyAssignorUserData {
    /// Reads it.
    ///
    /// # Errors
    /// Fewer than four bytes.
    pub fn of_member(bytes: Bytes) -> Result<Self, WireError> {
        Self::decode_fields(&mut Reader::of_value(bytes), 0)
    }

    /// Its bytes.
    ///
    /// # Errors
    /// None: a number fits.
    pub fn to_bytes(&self) -> Result<Bytes, WireError> {
        fields_of(self, 0)
    }
}

fn fields_of(data: &impl Value, version: i16) -> Result<Bytes, WireError> {
    let mut w = Writer::new();
    data.encode_fields(&mut w, version)?;
    Ok(w.into_bytes())
}
