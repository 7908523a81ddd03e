//! Replaces the addresses in a response. Everything else stays byte by byte, also tagged fields that the tables do not know.
//!
//! ```text
//! an address   a struct with the fields `host` (string) and `port` (int32 or uint16)
//! ```

use fletchlog_protocol::Message;
use fletchlog_protocol::messages::{
    DescribeClusterResponse, DescribeQuorumResponse, FetchResponse, FindCoordinatorResponse, MetadataResponse,
    ProduceResponse,
};
use fletchlog_protocol::schema::{FieldSpec, FieldType};

use crate::share;

/// What is found in a response.
pub(crate) trait Found {
    /// The other address of an address, which is that of this node, if the response says so; `None`: it stays.
    ///
    /// # Errors
    /// There can be no other address: the response must not pass.
    fn address(&mut self, node: Option<i32>, host: &str, port: u16) -> Result<Option<(String, u16)>, String>;
    /// A topic and its id.
    fn topic(&mut self, id: [u8; 16], name: &str);
}

/// The fields of a response that may have addresses.
pub(crate) struct Table {
    pub(crate) fields: &'static [FieldSpec],
    pub(crate) first_flexible: i16,
    pub(crate) max: i16,
}

/// The fields of the responses of an API; `None`: they have no addresses.
pub(crate) fn table(api_key: i16) -> Option<Table> {
    fn of<M: Message>(api_key: i16) -> Option<Table> {
        (M::API_KEY == api_key).then_some(Table {
            fields: M::TABLE,
            first_flexible: M::FIRST_FLEXIBLE_VERSION,
            max: M::MAX_VERSION,
        })
    }
    let of_share = |fields| {
        Some(Table {
            fields,
            first_flexible: 0,
            max: share::MAX_VERSION,
        })
    };
    match api_key {
        share::SHARE_FETCH => return of_share(share::SHARE_FETCH_RESPONSE),
        share::SHARE_ACKNOWLEDGE => return of_share(share::SHARE_ACKNOWLEDGE_RESPONSE),
        _ => {}
    }
    of::<ProduceResponse>(api_key)
        .or_else(|| of::<FetchResponse>(api_key))
        .or_else(|| of::<MetadataResponse>(api_key))
        .or_else(|| of::<FindCoordinatorResponse>(api_key))
        .or_else(|| of::<DescribeQuorumResponse>(api_key))
        .or_else(|| of::<DescribeClusterResponse>(api_key))
}

/// Whether a response of this API and version may have addresses that can be replaced.
pub(crate) fn has_addresses(api_key: i16, version: i16) -> bool {
    table(api_key).is_some_and(|table| version <= table.max && any_address(table.fields, version))
}

fn any_address(fields: &[FieldSpec], version: i16) -> bool {
    let present = || fields.iter().filter(|field| field.presence.versions.contains(version));
    let is_address = present().any(|f| f.name == "host") && present().any(|f| f.name == "port");
    is_address || present().any(|field| holds_address(field.field_type, version))
}

pub(crate) fn holds_address(field_type: FieldType, version: i16) -> bool {
    match field_type {
        FieldType::Array(element) => holds_address(*element, version),
        FieldType::Struct(_, fields) => any_address(fields, version),
        _ => false,
    }
}

/// A response (without its size) with other addresses; `None`: it has none that change.
///
/// # Errors
/// It cannot be read by the tables, or [`Found::address`] failed.
pub(crate) fn rewrite(
    frame: &[u8],
    api_key: i16,
    version: i16,
    found: &mut dyn Found,
) -> Result<Option<Vec<u8>>, String> {
    let Some(table) = table(api_key) else { return Ok(None) };
    let mut walk = Walk {
        from: frame,
        at: 0,
        copied: 0,
        out: Vec::new(),
        version,
        flexible: version >= table.first_flexible,
        found,
    };
    walk.skip(4)?;
    // The header of the response is flexible with its body (ApiVersions, for which this does not hold, has no addresses).
    if walk.flexible {
        walk.tagged(&[])?;
    }
    walk.structure(table.fields)?;
    if walk.copied == 0 {
        return Ok(None);
    }
    walk.copy_to(frame.len());
    Ok(Some(walk.out))
}

/// The tagged fields at the end of a flexible message with these fields, with other addresses; `None`: they have none that change.
///
/// # Errors
/// As [`rewrite`].
pub(crate) fn rewrite_tagged(
    end: &[u8],
    fields: &'static [FieldSpec],
    version: i16,
    found: &mut dyn Found,
) -> Result<Option<Vec<u8>>, String> {
    let mut walk = Walk {
        from: end,
        at: 0,
        copied: 0,
        out: Vec::new(),
        version,
        flexible: true,
        found,
    };
    walk.tagged(fields)?;
    if walk.copied == 0 {
        return Ok(None);
    }
    walk.copy_to(end.len());
    Ok(Some(walk.out))
}

/// Reads a message by its tables. `out` has the bytes up to `copied`, with other addresses.
struct Walk<'a, 'm> {
    from: &'a [u8],
    at: usize,
    copied: usize,
    out: Vec<u8>,
    version: i16,
    flexible: bool,
    found: &'m mut dyn Found,
}

impl Walk<'_, '_> {
    fn skip(&mut self, count: usize) -> Result<(), String> {
        let left = self.from.len() - self.at;
        if count > left {
            return Err(format!("it ends {} bytes too early", count - left));
        }
        self.at += count;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], String> {
        let start = self.at;
        self.skip(N)?;
        self.from[start..self.at].try_into().map_err(|_| "too short".to_owned())
    }

    fn unsigned_varint(&mut self) -> Result<usize, String> {
        let mut value = 0usize;
        for shift in (0..35).step_by(7) {
            let [byte] = self.take()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number of more than 5 bytes".to_owned())
    }

    /// The length of a string, of bytes or of an array; `None`: null. `wide`: its plain form has four bytes, otherwise two.
    fn length(&mut self, wide: bool) -> Result<Option<usize>, String> {
        if self.flexible {
            return Ok(self.unsigned_varint()?.checked_sub(1));
        }
        let length = match wide {
            true => i32::from_be_bytes(self.take()?),
            false => i16::from_be_bytes(self.take()?).into(),
        };
        Ok(usize::try_from(length).ok())
    }

    /// The fields of a struct, and the tagged fields behind them.
    fn structure(&mut self, fields: &'static [FieldSpec]) -> Result<(), String> {
        let (mut host, mut port, mut node) = (None, None, None);
        let (mut name, mut topic_id) = (None, None);
        let version = self.version;
        let present = |field: &&FieldSpec| field.presence.versions.contains(version);
        for field in fields
            .iter()
            .filter(present)
            .filter(|field| field.presence.tag.is_none())
        {
            let start = self.at;
            self.value(field.field_type)?;
            match field.name {
                "host" => host = Some((start, self.at)),
                "port" => port = Some((start, self.at)),
                "node_id" | "broker_id" => {
                    node = self.from[start..self.at]
                        .first_chunk()
                        .map(|id| i32::from_be_bytes(*id))
                }
                "name" => name = Some((start, self.at)),
                "topic_id" => topic_id = self.from[start..self.at].first_chunk().copied(),
                _ => {}
            }
        }
        if let (Some(host), Some(port)) = (host, port) {
            self.address(node, host, port)?;
        }
        if let (Some(name), Some(topic_id)) = (name, topic_id) {
            let name = self.text(name.0)?;
            self.found.topic(topic_id, &name);
        }
        if self.flexible {
            self.tagged(fields)?;
        }
        Ok(())
    }

    /// The string that begins here, which was read before.
    fn text(&mut self, start: usize) -> Result<String, String> {
        let end = std::mem::replace(&mut self.at, start);
        let length = self.length(false)?.unwrap_or(0);
        let text = String::from_utf8_lossy(&self.from[self.at..self.at + length]).into_owned();
        self.at = end;
        Ok(text)
    }

    /// Replaces an address that was just read, whose host and port have these bytes.
    fn address(&mut self, node: Option<i32>, host: (usize, usize), port: (usize, usize)) -> Result<(), String> {
        let text = self.text(host.0)?;
        let bytes = &self.from[port.0..port.1];
        let number = bytes.iter().fold(0i64, |sum, byte| (sum << 8) | i64::from(*byte));
        let number = u16::try_from(number).unwrap_or(0);
        // No address: there is no coordinator.
        if text.is_empty() || number == 0 {
            return Ok(());
        }
        if let Some((other, other_port)) = self.found.address(node, &text, number)? {
            self.copy_to(host.0);
            self.put_string(&other)?;
            self.copied = host.1;
            self.copy_to(port.0);
            match port.1 - port.0 {
                2 => self.out.extend(other_port.to_be_bytes()),
                _ => self.out.extend(i32::from(other_port).to_be_bytes()),
            }
            self.copied = port.1;
        }
        Ok(())
    }

    fn value(&mut self, field_type: FieldType) -> Result<(), String> {
        match field_type {
            FieldType::Bool | FieldType::Int8 => self.skip(1),
            FieldType::Int16 | FieldType::ErrorCode | FieldType::Uint16 => self.skip(2),
            FieldType::Int32 => self.skip(4),
            FieldType::Int64 | FieldType::Float64 => self.skip(8),
            FieldType::Uuid => self.skip(16),
            FieldType::String => {
                let length = self.length(false)?;
                self.skip(length.unwrap_or(0))
            }
            FieldType::Bytes | FieldType::Records => {
                let length = self.length(true)?;
                self.skip(length.unwrap_or(0))
            }
            FieldType::Array(element) => {
                for _ in 0..self.length(true)?.unwrap_or(0) {
                    self.value(*element)?;
                }
                Ok(())
            }
            FieldType::Struct(_, fields) => self.structure(fields),
        }
    }

    /// The tagged fields of a struct with these fields.
    fn tagged(&mut self, fields: &'static [FieldSpec]) -> Result<(), String> {
        for _ in 0..self.unsigned_varint()? {
            let tag = self.unsigned_varint()?;
            let size_at = self.at;
            let size = self.unsigned_varint()?;
            let start = self.at;
            self.skip(size)?;
            let has_tag = |field: &&FieldSpec| {
                let presence = field.presence;
                presence.versions.contains(self.version) && presence.tag.is_some_and(|t| t as usize == tag)
            };
            let known = fields.iter().find(has_tag);
            if let Some(field) = known.filter(|field| holds_address(field.field_type, self.version)) {
                self.tagged_value(field.field_type, size_at, start)?;
            }
        }
        Ok(())
    }

    /// Replaces the addresses of a tagged field that was just skipped: its size may change as well.
    fn tagged_value(&mut self, field_type: FieldType, size_at: usize, start: usize) -> Result<(), String> {
        let end = self.at;
        let mut inner = Walk {
            from: &self.from[start..end],
            at: 0,
            copied: 0,
            out: Vec::new(),
            version: self.version,
            flexible: self.flexible,
            found: &mut *self.found,
        };
        inner.value(field_type)?;
        if inner.copied > 0 {
            inner.copy_to(end - start);
            let value = inner.out;
            self.copy_to(size_at);
            self.put_unsigned_varint(value.len());
            self.out.extend(value);
            self.copied = end;
        }
        Ok(())
    }

    fn copy_to(&mut self, end: usize) {
        self.out.extend(&self.from[self.copied..end]);
        self.copied = end;
    }

    fn put_string(&mut self, text: &str) -> Result<(), String> {
        if self.flexible {
            self.put_unsigned_varint(text.len() + 1);
        } else {
            let length = i16::try_from(text.len()).map_err(|_| format!("`{text}` is too long for a host"))?;
            self.out.extend(length.to_be_bytes());
        }
        self.out.extend(text.as_bytes());
        Ok(())
    }

    fn put_unsigned_varint(&mut self, mut value: usize) {
        while value > 0x7f {
            self.out.push(u8::try_from(value & 0x7f).unwrap_or(0) | 0x80);
            value >>= 7;
        }
        self.out.push(u8::try_from(value).unwrap_or(0));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use fletchlog_protocol::header::{ResponseHeader, response_header_version};
    use fletchlog_protocol::messages::{
        describe_cluster_response, describe_quorum_response, fetch_response, find_coordinator_response,
        metadata_response, produce_response,
    };
    use fletchlog_protocol::{Reader, frame};

    use super::*;

    const OTHER: &str = "proxy.example.org";

    /// A response with its header, without a size.
    fn encoded<M: Message>(message: &M, version: i16) -> Vec<u8> {
        let mut writer = frame::begin();
        let header = ResponseHeader { correlation_id: 7 };
        header.encode(&mut writer, response_header_version(M::API_KEY, version));
        message.encode(&mut writer, version).unwrap();
        frame::finish(writer).unwrap().concat().split_off(4)
    }

    /// Replaces the host `real`, and notes the rest.
    #[derive(Default)]
    struct Noted {
        nodes: Vec<Option<i32>>,
        topics: Vec<([u8; 16], String)>,
    }

    impl Found for Noted {
        fn address(&mut self, node: Option<i32>, host: &str, port: u16) -> Result<Option<(String, u16)>, String> {
            self.nodes.push(node);
            Ok((host == "real").then(|| (OTHER.to_owned(), port + 1)))
        }
        fn topic(&mut self, id: [u8; 16], name: &str) {
            self.topics.push((id, name.to_owned()));
        }
    }

    fn rewritten(frame: &[u8], api_key: i16, version: i16) -> Option<Vec<u8>> {
        rewrite(frame, api_key, version, &mut Noted::default()).unwrap()
    }

    /// `of` makes the response with this host and port. What is rewritten is what the other address would have given.
    fn check<M: Message>(versions: std::ops::RangeInclusive<i16>, of: impl Fn(&str, u16, i16) -> M) {
        for version in versions {
            assert!(has_addresses(M::API_KEY, version), "{} {version}", M::NAME);
            let real = encoded(&of("real", 9092, version), version);
            let found = rewritten(&real, M::API_KEY, version).unwrap();
            assert_eq!(
                found,
                encoded(&of(OTHER, 9093, version), version),
                "{} {version}",
                M::NAME
            );
            let mine = encoded(&of("other", 9092, version), version);
            assert_eq!(rewritten(&mine, M::API_KEY, version), None, "{} {version}", M::NAME);
            for cut in 0..real.len() {
                // An error or nothing, never a panic.
                let _ = rewrite(&real[..cut], M::API_KEY, version, &mut Noted::default());
            }
        }
    }

    #[test]
    fn every_address_of_every_version_is_replaced_and_nothing_else() {
        check(0..=13, |host, port, version| {
            let broker = |node_id, rack: Option<&str>| metadata_response::MetadataResponseBroker {
                node_id,
                host: host.into(),
                port: port.into(),
                rack: rack.filter(|_| version >= 1).map(Arc::from),
            };
            MetadataResponse {
                brokers: vec![broker(1, None), broker(2, Some("rack"))],
                topics: vec![metadata_response::MetadataResponseTopic {
                    name: Some("real".into()),
                    partitions: vec![Default::default(), Default::default()],
                    ..Default::default()
                }],
                ..Default::default()
            }
        });
        check(0..=6, |host, port, version| match version {
            0..=3 => FindCoordinatorResponse {
                node_id: 3,
                host: host.into(),
                port: port.into(),
                ..Default::default()
            },
            _ => FindCoordinatorResponse {
                coordinators: vec![find_coordinator_response::Coordinator {
                    key: "real".into(),
                    node_id: 3,
                    host: host.into(),
                    port: port.into(),
                    ..Default::default()
                }],
                ..Default::default()
            },
        });
        check(0..=2, |host, port, _| DescribeClusterResponse {
            brokers: vec![describe_cluster_response::DescribeClusterBroker {
                host: host.into(),
                port: port.into(),
                ..Default::default()
            }],
            ..Default::default()
        });
        check(2..=2, |host, port, _| DescribeQuorumResponse {
            nodes: vec![describe_quorum_response::Node {
                node_id: 1,
                listeners: vec![describe_quorum_response::Listener {
                    name: "CONTROLLER".into(),
                    host: host.into(),
                    port,
                }],
            }],
            ..Default::default()
        });
    }

    #[test]
    fn the_hints_in_tagged_fields_are_replaced_and_their_size_changes() {
        check(10..=13, |host, port, _| ProduceResponse {
            responses: vec![produce_response::TopicProduceResponse {
                partition_responses: vec![produce_response::PartitionProduceResponse {
                    current_leader: produce_response::LeaderIdAndEpoch {
                        leader_id: 4,
                        leader_epoch: 5,
                    },
                    ..Default::default()
                }],
                ..Default::default()
            }],
            node_endpoints: vec![produce_response::NodeEndpoint {
                node_id: 4,
                host: host.into(),
                port: port.into(),
                ..Default::default()
            }],
            ..Default::default()
        });
        check(16..=18, |host, port, _| FetchResponse {
            responses: vec![fetch_response::FetchableTopicResponse {
                partitions: vec![fetch_response::PartitionData {
                    records: Some(Bytes::from_static(&[7; 300])),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            node_endpoints: vec![fetch_response::NodeEndpoint {
                node_id: 4,
                host: host.into(),
                port: port.into(),
                ..Default::default()
            }],
            ..Default::default()
        });
    }

    #[test]
    fn the_nodes_of_addresses_and_the_ids_of_topics_are_found() {
        let broker = |node_id| metadata_response::MetadataResponseBroker {
            node_id,
            host: "real".into(),
            port: 9092,
            ..Default::default()
        };
        let message = MetadataResponse {
            brokers: vec![broker(4), broker(2)],
            topics: vec![metadata_response::MetadataResponseTopic {
                name: Some("orders".into()),
                topic_id: [7; 16],
                ..Default::default()
            }],
            ..Default::default()
        };
        for (version, topics) in [(9, vec![]), (12, vec![([7; 16], "orders".to_owned())])] {
            let mut noted = Noted::default();
            let frame = encoded(&message, version);
            rewrite(&frame, MetadataResponse::API_KEY, version, &mut noted).unwrap();
            assert_eq!((noted.nodes, noted.topics), (vec![Some(4), Some(2)], topics));
        }
    }

    #[test]
    fn what_the_tables_do_not_know_stays() {
        let message = DescribeClusterResponse {
            brokers: vec![describe_cluster_response::DescribeClusterBroker {
                host: "real".into(),
                port: 9092,
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut frame = encoded(&message, 2);
        assert_eq!(frame.pop(), Some(0), "no tagged fields");
        let unknown = [1, 99, 3, b'a', b'b', b'c'];
        frame.extend(unknown);
        let found = rewritten(&frame, DescribeClusterResponse::API_KEY, 2).unwrap();
        assert_eq!(found[found.len() - unknown.len()..], unknown);
        let mut reader = Reader::new(Bytes::from(found));
        ResponseHeader::decode(&mut reader, 1).unwrap();
        let broker = DescribeClusterResponse::decode(&mut reader, 2)
            .unwrap()
            .brokers
            .remove(0);
        assert_eq!((&*broker.host, broker.port), (OTHER, 9093));
    }

    /// Bytes by Kafka's `ShareFetchResponse.json`: one partition with an error, and the endpoint of its leader.
    #[test]
    fn the_hints_of_share_groups_are_replaced() {
        let share_fetch = |host: &str, port: i32| {
            let mut frame = vec![0, 0, 0, 7, 0];
            frame.extend([0; 6]);
            frame.extend([0, 0, 0, 0, 30]);
            frame.push(2);
            frame.extend([9; 16]);
            frame.push(2);
            frame.extend([0, 0, 0, 1, 0, 6, 0, 0, 0, 0]);
            frame.extend([0, 0, 0, 2, 0, 0, 0, 3, 0]);
            frame.extend([1, 2]);
            frame.extend([5; 18]);
            frame.extend([0, 0, 0]);
            frame.push(2);
            frame.extend([0, 0, 0, 2, u8::try_from(host.len()).unwrap() + 1]);
            frame.extend(host.as_bytes());
            frame.extend(port.to_be_bytes());
            frame.extend([0, 0, 0]);
            frame
        };
        let found = rewritten(&share_fetch("real", 9092), share::SHARE_FETCH, 2);
        assert_eq!(found, Some(share_fetch(OTHER, 9093)));
        assert_eq!(rewritten(&share_fetch("mine", 9092), share::SHARE_FETCH, 2), None);
    }

    #[test]
    fn responses_without_addresses_are_not_read() {
        for (api_key, version) in [(0, 9), (1, 15), (3, 14), (18, 4), (55, 1), (60, 3), (12, 4), (999, 0)] {
            assert!(!has_addresses(api_key, version), "{api_key} {version}");
        }
    }
}
