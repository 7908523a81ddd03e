//! A seeded workload of transactional producers of version 2 - partitions and groups that the broker adds, ends that raise the epoch,
//! ends that are asked for again, time-outs, fenced producers, clean and unclean stops - and the promises at every moment of it.

use std::collections::BTreeMap;

use fletchlog_api::ErrorCode;
use fletchlog_records::TopicPartition;

use crate::coordinator_disk::{DIR, NOW_MS, OnDisk};
use crate::course::{Course, Workload};
use crate::port_client::{Committer, ProducerIdAndEpoch, TRANSACTION_TIMEOUT_MS, Transactional};
use crate::rng::Rng;
use crate::sim_disk::SimDisk;

/// The transactional ids. The offsets of each are of a partition of its own, that of its index.
pub(crate) const IDS: [&str; 2] = ["t0", "t1"];
const TOPIC: &str = "a";
const PARTITIONS: i32 = 2;
const GROUP: &str = "g";
/// Longer than a transaction may be open, and until time-outs are looked at.
const TIMED_OUT_MS: i64 = TRANSACTION_TIMEOUT_MS as i64 + 11_000;

/// What becomes of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Open,
    Committed,
    Aborted,
}

impl Fate {
    /// What an end decides.
    pub(crate) fn of(committed: bool) -> Self {
        if committed { Self::Committed } else { Self::Aborted }
    }
}

/// The state of a transactional id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TxnState {
    Empty,
    Ongoing,
    Complete(Fate),
}

/// One transactional id, as its producer knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Txn {
    pub producer: ProducerIdAndEpoch,
    pub state: TxnState,
    /// The next sequence of each partition.
    sequences: BTreeMap<i32, i32>,
    /// What the open transaction has written, and the offset that it commits.
    values: Vec<(i32, String)>,
    offset: Option<i64>,
    /// The last end: whom it named, and how it ended.
    ended: Option<(ProducerIdAndEpoch, bool)>,
    /// The producer was fenced: it has to begin anew.
    is_fenced: bool,
}

/// The expected state of a directory.
#[derive(Debug, Clone, Default)]
pub(crate) struct Model {
    pub txns: BTreeMap<&'static str, Txn>,
    /// By partition and value.
    pub records: BTreeMap<(i32, String), Fate>,
    /// Committed offsets by partition.
    pub offsets: BTreeMap<i32, i64>,
    /// The last step fenced the producers of these ids, by requests whose number it does not know.
    pub fences: Vec<&'static str>,
}

/// One run of the workload.
pub struct TransactionWorkload {
    /// The expected state from a number of operations on.
    pub(crate) moments: Vec<(u64, Model)>,
    pub(crate) course: Course,
    written: usize,
}

pub(crate) fn partition(number: i32) -> TopicPartition {
    TopicPartition::new(TOPIC, number)
}

/// The partition whose offsets a transactional id commits.
pub(crate) fn partition_of(id: &str) -> i32 {
    IDS.iter()
        .position(|known| *known == id)
        .map_or(0, |at| i32::try_from(at).unwrap_or(0))
}

pub(crate) fn partitions() -> impl Iterator<Item = i32> {
    0..PARTITIONS
}

/// Commits by no member.
pub(crate) fn nobody() -> Committer<'static> {
    Committer {
        group: GROUP,
        id: "",
        epoch: -1,
    }
}

impl Txn {
    pub(crate) fn by<'a>(&self, id: &'a str) -> Transactional<'a> {
        Transactional {
            id,
            producer: self.producer,
        }
    }
}

impl Workload for TransactionWorkload {
    const DIR: &str = DIR;

    fn begin(seed: u64, _: &mut Rng) -> Self {
        Self {
            moments: vec![(0, Model::default())],
            course: Course::new(seed),
            written: 0,
        }
    }

    fn work(&mut self, disk: &SimDisk, rng: &mut Rng, steps: usize) -> Result<(), String> {
        let Self {
            moments,
            course,
            written,
        } = self;
        let mut on = OnDisk::open(disk, course)?;
        on.make_topic(TOPIC, PARTITIONS)?;
        for _ in 0..steps {
            let mut model = moments.last().map(|(_, model)| model.clone()).unwrap_or_default();
            model.fences.clear();
            let mut step = Step {
                on: &mut on,
                model: &mut model,
                written,
            };
            step.take(rng)?;
            moments.push((on.operations(), model));
        }
        Ok(())
    }

    fn course(&self) -> &Course {
        &self.course
    }

    fn course_mut(&mut self) -> &mut Course {
        &mut self.course
    }
}

/// A step that is being taken.
struct Step<'a, 'b> {
    on: &'a mut OnDisk<'b>,
    model: &'a mut Model,
    /// Values written so far.
    written: &'a mut usize,
}

impl Step<'_, '_> {
    fn take(&mut self, rng: &mut Rng) -> Result<(), String> {
        let id = IDS[rng.below(IDS.len())];
        let at = i32::from(rng.below(2) == 1);
        let Some(txn) = self.model.txns.get(id).filter(|txn| !txn.is_fenced).cloned() else {
            return self.init(id);
        };
        match rng.below(20) {
            0 => self.on.reopen(true),
            1 => self.on.reopen(false),
            2 => self.init(id),
            3 => self.time_out(),
            4..9 => self.end(id, &txn, rng.below(3) > 0),
            9..11 => self.end_again(id, &txn),
            11..14 => self.commit_offset(id, &txn, i64::try_from(rng.below(1_000)).unwrap_or(0)),
            _ => self.produce(id, txn, at),
        }
    }

    /// InitProducerId, which aborts what is open, with a newer epoch.
    fn init(&mut self, id: &'static str) -> Result<(), String> {
        let before = self.model.txns.get(id).map(|txn| txn.producer);
        let producer = self.on.insist("InitProducerId", |on| match on.client.init(id) {
            // The open transaction was aborted.
            Err(ErrorCode::CONCURRENT_TRANSACTIONS) => on.client.init(id),
            other => other,
        })?;
        if let Some(before) = before
            && (producer.0 != before.0 || producer.1 <= before.1)
        {
            return Err(format!("{id} was {before:?} and is {producer:?}"));
        }
        self.decide(id, false);
        self.model.fences.push(id);
        let txn = Txn {
            producer,
            state: TxnState::Empty,
            sequences: BTreeMap::new(),
            values: Vec::new(),
            offset: None,
            ended: None,
            is_fenced: false,
        };
        self.model.txns.insert(id, txn);
        Ok(())
    }

    /// What the transaction has written is decided.
    fn decide(&mut self, id: &'static str, committed: bool) {
        let Some(txn) = self.model.txns.get_mut(id) else { return };
        for key in std::mem::take(&mut txn.values) {
            self.model.records.insert(key, Fate::of(committed));
        }
        if let Some(offset) = txn.offset.take()
            && committed
        {
            self.model.offsets.insert(partition_of(id), offset);
        }
        txn.sequences.clear();
    }

    /// Open transactions are aborted when their time is over, and their producers fenced.
    fn time_out(&mut self) -> Result<(), String> {
        self.on.insist("time-out", |on| {
            on.clock.advance(TIMED_OUT_MS);
            on.broker.run_due();
            let known = on.broker.transactions().map_err(|error| error.to_string())?;
            match known
                .iter()
                .find(|t| !["Empty", "CompleteCommit", "CompleteAbort"].contains(&t.state))
            {
                None => Ok(()),
                Some(open) => Err(format!("{open:?}")),
            }
        })?;
        for id in IDS {
            let Some(txn) = self.model.txns.get_mut(id) else {
                continue;
            };
            if txn.state != TxnState::Ongoing {
                continue;
            }
            let producer = (txn.producer.0, txn.producer.1.saturating_add(1));
            (txn.producer, txn.state) = (producer, TxnState::Complete(Fate::Aborted));
            (txn.is_fenced, txn.ended) = (true, None);
            self.decide(id, false);
            let fenced = self.model.txns[id].by(id);
            let fenced = Transactional {
                producer: (producer.0, producer.1.saturating_sub(1)),
                ..fenced
            };
            let refused = self.on.insist("a fenced producer", |on| {
                match on.client.produce(fenced, &partition(0), 1_000, (NOW_MS, "late")) {
                    Err(ErrorCode::INVALID_PRODUCER_EPOCH) => Ok(Ok(())),
                    Ok(offset) => Ok(Err(format!("{id}: a fenced producer has written at {offset}"))),
                    Err(other) => Err(other),
                }
            })?;
            refused?;
        }
        Ok(())
    }

    fn end(&mut self, id: &'static str, txn: &Txn, committed: bool) -> Result<(), String> {
        // There is nothing to commit.
        let committed = committed && txn.state == TxnState::Ongoing;
        let by = txn.by(id);
        let producer = self.on.insist("EndTxn", |on| on.client.end(by, committed))?;
        let next = (by.producer.0, by.producer.1.saturating_add(1));
        if producer != next {
            return Err(format!("{id}: EndTxn of {:?} gave {producer:?}", by.producer));
        }
        self.decide(id, committed);
        let Some(txn) = self.model.txns.get_mut(id) else {
            return Ok(());
        };
        (txn.producer, txn.state) = (producer, TxnState::Complete(Fate::of(committed)));
        txn.ended = Some((by.producer, committed));
        Ok(())
    }

    /// The last request again: its answer may have been lost.
    fn end_again(&mut self, id: &'static str, txn: &Txn) -> Result<(), String> {
        let (Some((producer, committed)), TxnState::Complete(_)) = (txn.ended, txn.state) else {
            return Ok(());
        };
        let by = Transactional { id, producer };
        let found = self.on.insist("EndTxn again", |on| on.client.end(by, committed))?;
        if found != txn.producer {
            return Err(format!("{id}: EndTxn gave {:?}, and again {found:?}", txn.producer));
        }
        let other = self
            .on
            .insist("EndTxn the other way", |on| match on.client.end(by, !committed) {
                Err(ErrorCode::INVALID_TXN_STATE) => Ok(None),
                Ok(producer) => Ok(Some(producer)),
                Err(other) => Err(other),
            })?;
        match other {
            None => Ok(()),
            Some(producer) => Err(format!("{id}: has ended both ways: {producer:?}")),
        }
    }

    fn commit_offset(&mut self, id: &'static str, txn: &Txn, offset: i64) -> Result<(), String> {
        let (by, tp) = (txn.by(id), partition(partition_of(id)));
        self.on
            .insist("TxnOffsetCommit", |on| on.client.commit_in(by, nobody(), &tp, offset))?;
        let Some(txn) = self.model.txns.get_mut(id) else {
            return Ok(());
        };
        (txn.offset, txn.state) = (Some(offset), TxnState::Ongoing);
        Ok(())
    }

    fn produce(&mut self, id: &'static str, txn: Txn, at: i32) -> Result<(), String> {
        *self.written += 1;
        let value = format!("{id}-{}", self.written);
        let sequence = txn.sequences.get(&at).copied().unwrap_or(0);
        let (by, record) = (txn.by(id), (NOW_MS, value.as_str()));
        self.on
            .insist("Produce", |on| on.client.produce(by, &partition(at), sequence, record))?;
        let Some(txn) = self.model.txns.get_mut(id) else {
            return Ok(());
        };
        txn.sequences.insert(at, sequence + 1);
        txn.values.push((at, value.clone()));
        txn.state = TxnState::Ongoing;
        self.model.records.insert((at, value), Fate::Open);
        Ok(())
    }
}
