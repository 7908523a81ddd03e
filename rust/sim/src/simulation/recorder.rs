//! Writes the history down while the run goes on.

use crate::history::{Action, History, Op, Outcome, Partition, Step, Value};

#[derive(Debug, Default)]
pub(super) struct Recorder {
    ops: Vec<Op>,
    moment: u64,
    processes: u32,
    values: u64,
}

impl Recorder {
    fn tick(&mut self) -> u64 {
        self.moment += 1;
        self.moment
    }

    /// A new client.
    pub fn process(&mut self) -> u32 {
        self.processes += 1;
        self.processes
    }

    /// A value that was never sent.
    pub fn value(&mut self) -> u64 {
        self.values += 1;
        self.values
    }

    /// An operation begins. Until it ends nothing is known of it.
    pub fn begin(&mut self, process: u32, action: Action) -> usize {
        let begin = self.tick();
        self.ops.push(Op {
            process,
            begin,
            end: u64::MAX,
            outcome: Outcome::Unknown,
            action,
        });
        self.ops.len() - 1
    }

    /// An operation that sends and polls begins.
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

    /// Something that takes no time.
    pub fn note(&mut self, process: u32, action: Action) {
        let op = self.begin(process, action);
        self.end(op, Outcome::Ok);
    }

    /// What an operation has done so far.
    pub fn steps(&mut self, op: usize) -> &mut Vec<Step> {
        match &mut self.ops[op].action {
            Action::Steps { steps, .. } => steps,
            other => panic!("{other:?} has no steps"),
        }
    }

    /// An operation sends a new value, `source` that of the record it copies. Returns the step and the value.
    pub fn begin_send(&mut self, op: usize, partition: Partition, source: Option<Value>) -> (usize, Value) {
        let value = self.value();
        let steps = self.steps(op);
        steps.push(Step::Send {
            partition,
            value,
            offset: None,
            source,
        });
        (steps.len() - 1, value)
    }

    /// The record of a step was acknowledged at this offset.
    pub fn acknowledge(&mut self, op: usize, step: usize, at: i64) {
        if let Some(Step::Send { offset, .. }) = self.steps(op).get_mut(step) {
            *offset = (at >= 0).then_some(at);
        }
    }

    /// The process reads these partitions on from elsewhere.
    pub fn moved(&mut self, op: usize, partitions: impl Iterator<Item = Partition>) {
        if let Action::Moved(to) = &mut self.ops[op].action {
            to.extend(partitions.map(|partition| (partition, None)));
        }
    }

    /// What was written, without what says nothing.
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
        }
    }
}
