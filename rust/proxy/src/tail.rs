//! Large Fetch responses: they pass as they arrive, but for their end, which may have addresses. So that the size in front stays true, an end
//! with other addresses takes the place of the former one only if it is as long; otherwise the addresses are hidden under a tag that
//! no client knows, and the client asks for the metadata.

use bytes::Bytes;
use fletchlog_protocol::schema::{FieldSpec, FieldType};

use crate::frames::SIZE;
use crate::rewrite::{Found, Table, rewrite_tagged};

/// Frames of at most this many bytes are collected: nearly all that have addresses are errors without records.
const SMALL: usize = 64 * 1024;
/// A tag that no field has, in one byte.
const UNKNOWN_TAG: u8 = 100;

/// What comes next in the bytes.
#[derive(Debug, Clone, Copy)]
enum Step {
    Skip(usize),
    Value(FieldType),
    Values(usize, FieldType),
    TaggedFields(usize),
    Number(Of),
}

/// What a number says.
#[derive(Debug, Clone, Copy)]
enum Of {
    /// How many bytes follow, and 1.
    Bytes,
    /// How many of these follow, and 1.
    Array(FieldType),
    TaggedFields,
    Tag,
    TagSize,
}

/// The place in a frame that passes.
#[derive(Debug)]
pub(crate) struct Tail {
    fields: &'static [FieldSpec],
    version: i16,
    /// The next step is the last one.
    steps: Vec<Step>,
    /// The number that is being read: its bits so far, and how many.
    number: (usize, u32),
    /// Bytes of the frame that have not arrived.
    left: usize,
    /// What has arrived of the tagged fields at the end.
    end: Vec<u8>,
}

impl Tail {
    /// For a frame of this size (with the size in front); `None`: it is to be collected.
    pub(crate) fn of(table: &Table, version: i16, frame: usize) -> Option<Self> {
        if frame <= SMALL
            || version < table.first_flexible
            || version > table.max
            || !only_tagged(table.fields, version)
        {
            return None;
        }
        let mut tail = Self {
            fields: table.fields,
            version,
            steps: Vec::new(),
            number: (0, 0),
            left: frame,
            end: Vec::new(),
        };
        tail.push_fields(table.fields);
        // The header: correlation id, tagged fields.
        tail.steps
            .extend([Step::Number(Of::TaggedFields), Step::Skip(SIZE + 4)]);
        Some(tail)
    }

    /// Takes the next bytes of the frame; returns those that pass.
    ///
    /// # Errors
    /// The frame is not what the tables say, or there is no other address.
    pub(crate) fn pass(&mut self, bytes: Bytes, found: &mut dyn Found) -> Result<[Bytes; 2], String> {
        self.left = self.left.saturating_sub(bytes.len());
        let passed = self.walk(&bytes)?;
        self.end.extend_from_slice(&bytes[passed..]);
        let end = match self.left {
            0 if !self.steps.is_empty() => return Err("it ends too early".to_owned()),
            0 => self.rewritten(found)?,
            _ => Bytes::new(),
        };
        Ok([bytes.slice(..passed), end])
    }

    /// The whole frame has arrived.
    pub(crate) fn is_over(&self) -> bool {
        self.left == 0
    }

    fn rewritten(&mut self, found: &mut dyn Found) -> Result<Bytes, String> {
        let mut end = std::mem::take(&mut self.end);
        if let Some(other) = rewrite_tagged(&end, self.fields, self.version, found)? {
            if other.len() == end.len() {
                return Ok(other.into());
            }
            // The count, then the tag of the only field that is known.
            match end.get_mut(..2) {
                Some([1, tag @ 0]) => *tag = UNKNOWN_TAG,
                _ => return Err("its tagged fields are in an unknown order".to_owned()),
            }
        }
        Ok(end.into())
    }

    fn push_fields(&mut self, fields: &'static [FieldSpec]) {
        let version = self.version;
        let present = |field: &&FieldSpec| field.presence.versions.contains(version) && field.presence.tag.is_none();
        let values = fields
            .iter()
            .rev()
            .filter(present)
            .map(|field| Step::Value(field.field_type));
        self.steps.extend(values);
    }

    /// Follows the steps as far as the bytes go; returns how many of these are before the end.
    fn walk(&mut self, bytes: &[u8]) -> Result<usize, String> {
        let mut at = 0;
        while let Some(step) = self.steps.pop() {
            match step {
                Step::Skip(count) => {
                    let skipped = count.min(bytes.len() - at);
                    at += skipped;
                    if skipped < count {
                        self.steps.push(Step::Skip(count - skipped));
                        break;
                    }
                }
                Step::Value(FieldType::Struct(_, fields)) => {
                    self.steps.push(Step::Number(Of::TaggedFields));
                    self.push_fields(fields);
                }
                Step::Value(other) => self.steps.push(step_of(other)),
                Step::Values(0, _) | Step::TaggedFields(0) => {}
                Step::Values(count, of) => self.steps.extend([Step::Values(count - 1, of), Step::Value(of)]),
                Step::TaggedFields(count) => self.steps.extend([
                    Step::TaggedFields(count - 1),
                    Step::Number(Of::TagSize),
                    Step::Number(Of::Tag),
                ]),
                Step::Number(of) => {
                    let Some(byte) = bytes.get(at) else {
                        self.steps.push(step);
                        break;
                    };
                    at += 1;
                    self.digit(of, *byte)?;
                }
            }
        }
        Ok(at)
    }

    /// One more byte of a number.
    fn digit(&mut self, of: Of, byte: u8) -> Result<(), String> {
        let (value, bits) = self.number;
        if bits > 28 {
            return Err("a number of more than 5 bytes".to_owned());
        }
        let value = value | usize::from(byte & 0x7f) << bits;
        if byte & 0x80 != 0 {
            self.number = (value, bits + 7);
            self.steps.push(Step::Number(of));
            return Ok(());
        }
        self.number = (0, 0);
        match of {
            Of::Bytes => self.steps.push(Step::Skip(value.saturating_sub(1))),
            Of::Array(element) => self.steps.push(Step::Values(value.saturating_sub(1), element)),
            Of::TaggedFields => self.steps.push(Step::TaggedFields(value)),
            Of::TagSize => self.steps.push(Step::Skip(value)),
            Of::Tag => {}
        }
        Ok(())
    }
}

fn step_of(value: FieldType) -> Step {
    match value {
        FieldType::Bool | FieldType::Int8 => Step::Skip(1),
        FieldType::Int16 | FieldType::ErrorCode | FieldType::Uint16 => Step::Skip(2),
        FieldType::Int32 => Step::Skip(4),
        FieldType::Int64 | FieldType::Float64 => Step::Skip(8),
        FieldType::Uuid => Step::Skip(16),
        FieldType::String | FieldType::Bytes | FieldType::Records => Step::Number(Of::Bytes),
        FieldType::Array(element) => Step::Number(Of::Array(*element)),
        FieldType::Struct(..) => Step::Value(value),
    }
}

/// Whether all addresses are in tagged fields at the end.
fn only_tagged(fields: &'static [FieldSpec], version: i16) -> bool {
    let untagged = |field: &&FieldSpec| field.presence.versions.contains(version) && field.presence.tag.is_none();
    !fields
        .iter()
        .filter(untagged)
        .any(|field| crate::rewrite::holds_address(field.field_type, version))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use fletchlog_api::{Config, Scope};
    use fletchlog_protocol::header::{ResponseHeader, response_header_version};
    use fletchlog_protocol::messages::fetch_response::{
        AbortedTransaction, FetchableTopicResponse, LeaderIdAndEpoch, NodeEndpoint, PartitionData,
    };
    use fletchlog_protocol::messages::{FetchResponse, MetadataResponse};
    use fletchlog_protocol::{Message, Reader, frame};

    use super::*;
    use crate::rewrite::table;
    use crate::{Proxy, ProxyOptions};

    /// Replaces every host by this one.
    struct Other(&'static str);

    impl Found for Other {
        fn address(&mut self, _: Option<i32>, _: &str, port: u16) -> Result<Option<(String, u16)>, String> {
            Ok(Some((self.0.to_owned(), port + 1)))
        }
        fn topic(&mut self, _: [u8; 16], _: &str) {}
    }

    fn response(given: Option<(&str, u16)>) -> FetchResponse {
        let partition = |index: i32| PartitionData {
            partition_index: index,
            aborted_transactions: (index > 0).then(|| vec![AbortedTransaction::default(); 3]),
            current_leader: LeaderIdAndEpoch {
                leader_id: index - 1,
                leader_epoch: 5,
            },
            records: (index < 2).then(|| Bytes::from(vec![0xff; 40_000])),
            ..Default::default()
        };
        let topic = |_| FetchableTopicResponse {
            topic_id: [9; 16],
            partitions: (0..3).map(partition).collect(),
            ..Default::default()
        };
        let endpoint = |(host, port): (&str, u16)| NodeEndpoint {
            node_id: 4,
            host: host.into(),
            port: port.into(),
            rack: Some("rack".into()),
        };
        FetchResponse {
            responses: (0..2).map(topic).collect(),
            node_endpoints: given.map(endpoint).into_iter().collect(),
            ..Default::default()
        }
    }

    /// With the size in front.
    fn encoded(message: &FetchResponse, version: i16) -> Vec<u8> {
        let mut writer = frame::begin();
        let header = ResponseHeader { correlation_id: 7 };
        header.encode(&mut writer, response_header_version(FetchResponse::API_KEY, version));
        message.encode(&mut writer, version).unwrap();
        frame::finish(writer).unwrap().concat()
    }

    fn decoded(frame: Vec<u8>, version: i16) -> FetchResponse {
        let mut reader = Reader::new(Bytes::from(frame).slice(SIZE..));
        ResponseHeader::decode(&mut reader, 1).unwrap();
        FetchResponse::decode(&mut reader, version).unwrap()
    }

    /// What passes when the frame arrives in parts of this size.
    fn passed(frame: &[u8], version: i16, part: usize, other: &'static str) -> Vec<u8> {
        let table = table(FetchResponse::API_KEY).unwrap();
        let mut tail = Tail::of(&table, version, frame.len()).unwrap();
        let mut out = Vec::new();
        for part in frame.chunks(part) {
            assert!(!tail.is_over());
            let pieces = tail.pass(Bytes::copy_from_slice(part), &mut Other(other)).unwrap();
            pieces.iter().for_each(|piece| out.extend_from_slice(piece));
        }
        assert!(tail.is_over());
        out
    }

    #[test]
    fn only_the_addresses_change_however_a_frame_arrives() {
        for version in 16..=FetchResponse::MAX_VERSION {
            let plain = encoded(&response(None), version);
            let real = encoded(&response(Some(("real", 9092))), version);
            let mine = encoded(&response(Some(("mine", 9093))), version);
            for part in [1, 7, 1000, 16_384, 1 << 20] {
                assert!(passed(&plain, version, part, "mine") == plain, "{version} {part}");
                assert!(passed(&real, version, part, "mine") == mine, "{version} {part}");
            }
        }
    }

    #[test]
    fn an_address_of_another_length_is_hidden_and_the_frame_keeps_its_size() {
        let real = encoded(&response(Some(("real", 9092))), 17);
        for other in ["me", "proxy.example.org"] {
            let found = passed(&real, 17, 5000, other);
            assert_eq!(found.len(), real.len());
            assert!(decoded(found, 17) == decoded(encoded(&response(None), 17), 17));
        }
    }

    /// A node that answers one request, a client that sends it through a proxy.
    #[test]
    fn a_large_response_passes_a_proxy_with_the_address_of_one_of_its_ports() {
        let node = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = node.local_addr().unwrap().port();
        let frame = encoded(&response(Some(("127.0.0.1", port))), 17);
        let answer = frame.clone();
        let served = std::thread::spawn(move || {
            let (mut socket, _) = node.accept().unwrap();
            socket.read_exact(&mut [0; 14]).unwrap();
            socket.write_all(&answer).unwrap();
            socket
        });
        let proxy = Proxy::start(ProxyOptions {
            servers: vec![("127.0.0.1".to_owned(), port)],
            host: "127.0.0.1".to_owned(),
            port: 0,
            advertised: None,
            nodes: Config::parse(Scope::Consumer, []).unwrap(),
            listener: Config::parse(Scope::Broker, []).unwrap(),
            record: None,
        })
        .unwrap();
        let mut client = TcpStream::connect(proxy.bootstrap()).unwrap();
        // Size, api key 1, version 17, correlation id 7, no client id.
        client
            .write_all(&[0, 0, 0, 10, 0, 1, 0, 17, 0, 0, 0, 7, 0xff, 0xff])
            .unwrap();
        let mut found = vec![0; frame.len()];
        client.read_exact(&mut found).unwrap();
        drop(served.join());
        let (found, expected) = (decoded(found, 17), decoded(frame, 17));
        assert!(found.responses == expected.responses);
        let given = &found.node_endpoints[0];
        assert_eq!((&*given.host, given.node_id), ("127.0.0.1", 4));
        assert_ne!(given.port, i32::from(port));
    }

    #[test]
    fn small_frames_and_other_responses_are_collected() {
        let fetch = table(FetchResponse::API_KEY).unwrap();
        assert!(Tail::of(&fetch, 17, SMALL).is_none());
        assert!(Tail::of(&fetch, 11, SMALL + 1).is_none());
        let metadata = table(MetadataResponse::API_KEY).unwrap();
        assert!(Tail::of(&metadata, 12, SMALL + 1).is_none());
    }

    #[test]
    fn a_frame_that_is_cut_short_is_an_error() {
        let real = encoded(&response(None), 17);
        let table = table(FetchResponse::API_KEY).unwrap();
        let mut tail = Tail::of(&table, 17, 70_000).unwrap();
        assert!(
            tail.pass(Bytes::copy_from_slice(&real[..70_000]), &mut Other("mine"))
                .is_err()
        );
    }
}
