use fletchlog_api::transport::SystemClock;
use fletchlog_api::{ErrorCode, Scope};
use fletchlog_log::checkpoint::read_offset_checkpoint;
use fletchlog_log::file_name::LOG_START_OFFSET_CHECKPOINT;
use fletchlog_records::TopicPartition;

use super::*;
use crate::broker::only;
use crate::partition::Partition;
use crate::{Broker, OpenOptions};

fn broker() -> Arc<Broker> {
    let options = OpenOptions {
        nodes: None,
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, []).unwrap(),
    };
    let broker = Broker::in_memory(options, Arc::new(SystemClock::default())).unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    broker
}

#[test]
fn a_call_that_still_holds_a_partition_of_a_deleted_topic_makes_nothing_that_a_new_one_would_find() {
    let broker = broker();
    // Like an append or a creation that runs at the same time.
    let held = broker.replicas().partition(&TopicPartition::new("t", 0)).unwrap();
    broker.delete_topic("t").unwrap();
    for refused in [
        held.stamp_topic_id(broker.replicas().controller().logs.directory()),
        broker.replicas().log_of(&held).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    assert!(!broker.replicas().controller().logs.directory().fs().exists(held.dir()));
    broker.create_topic("t", 1, &[]).unwrap();
    broker.partition_log(held.tp()).unwrap();
}

#[test]
fn a_call_that_still_deletes_records_of_a_deleted_topic_does_not_move_the_start_of_a_new_one() {
    let broker = broker();
    let held = broker.replicas().partition(&TopicPartition::new("t", 0)).unwrap();
    broker.delete_topic("t").unwrap();
    broker.create_topic("t", 1, &[]).unwrap();
    broker.partition_log(held.tp()).unwrap();
    let nothing = |_: &Partition, _| -> Result<(), BrokerError> { panic!("nothing is to hold") };
    let starts = [(Arc::clone(&held), 7)];
    let refused = only(
        broker
            .replicas()
            .controller()
            .logs
            .write_checkpoints_for(&starts, nothing)
            .unwrap(),
    );
    assert_eq!(refused.unwrap_err().code(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let path = held.dir().with_file_name(LOG_START_OFFSET_CHECKPOINT);
    let starts = read_offset_checkpoint(&**broker.replicas().controller().logs.directory().fs(), &path).unwrap();
    assert_eq!(starts.get(held.tp()), None);
}

#[test]
fn what_goes_over_all_topics_passes_by_one_that_is_deleted_meanwhile() {
    let broker = broker();
    let held = broker.replicas().partition(&TopicPartition::new("t", 0)).unwrap();
    let log = broker.partition_log(held.tp()).unwrap();
    broker.delete_topic("t").unwrap();
    let closed = log.flush().map_err(BrokerError::from);
    assert_eq!(
        closed.as_ref().unwrap_err().code(),
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION
    );
    assert!(
        broker
            .replicas()
            .controller()
            .logs
            .ignore_if_deleted(&held, closed)
            .unwrap()
            .is_none()
    );
    broker.create_topic("t", 1, &[]).unwrap();
    let another = broker.replicas().partition(held.tp()).unwrap();
    let failed = || Err::<(), _>(BrokerError::unknown_partition(held.tp()));
    assert!(
        broker
            .replicas()
            .controller()
            .logs
            .ignore_if_deleted(&held, failed())
            .unwrap()
            .is_none()
    );
    broker
        .replicas()
        .controller()
        .logs
        .ignore_if_deleted(&another, failed())
        .unwrap_err();
}
