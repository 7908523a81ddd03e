//! Responses that wait until records are on all replicas in sync: those of acks=all, and those of coordinators. Kafka: `DelayedProduce`,
//! `CoordinatorRuntime`, its deferred events.
//!
//! All replicas share one copy of the bytes, so nothing waits but while the high watermark of a partition is held: a node has ended and the
//! cluster has not noticed it, or too few replicas are in sync.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use fletchlog_api::{ErrorCode, NodeId, ProduceResponse, Response};
use fletchlog_protocol::messages::produce_response::PartitionProduceResponse;

use super::ReplicaManager;
use crate::partition::Partition;
use crate::sync::{Answer, Mutex, Rank};

/// Records of a Produce request that are not on all replicas in sync yet.
#[derive(Debug)]
pub(crate) struct Appended {
    /// Places in the response: the topic, the partition in it.
    pub(super) place: (usize, usize),
    pub(super) partition: Arc<Partition>,
    /// The offset after the last record.
    pub(super) end: i64,
}

/// A Produce request with acks=all that waits.
#[derive(Debug)]
struct DelayedProduce {
    node: NodeId,
    response: ProduceResponse,
    waiting: Vec<Appended>,
}

/// A request to a coordinator whose response waits until everything before it in the coordinator's log is on all replicas in sync.
#[derive(Debug)]
struct DelayedWrite {
    /// The logs, and their ends.
    written: Vec<(Arc<Partition>, i64)>,
    response: Response,
    /// The response after the time-out.
    refused: Response,
    is_refused: Arc<AtomicBool>,
}

#[derive(Debug)]
enum Delayed {
    Produce(DelayedProduce),
    Write(DelayedWrite),
}

#[derive(Debug)]
struct Waiting {
    delayed: Delayed,
    deadline_ms: i64,
    answer: Arc<Answer>,
}

/// A response that waits, in both of its forms.
#[derive(Debug)]
pub(crate) struct Deferred {
    /// If the records are on all replicas in time.
    pub(crate) response: Response,
    /// After the time-out.
    pub(crate) refused: Response,
    /// Where one of them will arrive.
    pub(crate) answer: Arc<Answer>,
    /// Whether the second one has arrived.
    pub(crate) is_refused: Arc<AtomicBool>,
}

/// The requests that wait for acknowledgements.
#[derive(Debug)]
pub(crate) struct ProducePurgatory {
    waiting: Mutex<Vec<Waiting>>,
    /// Number of them, so that no lock is taken without any.
    count: AtomicUsize,
    /// Partitions whose followers are late.
    slow: Mutex<Vec<Arc<Partition>>>,
    /// There are such partitions.
    any_slow: AtomicBool,
}

impl Default for ProducePurgatory {
    fn default() -> Self {
        Self {
            waiting: Mutex::new(Rank::ProducePurgatory, Vec::new()),
            count: AtomicUsize::new(0),
            slow: Mutex::new(Rank::ProducePurgatory, Vec::new()),
            any_slow: AtomicBool::new(false),
        }
    }
}

impl ProducePurgatory {
    /// When the next request times out.
    pub(crate) fn next_deadline(&self) -> Option<i64> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.waiting.lock().iter().map(|waiting| waiting.deadline_ms).min()
    }

    fn add(&self, replicas: &ReplicaManager, delayed: Delayed, wait_ms: i64) -> Arc<Answer> {
        let now_ms = replicas.clock().monotonic_ms();
        let answer = Arc::new(Answer::default());
        {
            let mut waiting = self.waiting.lock();
            waiting.push(Waiting {
                delayed,
                deadline_ms: now_ms.saturating_add(wait_ms),
                answer: Arc::clone(&answer),
            });
            self.count.store(waiting.len(), Ordering::SeqCst);
        }
        replicas.changes().notify();
        // The high watermark may have moved meanwhile.
        self.check(replicas, now_ms);
        answer
    }

    /// Completes the requests that can be completed, and those that have timed out. In the order in which they began to wait.
    pub(crate) fn check(&self, replicas: &ReplicaManager, now_ms: i64) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let done: Vec<Waiting> = {
            let mut waiting = self.waiting.lock();
            let all = std::mem::take(&mut *waiting);
            let (done, left) = all
                .into_iter()
                .partition(|one| one.deadline_ms <= now_ms || one.delayed.is_complete(replicas));
            *waiting = left;
            self.count.store(waiting.len(), Ordering::SeqCst);
            done
        };
        for one in done {
            one.answer
                .complete(one.delayed.into_response(replicas), replicas.changes());
        }
    }
}

impl Delayed {
    fn is_complete(&self, replicas: &ReplicaManager) -> bool {
        match self {
            Self::Produce(produce) => {
                let mut waiting = produce.waiting.iter();
                waiting.all(|appended| appended.outcome(replicas, produce.node).is_some())
            }
            Self::Write(write) => write.is_written() || write.is_lost(replicas),
        }
    }

    /// The response as of now.
    fn into_response(self, replicas: &ReplicaManager) -> Response {
        match self {
            Self::Produce(mut produce) => {
                for appended in &produce.waiting {
                    let (topic, partition) = appended.place;
                    let topic = produce.response.responses.get_mut(topic);
                    if let Some(answer) = topic.and_then(|topic| topic.partition_responses.get_mut(partition)) {
                        appended.complete(replicas, produce.node, answer);
                    }
                }
                Response::Produce(produce.response)
            }
            Self::Write(write) if write.is_written() => write.response,
            Self::Write(write) => {
                write.is_refused.store(true, Ordering::SeqCst);
                write.refused
            }
        }
    }
}

impl DelayedWrite {
    fn is_written(&self) -> bool {
        let mut written = self.written.iter();
        written.all(|(partition, end)| partition.high_watermark() >= *end)
    }

    /// Whether a log is gone, or an election has cut off what was written: later records take its offsets.
    fn is_lost(&self, replicas: &ReplicaManager) -> bool {
        let table = replicas.topic_table();
        let is_in_log =
            |(partition, end): &(Arc<Partition>, i64)| table.holds(partition) && partition.log_end() >= *end;
        !self.written.iter().all(is_in_log)
    }
}

impl Appended {
    /// The error, if it is known. Kafka: `DelayedProduce#tryComplete`, `Partition#checkEnoughReplicasReachOffset`.
    fn outcome(&self, replicas: &ReplicaManager, node: NodeId) -> Option<ErrorCode> {
        if !replicas.topic_table().holds(&self.partition) {
            return Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
        }
        if self.partition.leader() != node {
            return Some(ErrorCode::NOT_LEADER_OR_FOLLOWER);
        }
        (self.partition.high_watermark() >= self.end).then_some(ErrorCode::NONE)
    }

    /// An error keeps the offset: the records are in the log.
    fn complete(&self, replicas: &ReplicaManager, node: NodeId, answer: &mut PartitionProduceResponse) {
        answer.error_code = self.outcome(replicas, node).unwrap_or(ErrorCode::REQUEST_TIMED_OUT);
        answer.current_leader = replicas.leader_to_ask(self.partition.tp(), answer.error_code);
    }
}

impl ReplicaManager {
    /// The response to a Produce request, once its records are on all replicas in sync or its time has passed.
    pub(super) fn delay_produce(
        &self,
        node: NodeId,
        response: ProduceResponse,
        waiting: Vec<Appended>,
        timeout_ms: i32,
    ) -> Arc<Answer> {
        let produce = DelayedProduce {
            node,
            response,
            waiting,
        };
        let wait_ms = i64::from(timeout_ms.max(0));
        self.acks.add(self, Delayed::Produce(produce), wait_ms)
    }

    /// A coordinator's response, which waits if records of its log are not on all replicas in sync, for at most `wait_ms`. `written`: the
    /// end of that log before the request; `None`: it waits also for earlier records. Returns the response if it need not wait.
    pub(crate) fn after_writes(
        &self,
        partition: &Arc<Partition>,
        written: Option<i64>,
        (response, refused): (Response, Response),
        wait_ms: i64,
    ) -> Result<Response, Box<Deferred>> {
        let log = (Arc::clone(partition), written.unwrap_or(-1));
        self.after_all_writes(vec![log], (response, refused), wait_ms)
    }

    /// The same for several logs, each with its end before the request (-1: earlier records are waited for too).
    pub(crate) fn after_all_writes(
        &self,
        logs: Vec<(Arc<Partition>, i64)>,
        (response, refused): (Response, Response),
        wait_ms: i64,
    ) -> Result<Response, Box<Deferred>> {
        let written = logs.into_iter().filter_map(|(partition, before)| {
            let end = partition.log_end();
            let waits = partition.high_watermark() < end && before < end;
            waits.then_some((partition, end))
        });
        let written: Vec<_> = written.collect();
        if written.is_empty() {
            return Ok(response);
        }
        let is_refused = Arc::new(AtomicBool::new(false));
        let write = DelayedWrite {
            written,
            response: response.clone(),
            refused: refused.clone(),
            is_refused: Arc::clone(&is_refused),
        };
        let answer = self.acks.add(self, Delayed::Write(write), wait_ms);
        Err(Box::new(Deferred {
            response,
            refused,
            answer,
            is_refused,
        }))
    }

    /// Lets the high watermarks of partitions stand still or move on, as their states and the nodes require; true: one does what it did not
    /// do before. Waiting requests see it. Kafka: `Partition#maybeIncrementLeaderHW`.
    pub(crate) fn update_high_watermarks<'a>(&self, partitions: impl IntoIterator<Item = &'a Arc<Partition>>) -> bool {
        let (mut is_changed, mut moved) = (false, Vec::new());
        for partition in partitions {
            let before = partition.high_watermark();
            if partition.hold_high_watermark(self.must_hold(partition)) {
                is_changed = true;
                // A fetch waits on at a new leader whose high watermark is the same.
                moved.extend((partition.high_watermark() != before).then_some(&**partition));
            }
        }
        self.partitions_changed(moved);
        self.acks.check(self, self.clock().monotonic_ms());
        is_changed
    }

    fn must_hold(&self, partition: &Partition) -> bool {
        let controller = self.controller();
        if partition.held_until_ms() > self.clock().monotonic_ms() {
            return true;
        }
        if !partition.is_under_replicated() && !controller.any_undetected() {
            return false;
        }
        let state = partition.state();
        state.is_under_min_isr(partition.config().min_insync_replicas)
            || state.isr.iter().any(|node| !controller.runs(*node))
    }

    /// Whether what is appended now is on all replicas at once: all nodes run, and no followers are late.
    pub(crate) fn all_replicate_at_once(&self) -> bool {
        self.controller().all_run() && !self.acks.any_slow.load(Ordering::SeqCst)
    }

    /// Remembers a partition whose followers are late ([`Partition::hold_until`]).
    pub(crate) fn note_slow(&self, partition: &Arc<Partition>) {
        self.acks.slow.lock().push(Arc::clone(partition));
        self.acks.any_slow.store(true, Ordering::SeqCst);
        self.changes().notify();
    }

    /// Those whose followers are late no more.
    pub(crate) fn end_slow(&self) -> Vec<Arc<Partition>> {
        if !self.acks.any_slow.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let now_ms = self.clock().monotonic_ms();
        let mut slow = self.acks.slow.lock();
        let (ended, left) = std::mem::take(&mut *slow)
            .into_iter()
            .partition(|partition| partition.held_until_ms() <= now_ms);
        *slow = left;
        self.acks.any_slow.store(!slow.is_empty(), Ordering::SeqCst);
        ended
    }

    /// When the next ones are late no more.
    pub(crate) fn next_slow_deadline(&self) -> Option<i64> {
        if !self.acks.any_slow.load(Ordering::SeqCst) {
            return None;
        }
        let slow = self.acks.slow.lock();
        slow.iter().map(|partition| partition.held_until_ms()).min()
    }

    /// Completes requests that have timed out.
    pub(crate) fn expire_produces(&self, now_ms: i64) {
        self.acks.check(self, now_ms);
    }

    /// When the next of these times out.
    pub(crate) fn next_produce_deadline(&self) -> Option<i64> {
        self.acks.next_deadline()
    }
}
