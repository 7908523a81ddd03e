//! Kafka's own tests of the producer's sequences, restated (spec 11.6), and the rings.

use fletchlog_api::{Config, Scope};
use fletchlog_records::BatchBuilder;

use super::*;
use crate::producer::config::ProducerConfig;
use crate::producer::memory_records_builder::MemoryRecordsBuilder;
use crate::producer::producer_batch::ProducerBatch;

const PARTITION: PartitionId = 0;

/// A closed batch of `count` records.
fn batch(batches: &mut BatchTable, count: usize) -> BatchId {
    let records = MemoryRecordsBuilder::new(1 << 20, None, BatchBuilder::with_capacity(0));
    let mut batch = ProducerBatch::new(PARTITION, 0, 0, records);
    for _ in 0..count {
        batch.try_append(0, None, Some(b"x"), &[]).unwrap();
    }
    batches.insert(batch)
}

fn error() -> ClientError {
    ClientError::Timeout("test".into())
}

struct Fixture {
    state: Idempotence,
    batches: BatchTable,
}

impl Fixture {
    fn new(release: (u32, u32)) -> Self {
        let mut batches = BatchTable::default();
        let mut state = Idempotence::new(Release::of(release), None);
        state.set_id((7, 0), &mut batches);
        Self { state, batches }
    }
    /// Drains a new batch of `count` records.
    fn drained(&mut self, count: usize) -> BatchId {
        let id = batch(&mut self.batches, count);
        assert!(!self.state.stops_drain(id, &self.batches));
        self.state.assign(id, &mut self.batches);
        id
    }
    fn numbers(&self, id: BatchId) -> (i16, i32) {
        (self.batches[id].id_and_epoch().1, self.batches[id].base_sequence())
    }
    fn turn(&mut self) -> bool {
        self.state.maybe_resolve_sequences();
        self.state.maybe_bump(&mut self.batches)
    }
}

#[test]
fn sequences_count_records_and_follow_the_order_of_draining() {
    let mut f = Fixture::new((2, 6));
    let ids = [f.drained(3), f.drained(1), f.drained(2)];
    assert_eq!(ids.map(|id| f.numbers(id)), [(0, 0), (0, 3), (0, 4)]);
    for id in ids {
        f.state.completed(id, -1, &f.batches);
    }
    assert_eq!(f.state.partitions[&PARTITION].last_acked_sequence, 5);
}

#[test]
fn without_an_id_nothing_is_drained() {
    let mut batches = BatchTable::default();
    let state = Idempotence::new(Release::of((2, 6)), None);
    let id = batch(&mut batches, 1);
    assert!(state.stops_drain(id, &batches));
}

#[test]
fn on_a_cluster_nothing_follows_the_first_batch_until_it_is_acknowledged() {
    let mut f = Fixture::new((4, 3));
    f.state.first_goes_alone = true;
    let first = f.drained(2);
    let waiting = batch(&mut f.batches, 1);
    assert!(f.state.stops_drain(waiting, &f.batches));
    assert!(!f.state.stops_drain(first, &f.batches), "it may be repeated");
    f.state.completed(first, 0, &f.batches);
    let (second, third) = (f.drained(1), f.drained(1));
    assert_eq!([second, third].map(|id| f.numbers(id)), [(0, 2), (0, 3)]);
}

#[test]
fn a_retried_batch_goes_only_as_the_first_in_flight() {
    let mut f = Fixture::new((2, 6));
    let (first, second) = (f.drained(1), f.drained(1));
    assert!(!f.state.stops_drain(first, &f.batches));
    assert!(f.state.stops_drain(second, &f.batches));
    f.state.completed(first, -1, &f.batches);
    assert!(!f.state.stops_drain(second, &f.batches));
}

#[test]
fn a_gap_behind_a_pending_batch_is_a_plain_retry_and_a_gap_at_the_next_one_bumps() {
    let mut f = Fixture::new((2, 6));
    let (first, second) = (f.drained(1), f.drained(1));
    f.state.on_out_of_order(second, &f.batches);
    assert!(!f.turn(), "the first is still pending");
    f.state.on_out_of_order(first, &f.batches);
    assert!(f.turn());
    assert_eq!(f.state.id(), Some((7, 1)));
    assert_eq!([first, second].map(|id| f.numbers(id)), [(1, 0), (1, 1)]);
    assert!(f.batches[first].reset);
    f.state.on_out_of_order(first, &f.batches);
    assert!(!f.turn(), "renumbered and not drained since: a plain retry");
    let third = f.drained(1);
    assert_eq!(f.numbers(third), (1, 2));
}

#[test]
fn a_failed_batch_renumbers_those_behind_it() {
    let mut f = Fixture::new((2, 6));
    let (first, second) = (f.drained(2), f.drained(1));
    f.state.failed(first, Failure::Other, true, &error(), &mut f.batches);
    assert!(f.turn());
    assert_eq!(f.numbers(second), (1, 0));
    f.state.failed(second, Failure::Other, false, &error(), &mut f.batches);
    assert!(!f.turn(), "retries were exhausted: the failure itself does not bump");
    f.state
        .failed(second, Failure::OutOfOrder, false, &error(), &mut f.batches);
    assert!(f.turn(), "a gap does");
}

#[test]
fn an_unknown_producer_id_without_retries_renumbers_what_is_in_flight() {
    let mut f = Fixture::new((4, 3));
    let (first, second) = (f.drained(1), f.drained(1));
    f.state
        .failed(first, Failure::UnknownProducerId, false, &error(), &mut f.batches);
    assert!(f.turn());
    assert_eq!(f.numbers(second), (1, 0));
}

#[test]
fn an_expired_retry_is_resolved_by_what_follows_or_bumps() {
    let mut f = Fixture::new((2, 6));
    let (first, second) = (f.drained(1), f.drained(1));
    f.state.failed(first, Failure::Other, false, &error(), &mut f.batches);
    f.state.mark_unresolved(first, &f.batches);
    let waiting = batch(&mut f.batches, 1);
    assert!(f.state.stops_drain(waiting, &f.batches));
    f.state.completed(second, -1, &f.batches);
    assert!(!f.turn(), "the next one was accepted, so there is no gap");
    assert!(!f.state.stops_drain(waiting, &f.batches));

    let third = f.drained(1);
    f.state.failed(third, Failure::Other, false, &error(), &mut f.batches);
    f.state.mark_unresolved(third, &f.batches);
    assert!(f.turn(), "nothing followed: nobody knows");
    let fourth = f.drained(1);
    assert_eq!(f.numbers(fourth), (1, 0));
}

#[test]
fn other_partitions_keep_their_epoch_while_they_have_batches_in_flight() {
    for (release, after) in [((2, 6), (1, 0)), ((2, 7), (1, 0))] {
        let mut f = Fixture::new(release);
        let other = f.drained(1);
        f.state.request_bump(PARTITION + 1);
        assert!(f.turn());
        assert_eq!(f.numbers(other), (0, 0));
        let new = batch(&mut f.batches, 1);
        assert!(f.state.stops_drain(new, &f.batches), "{release:?}");
        f.state.completed(other, -1, &f.batches);
        assert!(!f.state.stops_drain(new, &f.batches));
        f.state.assign(new, &mut f.batches);
        assert_eq!(f.numbers(new), after, "{release:?}");
    }
}

#[test]
fn an_idle_partition_restarts_at_0_after_a_bump_only_from_2_7_on() {
    for (release, sequence) in [((2, 6), 1), ((2, 7), 0)] {
        let mut f = Fixture::new(release);
        let done = f.drained(1);
        f.state.completed(done, -1, &f.batches);
        f.state.request_bump(PARTITION + 1);
        f.turn();
        let new = f.drained(1);
        assert_eq!(f.numbers(new), (1, sequence), "{release:?}");
    }
}

#[test]
fn the_pieces_of_a_split_share_out_the_sequences_in_place() {
    let mut f = Fixture::new((2, 6));
    let (big, behind) = (f.drained(3), f.drained(1));
    let pieces = [batch(&mut f.batches, 2), batch(&mut f.batches, 1)];
    f.state.replace_by_split(big, &pieces, &mut f.batches);
    assert_eq!(pieces.map(|id| f.numbers(id)), [(0, 0), (0, 2)]);
    assert_eq!(f.state.partitions[&PARTITION].in_flight, [pieces[0], pieces[1], behind]);
    assert!(f.state.stops_drain(pieces[1], &f.batches) && !f.state.stops_drain(pieces[0], &f.batches));
}

#[test]
fn an_unknown_producer_id_bumps_unless_the_answer_says_nothing() {
    let mut f = Fixture::new((2, 6));
    let id = f.drained(1);
    f.state.on_unknown_producer(id, -1, &mut f.batches);
    assert!(!f.turn());
    f.state.on_unknown_producer(id, 0, &mut f.batches);
    assert!(f.turn());
    f.state.on_unknown_producer(id, 0, &mut f.batches);
    assert!(!f.turn(), "renumbered already");
}

#[test]
fn used_up_epochs_ask_for_a_new_id_and_restart_with_it() {
    let mut f = Fixture::new((2, 6));
    f.state.id = Some((7, i16::MAX));
    let id = f.drained(2);
    f.state.on_out_of_order(id, &f.batches);
    assert!(!f.turn());
    assert_eq!(f.state.id(), None);
    f.state.set_id((8, 0), &mut f.batches);
    assert_eq!(
        (f.batches[id].id_and_epoch(), f.batches[id].base_sequence()),
        ((8, 0), 0)
    );
}

#[test]
fn sequences_wrap_after_31_bits() {
    let mut f = Fixture::new((2, 6));
    let first = f.drained(1);
    f.state.completed(first, -1, &f.batches);
    f.state.partitions.get_mut(&PARTITION).unwrap().next_sequence = i32::MAX;
    let (last, wrapped) = (f.drained(1), f.drained(1));
    assert_eq!((f.numbers(last).1, f.numbers(wrapped).1), (i32::MAX, 0));
    assert!(
        !f.state.stops_drain(last, &f.batches),
        "the order is that of sending, not of numbers"
    );
}

#[test]
fn renumbering_a_built_batch_keeps_its_checksum_right() {
    let mut f = Fixture::new((2, 6));
    let id = f.drained(2);
    let config = Config::parse(Scope::Producer, []).unwrap();
    f.batches[id].close(&ProducerConfig::new(&config).unwrap());
    f.state.on_out_of_order(id, &f.batches);
    f.turn();
    let bytes = f.batches[id].records.bytes();
    let built = fletchlog_records::RecordBatch::parse(&bytes).unwrap().unwrap();
    built.ensure_valid().unwrap();
    let header = built.header();
    assert_eq!(
        (header.producer_id, header.producer_epoch, header.base_sequence),
        (7, 1, 0)
    );
}
