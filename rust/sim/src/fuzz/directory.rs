//! A broker's directory with damaged, missing and unknown files: it opens or reports why not, and the records that it then serves are valid
//! and stay the same.

use std::path::Path;
use std::sync::{Arc, LazyLock};

use bytes::Bytes;
use fletchlog_api::transport::Transport;
use fletchlog_api::{
    Config, InitProducerIdRequest, OffsetAndMetadata, OffsetCommitRequest, OffsetFetchRequest, Request, Response, Scope,
};
use fletchlog_broker::{Broker, BrokerError, LocalTransport, OpenOptions};
use fletchlog_log::fs::{Fs, MemoryFs};
use fletchlog_log::{FetchBound, PartitionLog};
use fletchlog_records::{BatchBuilder, BatchIter, BatchParams, Compression, TopicPartition};

use super::{Files, Input, NOW_MS, files, scan};
use fletchlog_testing::VirtualClock;

const ROOT: &str = "/data";
/// Names that may be in a damaged or unknown directory, in a log or beside it.
const NAMES: [&str; 16] = [
    "00000000000000000000.log.swap",
    "00000000000000000000.log.cleaned",
    "00000000000000000002.log.deleted",
    "00000000000000000001.log",
    "00000000000000000099.log",
    "09223372036854775807.log",
    "99999999999999999999.log",
    "00000000000000000000.snapshot",
    "00000000000000000099.snapshot",
    "00000000000000000000.txnindex",
    "00000000000000000099.index",
    "leader-epoch-checkpoint",
    "../recovery-point-offset-checkpoint",
    "../log-start-offset-checkpoint",
    "../.kafka_cleanshutdown",
    "../orders-7/00000000000000000000.log",
];

fn open(fs: Arc<dyn Fs>, read_only: bool) -> Result<Arc<Broker>, BrokerError> {
    let config = [
        ("offsets.topic.num.partitions", "1"),
        ("transaction.state.log.num.partitions", "1"),
    ];
    let options = OpenOptions {
        nodes: None,
        named_nodes: Vec::new(),
        read_only,
        config: Config::parse(Scope::Broker, config).unwrap(),
    };
    Broker::open_in(fs, Path::new(ROOT), options, VirtualClock::at(NOW_MS))
}

fn ask(broker: &Arc<Broker>, request: Request) -> Option<Response> {
    let mut transport = LocalTransport::new(Arc::clone(broker));
    transport.send(1, 1, request);
    transport.receive(1)?.result.ok()
}

/// A valid directory: a topic with two partitions, one of them compressed, a group's offsets and a transactional producer.
static SOUND: LazyLock<Files> = LazyLock::new(|| {
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_clock(Arc::new(|| NOW_MS)));
    let broker = open(Arc::clone(&fs), false).unwrap();
    let small = [("segment.bytes".to_owned(), "300".to_owned())];
    broker.create_topic("orders", 2, &small).unwrap();
    for i in 0..6 {
        let mut builder = BatchBuilder::with_capacity(256);
        builder.append(NOW_MS + i, Some(b"key"), Some(b"some value"), &[]);
        builder.append(NOW_MS + i, None, None, &[]);
        let compression = if i % 2 == 0 {
            Compression::None
        } else {
            Compression::Lz4
        };
        let params = BatchParams {
            compression,
            ..BatchParams::default()
        };
        let tp = TopicPartition::new("orders", i32::try_from(i / 4).unwrap());
        broker.append_batches(&tp, builder.build(&params)).unwrap();
    }
    assert!(ask(&broker, Request::InitProducerId(init_producer_id())).is_some());
    let offset = OffsetAndMetadata {
        offset: 3,
        leader_epoch: 0,
        metadata: "".into(),
    };
    let commit = OffsetCommitRequest {
        group_id: "readers".into(),
        topics: OffsetCommitRequest::topics_of([(TopicPartition::new("orders", 0), offset)]),
        ..Default::default()
    };
    assert!(ask(&broker, Request::OffsetCommit(commit)).is_some());
    broker.close().unwrap();
    let files = files(&*fs, Path::new(ROOT));
    assert!(files.len() > 20, "{files:?}");
    files
});

/// `[mode u8] [changes]`: the directory after the changes is opened for reading (bit 0) or writing.
pub(super) fn directory(data: &[u8]) {
    let mut input = Input(data);
    let read_only = input.byte() & 1 == 1;
    let mut changed = SOUND.clone();
    while !input.is_empty() {
        change(&mut changed, &mut input);
    }
    let fs: Arc<dyn Fs> = Arc::new(MemoryFs::with_clock(Arc::new(|| NOW_MS)));
    fs.create_dir_all(Path::new(ROOT)).unwrap();
    for (path, bytes) in &changed {
        fs.create_dir_all(path.parent().unwrap()).unwrap();
        fs.replace(path, bytes).unwrap();
    }
    let before = files(&*fs, Path::new(ROOT));
    let Ok(broker) = open(Arc::clone(&fs), read_only) else {
        if read_only {
            assert_eq!(files(&*fs, Path::new(ROOT)), before);
        }
        return;
    };
    let served = serve(&broker);
    if read_only {
        assert_eq!(files(&*fs, Path::new(ROOT)), before, "a read-only broker never writes");
        return;
    }
    if broker.close().is_err() {
        return;
    }
    drop(broker);
    // After a clean stop the same records are served: the first recovery was complete.
    let again = serve(&open(Arc::clone(&fs), false).unwrap());
    assert_eq!(ends(&again), ends(&served));
    assert!(again == served, "the same offsets, but other bytes");
}

/// One change: `[change and file u16] ...`.
fn change(files: &mut Files, input: &mut Input<'_>) {
    let choice = usize::from(input.u16());
    let count = files.len().max(1);
    let at = choice / 8 % count;
    let Some((path, bytes)) = files.get_mut(at) else { return };
    match choice % 8 {
        0 => {
            files.remove(at);
        }
        1 => bytes.truncate(usize::from(input.u16())),
        2 | 3 => {
            let from = usize::from(input.u16()) % (bytes.len() + 1);
            let patch = input.take(choice / 8 / count % 16 + 1);
            for (byte, patch) in bytes[from..].iter_mut().zip(patch) {
                *byte = *patch;
            }
        }
        4 => {
            let len = usize::from(input.byte());
            *bytes = input.take(len).to_vec();
        }
        5 => {
            let len = usize::from(input.byte());
            bytes.extend_from_slice(input.take(len));
        }
        _ => {
            let name = NAMES[usize::from(input.byte()) % NAMES.len()];
            let bytes = bytes.clone();
            let dir = path.parent().unwrap().to_path_buf();
            let path = match name.strip_prefix("../") {
                Some(name) => dir
                    .parent()
                    .filter(|dir| dir.starts_with(ROOT))
                    .unwrap_or(&dir)
                    .join(name),
                None => dir.join(name),
            };
            files.retain(|(other, _)| *other != path);
            files.push((path, bytes));
        }
    }
}

/// Per partition of the user's topics: log start, log end, and the bytes between as far as they can be read.
type Served = Vec<(TopicPartition, i64, i64, Vec<Bytes>)>;

fn ends(served: &Served) -> Vec<(&TopicPartition, i64, i64)> {
    served.iter().map(|(tp, start, end, _)| (tp, *start, *end)).collect()
}

fn serve(broker: &Arc<Broker>) -> Served {
    let mut served = Vec::new();
    for topic in broker.topics(true).unwrap() {
        let mut logs = Vec::new();
        for partition in 0..i32::try_from(partitions(broker, &topic)).unwrap() {
            let tp = TopicPartition::new(Arc::clone(&topic), partition);
            let Ok(log) = broker.partition_log(&tp) else { continue };
            let found = read_all(&log);
            logs.push(Arc::clone(&log));
            // The coordinators write to their own topics.
            if !topic.starts_with("__") {
                served.push((tp, log.log_start_offset(), log.log_end_offset(), found));
            }
        }
        scan::every_way(&logs);
    }
    ask_coordinators(broker);
    served
}

/// Makes the coordinators read the remains of their topics.
fn ask_coordinators(broker: &Arc<Broker>) {
    let committed = OffsetFetchRequest::of("readers".into(), None, false);
    ask(broker, Request::OffsetFetch(committed));
    ask(broker, Request::InitProducerId(init_producer_id()));
}

fn init_producer_id() -> InitProducerIdRequest {
    InitProducerIdRequest {
        transactional_id: Some("billing".into()),
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    }
}

fn partitions(broker: &Broker, topic: &str) -> usize {
    broker.describe_topic(topic).map_or(0, |topic| topic.partitions.len())
}

/// The bytes of successive reads, up to the first that fails. A damaged log may fail, but never repeats an offset, goes back or returns
/// bytes that are not a batch.
fn read_all(log: &PartitionLog) -> Vec<Bytes> {
    let mut found = Vec::new();
    let mut offset = log.log_start_offset();
    while offset < log.high_watermark() {
        let Ok(fetched) = log.read(offset, 1 << 20, true, FetchBound::HighWatermark) else {
            break;
        };
        let before = offset;
        for batch in BatchIter::new(fetched.records.clone()) {
            let Ok(batch) = batch else { return found };
            offset = offset.max(batch.header().next_offset());
        }
        if offset == before {
            break;
        }
        found.push(fetched.records);
    }
    for time in [-3, -2, -1, 0, NOW_MS, i64::MAX] {
        let _ = log.fetch_offset_by_timestamp(time, FetchBound::LogEnd);
    }
    let _ = log.read(log.log_start_offset(), 1, true, FetchBound::LastStableOffset);
    found
}
