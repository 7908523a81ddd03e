//! Records the history during a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use fletchlog_api::{Clock, SettableClock};

use crate::history::{Action, History, Keyed, Op, Outcome, Partition, Step, Value};

/// The latest moment of a history.
#[derive(Debug, Clone, Default)]
pub(super) struct Moment(Arc<AtomicU64>);

impl Moment {
    fn tick(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The next moment.
    pub fn next(&self) -> u64 {
        self.0.load(Ordering::Relaxed) + 1
    }
}

#[derive(Debug)]
pub(super) struct Recorder {
    ops: Vec<Op>,
    moment: Moment,
    clock: Arc<SettableClock>,
    /// The broker's wall clock at each moment, ms.
    times: Vec<i64>,
    processes: u32,
    values: u64,
}

impl Recorder {
    pub fn new(clock: Arc<SettableClock>, moment: Moment) -> Self {
        Self {
            ops: Vec::new(),
            moment,
            clock,
            times: Vec::new(),
            processes: 0,
            values: 0,
        }
    }

    fn tick(&mut self) -> u64 {
        self.times.push(self.clock.now_ms());
        self.moment.tick()
    }

    /// The first moment after this time of the wall clock.
    pub fn first_after(&self, ms: i64) -> u64 {
        self.times.partition_point(|&time| time <= ms) as u64 + 1
    }

    /// The number of a new process.
    pub fn process(&mut self) -> u32 {
        self.processes += 1;
        self.processes
    }

    /// A value that was never sent.
    pub fn value(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    /// Begins an operation. Its outcome is unknown until it ends.
    pub fn begin(&mut self, process: u32, action: Action) -> usize {
        self.begin_with(process, |_| action)
    }

    /// Begins an operation that depends on the history so far.
    pub fn begin_with(&mut self, process: u32, action: impl FnOnce(&Self) -> Action) -> usize {
        let begin = self.tick();
        let action = action(self);
        self.ops.push(Op {
            process,
            begin,
            end: u64::MAX,
            outcome: Outcome::Unknown,
            action,
        });
        self.ops.len() - 1
    }

    /// Begins an operation that sends and polls.
    pub fn begin_steps(&mut self, process: u32, transaction: bool, steps: Vec<Step>) -> usize {
        self.begin(process, Action::Steps { steps, transaction })
    }

    pub fn end(&mut self, op: usize, outcome: Outcome) {
        let end = self.tick();
        let op = &mut self.ops[op];
        op.outcome = outcome;
        if outcome != Outcome::Unknown {
            op.end = end;
        }
    }

    /// A cleaning may have cleaned up to this bound.
    pub fn raise_bound(&mut self, op: usize, bound: i64) {
        if let Action::Cleaned { below, .. } = &mut self.ops[op].action {
            *below = bound.max(*below);
        }
    }

    /// Records an operation that takes no time.
    pub fn note(&mut self, process: u32, action: Action) {
        let op = self.begin(process, action);
        self.end(op, Outcome::Ok);
    }

    /// The steps of an operation so far.
    pub fn steps(&mut self, op: usize) -> &mut Vec<Step> {
        match &mut self.ops[op].action {
            Action::Steps { steps, .. } => steps,
            other => panic!("{other:?} has no steps"),
        }
    }

    /// Adds the send of a new value to an operation; `source` is the value that it copies. Returns the step and the value.
    pub fn begin_send(
        &mut self,
        op: usize,
        partition: Partition,
        source: Option<Value>,
        keyed: Option<Keyed>,
    ) -> (usize, Value) {
        let value = self.value();
        let steps = self.steps(op);
        steps.push(Step::Send {
            partition,
            value,
            offset: None,
            source,
            keyed,
        });
        (steps.len() - 1, value)
    }

    /// The record of a step was acknowledged at this offset.
    pub fn acknowledge(&mut self, op: usize, step: usize, at: i64) {
        if let Some(Step::Send { offset, .. }) = self.steps(op).get_mut(step) {
            *offset = (at >= 0).then_some(at);
        }
    }

    /// The process continues to read these partitions at another position.
    pub fn moved(&mut self, op: usize, partitions: impl Iterator<Item = Partition>) {
        if let Action::Moved(to) = &mut self.ops[op].action {
            to.extend(partitions.map(|partition| (partition, None)));
        }
    }

    /// The recorded operations, without empty ones.
    pub fn history(&self) -> History {
        let says_something = |op: &&Op| match &op.action {
            Action::Moved(to) => !to.is_empty(),
            Action::Steps { steps, .. } => steps
                .iter()
                .any(|s| !matches!(s, Step::Poll { records, .. } if records.is_empty())),
            _ => true,
        };
        History {
            ops: self.ops.iter().filter(says_something).cloned().collect(),
            ..History::default()
        }
    }
}
