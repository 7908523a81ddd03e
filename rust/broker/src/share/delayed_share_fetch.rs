//! Share fetches that wait, and what a fetch reads and acquires. Kafka: `DelayedShareFetch`, `ShareFetchUtils`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use fletchlog_api::{ErrorCode, IsolationLevel, Response};
use fletchlog_log::LogError;
use fletchlog_protocol::messages::ShareFetchResponse;
use fletchlog_records::committed::AbortedTransactions;
use fletchlog_records::{BatchIter, DECOMPRESSION_LIMIT};

use super::acquire::{Acquire, AcquireMode, FetchedBatch};
use super::session::{ShareSessionKey, TopicIdPartition};
use super::share_acknowledge::Outcome;
use super::share_fetch::{Found, top_level};
use super::share_partition::{Acquired, Limits};
use super::share_partition_manager::{Loaded, Managed, SharePartitionManager};
use crate::BrokerError;
use crate::panics::{contained, place};
use crate::replica_manager::ShareWatchKey;
use crate::replica_manager::fetch::fetch_bound;
use crate::sync::{Answer, Mutex, Rank};

/// The numbers of share fetches do not meet those of fetches.
const FIRST_ID: u64 = 1 << 63;

/// What a share fetch asks for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Params {
    pub(super) epoch: i32,
    pub(super) min_bytes: i64,
    pub(super) max_bytes: i64,
    pub(super) max_records: i64,
    pub(super) batch_size: i64,
    pub(super) mode: AcquireMode,
}

/// A share fetch.
#[derive(Debug)]
pub(super) struct DelayedShareFetch {
    pub(super) key: ShareSessionKey,
    /// The number of its session.
    pub(super) session: Option<u64>,
    pub(super) params: Params,
    deadline_ms: i64,
    /// Readable partitions, in the order in which they are read.
    pub(super) partitions: Vec<TopicIdPartition>,
    pub(super) errors: Vec<(TopicIdPartition, ErrorCode)>,
    /// What became of the acknowledgements of the request.
    pub(super) acknowledged: Vec<(TopicIdPartition, Outcome)>,
    /// The response when its time is over, instead of a reading.
    pub(super) refusal: Option<ErrorCode>,
    id: u64,
    keys: Vec<ShareWatchKey>,
    answer: Arc<Answer>,
    /// Held by the thread that tries it; true: it has been answered.
    is_done: Mutex<bool>,
}

impl DelayedShareFetch {
    pub(super) fn new(key: ShareSessionKey, session: Option<u64>, params: Params, deadline_ms: i64) -> Self {
        Self {
            key,
            session,
            params,
            deadline_ms,
            partitions: Vec::new(),
            errors: Vec::new(),
            acknowledged: Vec::new(),
            refusal: None,
            id: 0,
            keys: Vec::new(),
            answer: Arc::default(),
            is_done: Mutex::new(Rank::ShareFetch, false),
        }
    }
}

impl SharePartitionManager {
    /// Lets a fetch wait. It is watched first and then tried, so that no change falls between.
    pub(super) fn wait(&self, mut fetch: DelayedShareFetch) -> Arc<Answer> {
        let id = FIRST_ID | self.last_fetch.fetch_add(1, Ordering::Relaxed);
        fetch.id = id;
        fetch.answer = Arc::new(Answer::of_fetch(id));
        fetch.keys = self.watch_keys(&fetch);
        let fetch = Arc::new(fetch);
        {
            let mut waiting = self.waiting.lock();
            waiting.by_deadline.insert((fetch.deadline_ms, id));
            waiting.by_id.insert(id, Arc::clone(&fetch));
        }
        self.replicas.share_watch().watch(id, &fetch.keys);
        self.try_waiting(&fetch, false);
        // Its time-out may be the next deadline.
        self.replicas.changes().notify();
        Arc::clone(&fetch.answer)
    }

    fn watch_keys(&self, fetch: &DelayedShareFetch) -> Vec<ShareWatchKey> {
        let partitions = fetch.partitions.iter().filter_map(|at| self.partition_of(*at));
        let keys = partitions.flat_map(|partition| {
            let tp = partition.tp();
            let group = ShareWatchKey::Group(Arc::clone(&fetch.key.group_id), tp.clone());
            [ShareWatchKey::Partition(tp.clone()), group]
        });
        keys.collect()
    }

    /// Tries the fetches whose partitions have changed. The caller holds no lock.
    pub(crate) fn complete_ready(&self) {
        while let Some(id) = self.replicas.share_watch().take_ready() {
            let fetch = self.waiting.lock().by_id.get(&id).cloned();
            if let Some(fetch) = fetch {
                self.try_waiting(&fetch, false);
            }
        }
    }

    /// Answers the fetches whose time is over.
    pub(super) fn expire_fetches(&self, now_ms: i64) {
        loop {
            let due = {
                let waiting = self.waiting.lock();
                let first = waiting.by_deadline.first().filter(|(at_ms, _)| *at_ms <= now_ms);
                first.and_then(|(_, id)| waiting.by_id.get(id)).cloned()
            };
            let Some(fetch) = due else { return };
            self.try_waiting(&fetch, true);
        }
    }

    /// A panic fails only this fetch.
    fn try_waiting(&self, fetch: &DelayedShareFetch, is_over: bool) {
        let mut is_done = fetch.is_done.lock();
        if *is_done {
            return;
        }
        let response = contained("a waiting share fetch", || {
            place(|| format!("answer of a fetch of share group {}", fetch.key.group_id));
            match fetch.refusal {
                Some(code) => is_over.then(|| top_level(code)),
                None => self.try_share_fetch(fetch, is_over),
            }
        });
        let response = match response {
            Some(None) => return,
            Some(Some(response)) => response,
            None => top_level(ErrorCode::UNKNOWN_SERVER_ERROR),
        };
        *is_done = true;
        self.stop_waiting(fetch);
        fetch
            .answer
            .complete(Response::ShareFetch(response), self.replicas.changes());
    }

    fn stop_waiting(&self, fetch: &DelayedShareFetch) {
        let mut waiting = self.waiting.lock();
        waiting.by_id.remove(&fetch.id);
        waiting.by_deadline.remove(&(fetch.deadline_ms, fetch.id));
        drop(waiting);
        self.replicas.share_watch().forget(fetch.id, &fetch.keys);
    }

    /// Drops a fetch whose client has disconnected: it acquires nothing.
    pub(crate) fn cancel(&self, answer: &Answer) {
        let fetch = self.waiting.lock().by_id.get(&answer.fetch_id()).cloned();
        if let Some(fetch) = fetch {
            *fetch.is_done.lock() = true;
            self.stop_waiting(&fetch);
        }
    }

    /// Answers a waiting fetch as if its time were over.
    pub(crate) fn answer_now(&self, answer: &Answer) {
        let fetch = self.waiting.lock().by_id.get(&answer.fetch_id()).cloned();
        if let Some(fetch) = fetch {
            self.try_waiting(&fetch, true);
        }
    }

    /// The response, if there is enough to read, or the time is over.
    pub(super) fn try_share_fetch(&self, fetch: &DelayedShareFetch, is_over: bool) -> Option<ShareFetchResponse> {
        let found = self.try_read(fetch, is_over)?;
        Some(self.end_share_fetch(fetch, found))
    }

    /// What a fetch acquires, if there is enough to read, or the time is over. Kafka: `DelayedShareFetch#tryComplete`, `#onComplete`.
    pub(super) fn try_read(&self, fetch: &DelayedShareFetch, is_over: bool) -> Option<Vec<Found>> {
        let group_id = &fetch.key.group_id;
        let in_memory = fetch
            .partitions
            .iter()
            .filter_map(|at| Some((*at, self.loaded(fetch.key.node, group_id, *at)?)));
        let in_memory: Vec<(TopicIdPartition, Arc<Managed>)> = in_memory.collect();
        let reading = self.reading(fetch);
        let acquirable = self.acquirable(&reading, &in_memory);
        match self.satisfied(&reading, &acquirable) {
            Some(groups) => Some(self.read_and_acquire(&reading, &groups)),
            None if is_over => Some(self.read_and_acquire(&reading, &[acquirable])),
            None => None,
        }
    }

    fn reading<'a>(&self, fetch: &'a DelayedShareFetch) -> Reading<'a> {
        let read = |config: &super::group_config::ShareGroupConfig<'_>| (config.limits(), config.isolation());
        let (limits, isolation) = self.with_config(&fetch.key.group_id, read);
        Reading {
            fetch,
            limits,
            isolation,
        }
    }

    /// Whether a partition alone satisfies the fetch.
    pub(super) fn has_something(&self, fetch: &DelayedShareFetch, at: TopicIdPartition) -> bool {
        let reading = self.reading(fetch);
        let managed = self.loaded(fetch.key.node, &fetch.key.group_id, at);
        let in_memory: Vec<_> = managed.into_iter().map(|managed| (at, managed)).collect();
        let acquirable = self.acquirable(&reading, &in_memory);
        self.satisfied(&reading, &acquirable).is_some()
    }

    /// The partitions of which something may be acquired, with the offsets where they are read.
    fn acquirable<'a>(
        &self,
        reading: &Reading<'_>,
        in_memory: &'a [(TopicIdPartition, Arc<Managed>)],
    ) -> Vec<Acquirable<'a>> {
        let offset_of = |managed: &Managed| {
            let mut state = managed.lock();
            let partition = state.as_mut().map(|loaded| &mut loaded.partition)?;
            let can_acquire = partition.can_acquire(&reading.limits);
            can_acquire.then(|| partition.next_fetch_offset())
        };
        let all = in_memory.iter().filter_map(|(at, managed)| {
            Some(Acquirable {
                at: *at,
                managed,
                offset: offset_of(managed)?,
            })
        });
        all.collect()
    }

    /// If min_bytes can be read, or a read fails: the partitions as they are read, group by group. Kafka looks into the log for those whose
    /// offset it does not know there yet, and reads them last. Kafka: `DelayedShareFetch#maybeReadFromLog`, `#isMinBytesSatisfied`,
    /// `#combineLogReadResponse`.
    fn satisfied<'a>(&self, reading: &Reading<'_>, acquirable: &[Acquirable<'a>]) -> Option<Vec<Vec<Acquirable<'a>>>> {
        let params = &reading.fetch.params;
        if acquirable.is_empty() {
            return None;
        }
        let share = params.max_bytes / i64::try_from(acquirable.len()).unwrap_or(i64::MAX);
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        let (mut readable, mut fails) = (0i64, params.max_bytes < 0);
        for one in acquirable {
            match self.readable(reading, one, share) {
                Some(bytes) => readable = readable.saturating_add(bytes),
                None => fails = true,
            }
            match one.is_known_from_now_on() {
                true => known.push(*one),
                false => unknown.push(*one),
            }
        }
        let is_enough = fails || readable >= params.min_bytes.min(params.max_bytes);
        is_enough.then(|| match unknown.is_empty() || known.is_empty() {
            true => vec![acquirable.to_vec()],
            false => vec![known, unknown],
        })
    }

    /// The bytes of a partition that count; `None`: reading there fails, or the offset lies beyond what may be read.
    fn readable(&self, reading: &Reading<'_>, one: &Acquirable<'_>, share: i64) -> Option<i64> {
        let Ok(partition) = self.replicas.partition(&one.managed.tp) else {
            return Some(0);
        };
        let log = self.replicas.log_of(&partition).ok()?;
        let bounds = log.bounds().ok()?;
        let bound = fetch_bound(reading.isolation);
        let end = bounds.of(bound);
        if one.offset < bounds.log_start_offset || one.offset > end {
            return None;
        }
        if end == one.offset {
            return Some(0);
        }
        if reading.fetch.params.min_bytes <= 1 {
            return Some(1.min(share));
        }
        let max_bytes = usize::try_from(share).unwrap_or(0);
        let read = log.read(one.offset, max_bytes, true, bound).ok()?;
        let last = BatchIter::new(read.records.clone()).filter_map(Result::ok).last();
        // What is behind does not fit.
        let is_all = last.is_some_and(|batch| batch.header().last_offset() + 1 >= end);
        Some(match is_all {
            true => i64::try_from(read.records.len()).unwrap_or(i64::MAX).min(share),
            false => share,
        })
    }

    /// Reads the partitions in order, with an equal share of the bytes each, and acquires what was read.
    fn read_and_acquire(&self, reading: &Reading<'_>, groups: &[Vec<Acquirable<'_>>]) -> Vec<Found> {
        let params = &reading.fetch.params;
        let count: usize = groups.iter().map(Vec::len).sum();
        let mut budget = Budget {
            per_partition: params.max_bytes / i64::try_from(count.max(1)).unwrap_or(i64::MAX),
            bytes: params.max_bytes,
            records: params.max_records,
            min_one: true,
        };
        let mut all = Vec::with_capacity(count);
        for group in groups {
            budget.bytes = params.max_bytes;
            budget.min_one = true;
            for one in group {
                let mut state = one.managed.lock();
                let Some(loaded) = &mut *state else { continue };
                let found = match params.max_bytes < 0 {
                    true => Err(ErrorCode::UNKNOWN_SERVER_ERROR),
                    false => self.acquire_from(reading, one.at, one.managed, loaded, &mut budget),
                };
                self.note_locks(one.managed, loaded);
                match found {
                    Ok(Some(found)) => all.push(found),
                    // The topic was deleted meanwhile.
                    Ok(None) => {}
                    Err(code) => all.push(Found::nothing(one.at, code)),
                }
            }
        }
        all
    }

    fn acquire_from(
        &self,
        reading: &Reading<'_>,
        at: TopicIdPartition,
        managed: &Managed,
        loaded: &mut Loaded,
        budget: &mut Budget,
    ) -> Result<Option<Found>, ErrorCode> {
        let Ok(partition) = self.replicas.partition(&managed.tp) else {
            return Ok(None);
        };
        let nothing = Ok(Some(Found::nothing(at, ErrorCode::NONE)));
        let log = self.replicas.log_of(&partition).map_err(|error| error.code())?;
        let bounds = log.bounds().map_err(|error| BrokerError::from(error).code())?;
        let bound = fetch_bound(reading.isolation);
        let fetch_offset = loaded.partition.next_fetch_offset();
        if fetch_offset < bounds.log_start_offset {
            // As in Kafka the next fetch reads from there.
            loaded.partition.log_start_moved(bounds.log_start_offset);
            return nothing;
        }
        if bounds.of(bound) <= fetch_offset {
            return nothing;
        }
        let max_bytes = budget.per_partition.min(budget.bytes).max(0);
        let read = log.read(
            fetch_offset,
            usize::try_from(max_bytes).unwrap_or(usize::MAX),
            budget.min_one,
            bound,
        );
        let data = match read {
            Ok(data) => data,
            Err(LogError::OffsetOutOfRange { .. }) => return nothing,
            Err(error) => return Err(BrokerError::from(error).code()),
        };
        budget.bytes = budget
            .bytes
            .saturating_sub(i64::try_from(data.records.len()).unwrap_or(i64::MAX))
            .max(0);
        budget.min_one &= data.records.is_empty();
        let aborted = match reading.isolation {
            IsolationLevel::ReadCommitted => data.aborted_transactions.unwrap_or_default(),
            _ => Vec::new(),
        };
        let batches = fetched_batches(&data.records, aborted).map_err(|error| BrokerError::from(error).code())?;
        let acquire = Acquire {
            member: &reading.fetch.key.member_id,
            mode: reading.fetch.params.mode,
            batch_size: reading.fetch.params.batch_size,
            max_records: budget.records,
            fetch_offset,
            now_ms: self.now_ms(),
            limits: reading.limits,
        };
        let ranges: Vec<FetchedBatch> = batches.iter().map(|(batch, _)| *batch).collect();
        let acquired = loaded.partition.acquire(&acquire, &ranges);
        let count: i64 = acquired.iter().map(|range| range.last - range.first + 1).sum();
        budget.records -= count;
        Ok(Some(Found {
            at,
            error: ErrorCode::NONE,
            records: records_of(&data.records, &batches, &acquired),
            acquired,
        }))
    }
}

/// A partition of which something may be acquired.
#[derive(Debug, Clone, Copy)]
struct Acquirable<'a> {
    at: TopicIdPartition,
    managed: &'a Managed,
    /// Where it is read.
    offset: i64,
}

impl Acquirable<'_> {
    /// Whether it was known where the offset is in the log; from now on it is.
    fn is_known_from_now_on(&self) -> bool {
        let mut state = self.managed.lock();
        let Some(loaded) = &mut *state else { return false };
        loaded.known_offset.replace(self.offset) == Some(self.offset)
    }
}

/// A fetch with the group's properties as they are now.
struct Reading<'a> {
    fetch: &'a DelayedShareFetch,
    limits: Limits,
    isolation: IsolationLevel,
}

/// What is left of a fetch's limits.
struct Budget {
    per_partition: i64,
    bytes: i64,
    records: i64,
    min_one: bool,
}

/// The whole batches that were read, with where they end.
fn fetched_batches(records: &Bytes, aborted: Vec<(i64, i64)>) -> Result<Vec<(FetchedBatch, usize)>, LogError> {
    let filters = !aborted.is_empty();
    let mut aborted = AbortedTransactions::new(aborted);
    let mut batches = Vec::new();
    let mut end = 0;
    for batch in BatchIter::new(records.clone()) {
        let batch = batch?;
        end += batch.bytes().len();
        let header = batch.header();
        let is_aborted = filters && aborted.is_aborted(&batch, DECOMPRESSION_LIMIT)?;
        let fetched = FetchedBatch {
            base: header.base_offset,
            last: header.last_offset(),
            is_aborted,
        };
        batches.push((fetched, end));
    }
    Ok(batches)
}

/// The record batches around what was acquired, as they are in the log. Kafka: `ShareFetchUtils#maybeSliceFetchRecords`.
fn records_of(records: &Bytes, batches: &[(FetchedBatch, usize)], acquired: &[Acquired]) -> Bytes {
    let (Some(first), Some(last)) = (acquired.first(), acquired.last()) else {
        return Bytes::new();
    };
    if batches.len() < 2 {
        return records.clone();
    }
    // The last batch that begins at or before the first acquired offset, and the last one before the end of the last.
    let begin = batches
        .iter()
        .rposition(|(batch, _)| batch.base <= first.first)
        .unwrap_or(0);
    let from = begin
        .checked_sub(1)
        .and_then(|before| batches.get(before))
        .map_or(0, |(_, end)| *end);
    let until = batches
        .iter()
        .rposition(|(batch, _)| batch.base <= last.last)
        .unwrap_or(begin);
    let to = batches.get(until.max(begin)).map_or(records.len(), |(_, end)| *end);
    records.slice(from..to)
}
