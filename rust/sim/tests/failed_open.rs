//! A broker whose disk fails a call while it is opened, or when a log is looked at first (reliability C14, C18): it says so, or it knows
//! everything.

use std::path::Path;
use std::sync::Arc;

use crate::broker_disk::{TOPIC, append, new_disk, open_with};
use fletchlog_api::{InitProducerIdRequest, InitProducerIdResponse, MetadataRequest, Request, Response, Transport};
use fletchlog_broker::{Broker, BrokerError, LocalTransport};
use fletchlog_log::fs::Fs;
use fletchlog_records::TopicPartition;
use fletchlog_sim::sim_disk::{Fault, SimDisk};

fn open(disk: &SimDisk) -> Result<Arc<Broker>, BrokerError> {
    open_with(disk, 1, &[("transaction.state.log.num.partitions", "3")])
}

fn init_producer(broker: &Arc<Broker>) -> InitProducerIdResponse {
    let mut transport = LocalTransport::new(broker.clone());
    let request = InitProducerIdRequest {
        transactional_id: Some("id".into()),
        transaction_timeout_ms: 60_000,
        producer_id: -1,
        producer_epoch: -1,
        ..Default::default()
    };
    transport.send(1, 0, Request::InitProducerId(request));
    match transport.receive(1).unwrap().result {
        Ok(Response::InitProducerId(response)) => response,
        other => panic!("{other:?}"),
    }
}

/// A disk with one record, and what a transactional id has; its broker was stopped, or killed.
fn prepare(clean: bool) -> (SimDisk, InitProducerIdResponse) {
    let disk = new_disk();
    let broker = open(&disk).unwrap();
    broker.create_topic(TOPIC, 1, &[]).unwrap();
    append(&broker, &TopicPartition::new(TOPIC, 0), b"value").unwrap();
    let producer = init_producer(&broker);
    if clean {
        broker.close().unwrap();
    }
    drop(broker);
    (SimDisk::from(disk.state()), producer)
}

/// For every fault at every call of `what`, until it meets none.
fn at_every_call(clean: bool, what: impl Fn(&SimDisk, &dyn Fn(), &InitProducerIdResponse)) {
    for fault in Fault::ALL {
        for call in 0.. {
            let (disk, producer) = prepare(clean);
            what(&disk, &|| disk.fail(disk.calls() + call, fault), &producer);
            if disk.failed().is_none() {
                break;
            }
        }
    }
}

#[test]
fn a_broker_that_opens_knows_its_transactional_ids() {
    for clean in [true, false] {
        at_every_call(clean, |disk, fail, before| {
            fail();
            let Ok(broker) = open(disk) else { return };
            disk.fail(u64::MAX, Fault::Io);
            let after = init_producer(&broker);
            // What is fenced is an error until it is opened again.
            if after.producer_id >= 0 {
                let bumped = (before.producer_id, before.producer_epoch + 1);
                assert_eq!((after.producer_id, after.producer_epoch), bumped, "{:?}", disk.failed());
            }
        });
    }
}

#[test]
fn a_topic_that_cannot_be_looked_at_is_not_empty() {
    at_every_call(true, |disk, fail, _| {
        let broker = open(disk).unwrap();
        fail();
        if let Ok(described) = broker.describe_topic(TOPIC) {
            let end = described.partitions[0].high_watermark;
            assert!(end == 1 || end == -1, "{end}, {:?}", disk.failed());
        }
    });
}

/// The leader epoch that a client gets in the metadata, -1 for none.
fn leader_epoch(broker: &Arc<Broker>) -> i32 {
    let mut transport = LocalTransport::new(broker.clone());
    let request = MetadataRequest::for_topics(Some(vec![TOPIC.into()]), false);
    transport.send(1, 0, Request::Metadata(request));
    match transport.receive(1).unwrap().result {
        Ok(Response::Metadata(response)) => response.topics[0].partitions[0].leader_epoch,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_leader_epoch_that_cannot_be_read_does_not_go_back() {
    at_every_call(true, |disk, fail, _| {
        let path = Path::new("/data/t-0/leader-epoch-checkpoint");
        let file = disk.open(path, true, true).unwrap();
        file.set_len(0).unwrap();
        file.write_at(0, b"0\n1\n5 0\n").unwrap();
        let broker = open(disk).unwrap();
        fail();
        assert!([-1, 5].contains(&leader_epoch(&broker)), "{:?}", disk.failed());
        disk.fail(u64::MAX, Fault::Io);
        assert_eq!(leader_epoch(&broker), 5, "{:?}", disk.failed());
    });
}
