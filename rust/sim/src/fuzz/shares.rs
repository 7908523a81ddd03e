//! Requests of share groups with any numbers in them, also those between the leader of a partition and the share coordinator: whatever
//! members and coordinators say, no range is acquired twice, no count goes beyond its limit, and a broker that is killed serves the rest.

use std::path::Path;
use std::sync::Arc;

use fletchlog_api::{Config, Request, Scope, TopicId};
use fletchlog_broker::panics::CONTAINED;
use fletchlog_broker::{Broker, OpenOptions};
use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_protocol::messages::*;
use fletchlog_records::TopicPartition;
use fletchlog_testing::VirtualClock;

use super::{Input, NOW_MS};
use crate::port_client::PortClient;
use crate::shared_group::{GROUP, PARTITIONS, TOPIC, batch, heartbeat, partition};

const ROOT: &str = "/data";
const MEMBERS: [&str; 2] = ["m-0", "m-1"];
/// More steps than an input needs to say something.
const MOST_STEPS: usize = 60;
const MOST_DELIVERIES: u16 = 5;

struct World {
    fs: Arc<dyn Fs>,
    clock: Arc<VirtualClock>,
    /// `None` only while it is opened again.
    broker: Option<Arc<Broker>>,
    clients: Vec<PortClient>,
    topic_id: TopicId,
}

/// A number: mostly a small one, else one at the edge, or any.
fn number(input: &mut Input<'_>) -> i64 {
    match input.byte() {
        byte @ 0..=0xdf => i64::from(byte % 32) - 1,
        0xe0..=0xe7 => i64::MAX,
        0xe8..=0xeb => i64::MIN,
        _ => input.i64(),
    }
}

fn small(input: &mut Input<'_>) -> i32 {
    let number = number(input);
    i32::try_from(number).unwrap_or(if number < 0 { i32::MIN } else { i32::MAX })
}

fn open(fs: &Arc<dyn Fs>, clock: &Arc<VirtualClock>) -> Arc<Broker> {
    let config = [
        ("offsets.topic.num.partitions", "1"),
        ("share.coordinator.state.topic.num.partitions", "1"),
        ("share.coordinator.snapshot.update.records.per.snapshot", "4"),
        ("group.share.assignment.interval.ms", "0"),
        ("group.share.min.record.lock.duration.ms", "1000"),
        ("group.share.record.lock.duration.ms", "1000"),
        ("group.share.partition.max.record.locks", "100"),
    ];
    let options = OpenOptions {
        nodes: None,
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, config).unwrap(),
    };
    Broker::open_in(Arc::clone(fs), Path::new(ROOT), options, Arc::clone(clock) as _).unwrap()
}

fn clients(broker: &Arc<Broker>) -> Vec<PortClient> {
    MEMBERS.iter().map(|_| PortClient::new(broker)).collect()
}

/// `[step u8] ..`: every step is a request, an append, or time that passes.
pub(super) fn shares(data: &[u8]) {
    CONTAINED.set(0);
    let mut input = Input(data);
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_clock(Arc::new(|| NOW_MS)));
    fs.create_dir_all(Path::new(ROOT)).unwrap();
    let clock = VirtualClock::at(NOW_MS);
    let broker = open(&fs, &clock);
    broker.create_topic(TOPIC, PARTITIONS, &[]).unwrap();
    let topic_id = broker.topic_id(TOPIC).unwrap().unwrap();
    let mut world = World {
        clients: clients(&broker),
        fs,
        clock,
        broker: Some(broker),
        topic_id,
    };
    for number in 0..PARTITIONS {
        world.initialize(number, 1, 0);
        world.broker().append_batches(&partition(number), batch(7)).unwrap();
    }
    for _ in 0..MOST_STEPS {
        if input.is_empty() {
            break;
        }
        world.step(&mut input);
        world.check();
    }
    world.reopen();
    world.check();
    for who in 0..MEMBERS.len() {
        let _ = world.clients[who].ask(Request::ShareFetch(world.fetch(who, 0, 100)));
    }
    world.check();
    assert_eq!(CONTAINED.get(), 0, "a panic of the broker");
}

impl World {
    fn broker(&self) -> &Arc<Broker> {
        self.broker.as_ref().unwrap()
    }

    fn reopen(&mut self) {
        // The killed one lets go of its directory.
        self.clients.clear();
        self.broker = None;
        let broker = open(&self.fs, &self.clock);
        self.clients = clients(&broker);
        self.broker = Some(broker);
    }

    fn initialize(&self, number: i32, state_epoch: i32, start_offset: i64) {
        use initialize_share_group_state_request as init;
        let request = InitializeShareGroupStateRequest {
            group_id: GROUP.into(),
            topics: vec![init::InitializeStateData {
                topic_id: self.topic_id,
                partitions: vec![init::PartitionData {
                    partition: number,
                    state_epoch,
                    start_offset,
                }],
            }],
        };
        let _ = self.broker().initialize_state(&request);
    }

    fn fetch(&self, who: usize, epoch: i32, most: i32) -> ShareFetchRequest {
        let partition = |partition_index| share_fetch_request::FetchPartition {
            partition_index,
            ..Default::default()
        };
        ShareFetchRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(MEMBERS[who].into()),
            share_session_epoch: epoch,
            max_bytes: 1 << 20,
            max_records: most,
            batch_size: most,
            topics: vec![share_fetch_request::FetchTopic {
                topic_id: self.topic_id,
                partitions: (0..PARTITIONS).map(partition).collect(),
            }],
            ..Default::default()
        }
    }

    fn step(&mut self, input: &mut Input<'_>) {
        let (kind, who) = (input.byte(), usize::from(input.byte() & 1));
        match kind % 12 {
            0 | 1 => {
                let request = self.any_fetch(who, input);
                let _ = self.clients[who].ask(Request::ShareFetch(request));
            }
            2..4 => {
                let request = self.any_acknowledge(who, input);
                let _ = self.clients[who].ask(Request::ShareAcknowledge(request));
            }
            4 => drop(
                self.broker()
                    .append_batches(&partition(i32::from(input.byte() & 1)), batch(3)),
            ),
            5 => {
                self.clock.advance(i64::from(input.byte()) * 20);
                self.broker().run_due();
            }
            6 => self.write_state(input),
            7 => self.initialize(small(input), small(input), number(input)),
            8 => self.other_state(input),
            9 => {
                let epoch = small(input);
                let _ = self.clients[who].ask(Request::ShareGroupHeartbeat(heartbeat(MEMBERS[who], epoch)));
            }
            10 => drop(
                self.broker()
                    .delete_records(&TopicPartition::new(TOPIC, 0), Some(number(input))),
            ),
            _ => self.reopen(),
        }
    }

    fn any_fetch(&self, who: usize, input: &mut Input<'_>) -> ShareFetchRequest {
        let mut request = self.fetch(who, small(input), small(input));
        let flags = input.byte();
        request.batch_size = if flags & 1 == 1 {
            small(input)
        } else {
            request.batch_size
        };
        request.max_bytes = if flags & 2 == 2 {
            small(input)
        } else {
            request.max_bytes
        };
        request.share_acquire_mode = i8::from(flags & 4 == 4);
        request.is_renew_ack = flags & 8 == 8;
        if flags & 16 == 16 {
            let topic = &mut request.topics[0];
            let at = usize::from(input.byte() & 1);
            topic.partitions[at].acknowledgement_batches = (0..flags >> 6)
                .map(|_| share_fetch_request::AcknowledgementBatch {
                    first_offset: number(input),
                    last_offset: number(input),
                    acknowledge_types: types(input),
                })
                .collect();
        }
        request
    }

    fn any_acknowledge(&self, who: usize, input: &mut Input<'_>) -> ShareAcknowledgeRequest {
        use share_acknowledge_request as ack;
        let (epoch, flags) = (small(input), input.byte());
        let batches = (0..1 + flags % 3).map(|_| ack::AcknowledgementBatch {
            first_offset: number(input),
            last_offset: number(input),
            acknowledge_types: types(input),
        });
        ShareAcknowledgeRequest {
            group_id: Some(GROUP.into()),
            member_id: Some(MEMBERS[who].into()),
            share_session_epoch: epoch,
            is_renew_ack: flags & 0x80 == 0x80,
            topics: vec![ack::AcknowledgeTopic {
                topic_id: self.topic_id,
                partitions: vec![ack::AcknowledgePartition {
                    partition_index: i32::from(flags >> 6 & 1),
                    acknowledgement_batches: batches.collect(),
                }],
            }],
            ..Default::default()
        }
    }

    fn write_state(&self, input: &mut Input<'_>) {
        use write_share_group_state_request as write;
        let batches = 1 + input.byte() % 3;
        let partition = write::PartitionData {
            partition: i32::from(input.byte() & 1),
            state_epoch: small(input),
            leader_epoch: small(input),
            start_offset: number(input),
            delivery_complete_count: small(input),
            state_batches: (0..batches)
                .map(|_| write::StateBatch {
                    first_offset: number(input),
                    last_offset: number(input),
                    delivery_state: input.byte().cast_signed() % 8,
                    delivery_count: i16::from(input.byte() % 6),
                })
                .collect(),
        };
        let request = WriteShareGroupStateRequest {
            group_id: GROUP.into(),
            topics: vec![write::WriteStateData {
                topic_id: self.topic_id,
                partitions: vec![partition],
            }],
        };
        let _ = self.broker().write_state(&request);
    }

    fn other_state(&self, input: &mut Input<'_>) {
        let (kind, partition) = (input.byte(), small(input));
        if kind & 1 == 1 {
            let topics = vec![delete_share_group_state_request::DeleteStateData {
                topic_id: self.topic_id,
                partitions: vec![delete_share_group_state_request::PartitionData { partition }],
            }];
            let request = DeleteShareGroupStateRequest {
                group_id: GROUP.into(),
                topics,
            };
            let _ = self.broker().delete_state(&request);
            return;
        }
        let topics = vec![read_share_group_state_request::ReadStateData {
            topic_id: self.topic_id,
            partitions: vec![read_share_group_state_request::PartitionData {
                partition,
                leader_epoch: small(input),
            }],
        }];
        let request = ReadShareGroupStateRequest {
            group_id: GROUP.into(),
            topics,
        };
        let _ = self.broker().read_state(&request);
    }

    /// What is in flight is in order, each range has one state, and an acquired one has a member and a lock.
    fn check(&self) {
        let states = self.broker().share_state(GROUP, TOPIC).unwrap();
        for (before, after) in states.iter().zip(&states[1.min(states.len())..]) {
            let in_order = before.partition < after.partition || before.last_offset < after.first_offset;
            assert!(in_order, "{before:?}, then {after:?}");
        }
        for state in &states {
            assert!(state.first_offset <= state.last_offset, "{state:?}");
            let is_acquired = state.state == "Acquired";
            let is_held = state.member_id.is_some() && state.lock_left_ms.is_some();
            assert!(is_held || state.member_id.is_none(), "{state:?}");
            // A persisted Acquired has no member: no broker writes it.
            assert!(!is_held || is_acquired, "{state:?}");
            assert!(!is_held || state.delivery_count <= MOST_DELIVERIES + 1, "{state:?}");
        }
    }
}

fn types(input: &mut Input<'_>) -> Vec<i8> {
    let byte = input.byte();
    match byte >> 6 {
        0..3 => vec![i8::try_from(byte % 6).unwrap_or(0)],
        _ => input
            .take(usize::from(byte % 8))
            .iter()
            .map(|t| i8::try_from(t % 6).unwrap_or(0))
            .collect(),
    }
}
