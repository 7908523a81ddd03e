//! Positions: where they come from, and committing them (spec 7.12). Kafka: `KafkaConsumer#updateFetchPositions`, `position`,
//! `commitSync`, `committed`.

use std::collections::BTreeSet;

use fletchlog_api::OffsetAndMetadata;
use fletchlog_records::TopicPartition;

use super::Interrupt;
use super::consumer::Consumer;
use super::consumer_network_client::Wait;
use super::consumer_state::ConsumerState;
use super::subscription_state::not_assigned;
use super::trace::{TraceEvent, TraceKind};
use crate::ClientError;
use crate::group::{Commit, CommittedLookup, OperationId};

impl Consumer {
    /// `resolvePositions` of spec 7.4: validates positions that a new leader may have cut off, takes committed offsets,
    /// then applies the reset policy and looks up log starts and ends.
    pub(super) fn resolve_positions(&mut self, deadline: i64, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        self.validation.send(&mut self.state, &mut self.net)?;
        if self.state.subs.has_all_fetch_positions() {
            return Ok(());
        }
        if self.coordinator.is_some() && !self.refresh_committed_offsets(deadline, interrupt)? {
            return Ok(());
        }
        self.state.subs.reset_initializing_positions()?;
        self.resets.send(&mut self.state, &mut self.net)
    }

    /// Asks the group for the positions of partitions that have none, and waits for the response. Returns false if they
    /// are not yet known. Kafka: `refreshCommittedOffsetsIfNeeded`.
    fn refresh_committed_offsets(&mut self, deadline: i64, interrupt: Interrupt<'_>) -> Result<bool, ClientError> {
        let missing = self.state.subs.initializing_partitions();
        if missing.is_empty() {
            return Ok(true);
        }
        let partitions: BTreeSet<TopicPartition> = missing.iter().cloned().collect();
        loop {
            let Self {
                coordinator: Some(coordinator),
                net,
                state: ConsumerState { subs, .. },
                ..
            } = self
            else {
                return Ok(true);
            };
            let generation = coordinator.generation_if_stable();
            let other = |l: &CommittedLookup| l.partitions != partitions || l.generation != generation;
            if self.committed_lookup.as_ref().is_some_and(other) {
                self.cancel_committed_lookup();
                continue;
            }
            let lookup = self.committed_lookup.get_or_insert_with(|| CommittedLookup {
                id: coordinator.start_fetch_committed(missing.clone()),
                partitions: partitions.clone(),
                generation,
            });
            let now = net.now_ms();
            coordinator.drive(net, subs, now)?;
            let id = lookup.id;
            // The network gets one turn in any case, even in a poll that must not wait.
            let result = if let Some(result) = coordinator.committed_result(id) {
                self.committed_lookup = None;
                self.read_net(None)?;
                Some(result)
            } else {
                self.wait_for_answers(deadline, &mut *interrupt)?;
                self.coordinator.as_mut().and_then(|c| c.committed_result(id))
            };
            if let Some(result) = result {
                self.committed_lookup = None;
                for (tp, committed) in result? {
                    let committed = self.committed_before.remove(&tp).or(committed);
                    let Some(committed) =
                        committed.filter(|_| self.state.subs.state(&tp).is_some_and(|s| s.position().is_none()))
                    else {
                        continue;
                    };
                    self.state.trace.push(|| {
                        let epoch = committed.leader_epoch;
                        let why = format!("committed offset of the group, leader epoch {epoch}");
                        let event = TraceEvent::of(TraceKind::Place, &tp).at(committed.offset);
                        TraceEvent {
                            epoch,
                            ..event.because(why)
                        }
                    });
                    let leader = self.state.metadata.leader(&tp);
                    self.state
                        .subs
                        .seek_unvalidated(&tp, committed.offset, committed.leader_epoch, leader)?;
                }
                return Ok(true);
            }
            if now >= deadline {
                return Ok(false);
            }
        }
    }

    fn cancel_committed_lookup(&mut self) {
        if let (Some(lookup), Some(coordinator)) = (self.committed_lookup.take(), &mut self.coordinator) {
            coordinator.cancel(lookup.id);
        }
    }

    /// Runs one turn of the network that waits for a response, at most until `deadline`.
    pub(super) fn wait_for_answers(&mut self, deadline: i64, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        let wait_ms = self.wait_ms(deadline);
        let wakeup = self.wakeup.clone();
        self.read_net(Some(Wait {
            wait_ms,
            interrupt,
            wakeup: &wakeup,
        }))
    }

    /// Next offset to be returned; resolves it if unset.
    ///
    /// # Errors
    /// `IllegalState` if not assigned; `NoOffsetForPartition` under policy none; `Kafka` with KAFKA_STORAGE_ERROR or
    /// CORRUPT_MESSAGE if the log cannot be read; `Timeout`.
    pub fn position(
        &mut self,
        tp: &TopicPartition,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<i64, ClientError> {
        self.ensure_open()?;
        if !self.state.subs.is_assigned(tp) {
            return Err(not_assigned(tp));
        }
        let deadline = self.net.now_ms().saturating_add(timeout_ms.max(0));
        loop {
            if let Some(position) = self.state.subs.position(tp) {
                return Ok(position);
            }
            self.state.subs.forget_log_failures();
            self.resolve_positions(deadline, &mut *interrupt)?;
            if self.state.subs.position(tp).is_none() {
                self.wait_for_answers(deadline, &mut *interrupt)?;
            }
            if let Some(error) = self.state.subs.log_failure(Some(tp))
                && self.state.subs.position(tp).is_none()
            {
                return Err(error);
            }
            if self.net.now_ms() >= deadline && self.state.subs.position(tp).is_none() {
                let why = self.net.explain_silence("does the topic exist?");
                return Err(ClientError::Timeout(format!(
                    "the position of {tp} was not known after {timeout_ms} ms; {why}"
                )));
            }
        }
    }

    /// Commits the given offsets, or the current positions when `None`. Retriable errors are repeated until the timeout.
    ///
    /// # Errors
    /// `InvalidGroupId` without group.id; `IllegalArgument` for a negative offset; `CommitFailed` when the group has moved on; `Timeout`.
    pub fn commit(
        &mut self,
        offsets: Option<&[(TopicPartition, OffsetAndMetadata)]>,
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<(), ClientError> {
        self.ensure_open()?;
        self.ensure_group("commit")?;
        let offsets = offsets.map_or_else(|| self.state.subs.all_consumed(), <[_]>::to_vec);
        if let Some((tp, bad)) = offsets.iter().find(|(_, o)| o.offset < 0) {
            return Err(ClientError::IllegalArgument(format!(
                "cannot commit offset {} for {tp}: an offset is 0 or more",
                bad.offset
            )));
        }
        let deadline = self.net.now_ms().saturating_add(timeout_ms.max(0));
        self.commit_until(offsets, Commit::Sync, deadline, interrupt)
    }

    /// Commits the positions of a consumer that gives up its partitions. As [`Self::commit`], but without offsets of
    /// deleted topics.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub(crate) fn commit_last(&mut self, timeout_ms: i64, interrupt: Interrupt<'_>) -> Result<(), ClientError> {
        self.ensure_open()?;
        let deadline = self.net.now_ms().saturating_add(timeout_ms.max(0));
        self.commit_until(self.state.subs.all_consumed(), Commit::Last, deadline, interrupt)
    }

    pub(super) fn commit_until(
        &mut self,
        offsets: Vec<(TopicPartition, OffsetAndMetadata)>,
        kind: Commit,
        deadline: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<(), ClientError> {
        let Some(coordinator) = &mut self.coordinator else {
            return Ok(());
        };
        let id = coordinator.start_commit(offsets, kind);
        self.drive_until(
            id,
            deadline,
            interrupt,
            |coordinator| coordinator.commit_result(id),
            "the offsets were not committed in time",
        )?
    }

    /// Committed offsets of the group; `None` for a partition without any.
    ///
    /// # Errors
    /// `InvalidGroupId` without group.id; errors of the group; `Timeout`.
    pub fn committed(
        &mut self,
        partitions: &[TopicPartition],
        timeout_ms: i64,
        interrupt: Interrupt<'_>,
    ) -> Result<Vec<(TopicPartition, Option<OffsetAndMetadata>)>, ClientError> {
        self.ensure_open()?;
        self.ensure_group("committed")?;
        let deadline = self.net.now_ms().saturating_add(timeout_ms.max(0));
        let Some(coordinator) = &mut self.coordinator else {
            return Ok(Vec::new());
        };
        let id = coordinator.start_fetch_committed(partitions.to_vec());
        self.drive_until(
            id,
            deadline,
            interrupt,
            |coordinator| coordinator.committed_result(id),
            "the committed offsets were not answered in time",
        )?
    }

    /// Drives the coordinator until an operation has its result; on an error the operation is cancelled.
    fn drive_until<T>(
        &mut self,
        id: OperationId,
        deadline: i64,
        interrupt: Interrupt<'_>,
        mut result: impl FnMut(&mut crate::group::ConsumerCoordinator) -> Option<T>,
        late: &str,
    ) -> Result<T, ClientError> {
        let failure = loop {
            let Self {
                coordinator: Some(coordinator),
                net,
                state: ConsumerState { subs, .. },
                ..
            } = self
            else {
                return Err(ClientError::InvalidGroupId(late.to_owned()));
            };
            let now = net.now_ms();
            if let Err(error) = coordinator.drive(net, subs, now) {
                break error;
            }
            if let Some(result) = result(coordinator) {
                return Ok(result);
            }
            if now >= deadline {
                let silence = || net.explain_silence("is the group's coordinator reachable?");
                let why = coordinator.last_refusal(id).map_or_else(silence, str::to_owned);
                break ClientError::Timeout(format!("{late}; {why}"));
            }
            if let Err(error) = self.wait_for_answers(deadline, &mut *interrupt) {
                break error;
            }
        };
        if let Some(coordinator) = &mut self.coordinator {
            coordinator.cancel(id);
        }
        Err(failure)
    }
}
