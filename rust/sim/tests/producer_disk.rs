//! A producer whose broker cannot write: what its calls return, and that every call comes to an end (reliability C23).

use std::path::Path;
use std::sync::Arc;

use crate::producer_harness::Bench;
use fletchlog_api::{Clock, Config, ErrorCode, Scope};
use fletchlog_broker::{Broker, LocalTransport, OpenOptions};
use fletchlog_client::ClientError;
use fletchlog_sim::sim_disk::{Fault, SimDisk};
use fletchlog_sim::stepped::{decide, never};
use fletchlog_testing::VirtualClock;

const ROOT: &str = "/data";
const TIMES: [(&str, &str); 3] = [
    ("request.timeout.ms", "100"),
    ("delivery.timeout.ms", "300"),
    ("max.block.ms", "200"),
];

struct Cluster {
    disk: SimDisk,
    broker: Arc<Broker>,
    clock: Arc<VirtualClock>,
}

impl Cluster {
    /// A broker with topic `t` of 2 partitions, at the level at which a failed fsync counts.
    fn new() -> Self {
        let (disk, clock) = (SimDisk::with_dirs(&[Path::new(ROOT)]), VirtualClock::new());
        let properties = [
            ("fletchlog.durability", "fsync"),
            ("transaction.state.log.num.partitions", "1"),
            ("offsets.topic.num.partitions", "1"),
        ];
        let options = OpenOptions {
            nodes: Some(1),
            named_nodes: Vec::new(),
            read_only: false,
            config: Config::parse(Scope::Broker, properties).unwrap(),
        };
        let broker = Broker::open_in(Arc::new(disk.clone()), Path::new(ROOT), options, clock.clone()).unwrap();
        broker.create_topic("t", 2, &[]).unwrap();
        Self { disk, broker, clock }
    }

    fn producer(&self, config: &[(&str, &str)]) -> Bench {
        let all = [&TIMES, config].concat();
        let faults = crate::producer_harness::faults::scripted([]);
        Bench::new(LocalTransport::new(self.broker.clone()), &self.clock, faults, &all)
    }

    fn transactional(&self) -> Bench {
        let bench = self.producer(&[("transactional.id", "id")]);
        bench.producer.init_transactions(&mut never).unwrap();
        bench
    }

    /// An fsync of partition 1 fails: nothing is written to it until the broker is reopened.
    fn fence_partition_1(&self) {
        let mut bench = self.producer(&[]);
        self.disk.set_broken(Some(Fault::Io));
        let future = bench.send(1, b"lost");
        bench.producer.flush(&mut never).unwrap();
        assert!(future.try_result().unwrap().is_err());
        self.disk.set_broken(None);
    }
}

fn storage_error(result: Result<(), ClientError>) -> String {
    match result {
        Err(ClientError::Kafka {
            code: ErrorCode::KAFKA_STORAGE_ERROR,
            message,
        }) => message,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_room_for_a_producer_id_records_fail_in_time_and_name_the_file() {
    let cluster = Cluster::new();
    let mut bench = cluster.producer(&[("enable.idempotence", "true")]);
    cluster.disk.set_broken(Some(Fault::Full));
    let future = bench.send(0, b"v");
    let start = cluster.clock.monotonic_ms();
    bench.producer.flush(&mut never).unwrap();
    assert_eq!(cluster.clock.monotonic_ms() - start, 300);
    let error = future.try_result().unwrap().unwrap_err();
    assert!(matches!(error, ClientError::Timeout(_)), "{error}");
    for part in ["/data/fletchlog.metadata", "No space left on device"] {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    cluster.disk.set_broken(None);
    let future = bench.send(0, b"v");
    bench.producer.flush(&mut never).unwrap();
    assert_eq!(future.try_result().unwrap().unwrap().offset, 0);
}

#[test]
fn without_room_for_records_they_fail_in_time_and_name_the_file() {
    let cluster = Cluster::new();
    let mut bench = cluster.producer(&[]);
    cluster.disk.set_broken(Some(Fault::Full));
    let future = bench.send(0, b"v");
    bench.producer.flush(&mut never).unwrap();
    let error = future.try_result().unwrap().unwrap_err().to_string();
    assert!(
        error.contains("/data/t-0") && error.contains("No space left on device"),
        "{error}"
    );
}

#[test]
fn a_transaction_that_cannot_be_written_any_more_ends_its_producer() {
    for committed in [true, false] {
        let cluster = Cluster::new();
        let mut bench = cluster.transactional();
        bench.producer.begin_transaction().unwrap();
        let future = bench.send(0, b"v");
        bench.producer.flush(&mut never).unwrap();
        assert!(future.try_result().unwrap().is_ok());
        cluster.disk.set_broken(Some(Fault::Io));
        let start = cluster.clock.monotonic_ms();
        // The first attempt fails, the second finds the log fenced.
        let message = storage_error(decide(&bench.producer, committed));
        assert!(
            message.contains("__transaction_state-0") && message.contains("reopen"),
            "{message}"
        );
        assert!(
            cluster.clock.monotonic_ms() - start <= 100,
            "nothing was waited for but the back-off"
        );
        cluster.disk.set_broken(None);
        storage_error(decide(&bench.producer, committed));
        storage_error(bench.producer.begin_transaction());
    }
}

#[test]
fn records_of_a_transaction_that_cannot_be_begun_fail_and_name_the_log() {
    let cluster = Cluster::new();
    let mut bench = cluster.transactional();
    bench.producer.begin_transaction().unwrap();
    cluster.disk.set_broken(Some(Fault::Io));
    let future = bench.send(0, b"v");
    bench.producer.flush(&mut never).unwrap();
    let message = storage_error(future.try_result().unwrap().map(drop));
    assert!(message.contains("__transaction_state-0"), "{message}");
}

#[test]
fn after_a_marker_that_cannot_be_written_the_next_transaction_names_the_partition() {
    let cluster = Cluster::new();
    let mut bench = cluster.transactional();
    bench.producer.begin_transaction().unwrap();
    bench.send(0, b"v");
    bench.send(1, b"v");
    bench.producer.flush(&mut never).unwrap();
    cluster.fence_partition_1();
    // The decision is written, so it stands.
    bench.producer.commit_transaction(&mut never).unwrap();
    bench.producer.begin_transaction().unwrap();
    let future = bench.send(0, b"v");
    bench.producer.flush(&mut never).unwrap();
    let message = storage_error(future.try_result().unwrap().map(drop));
    assert!(message.contains("/data/t-1") && message.contains("reopen"), "{message}");
}
