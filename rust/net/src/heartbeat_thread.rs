//! Keeps a member in its group between two polls. Kafka: `AbstractCoordinator.HeartbeatThread`.
//!
//! The thread has connections of its own, so it does not affect the order in which a poll reads its responses. It sends heartbeats only
//! between two polls: during a poll the client sends them itself.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fletchlog_api::transport::{Heartbeat, HeartbeatPlan, coordinator_connection};
use fletchlog_api::{Clock, CoordinatorType, ErrorCode, FindCoordinatorRequest, NodeId, Request, Response, Transport};
use fletchlog_protocol::messages::ConsumerGroupHeartbeatResponse;

use crate::sockets::Sockets;
use crate::tcp_transport::TcpTransport;

#[derive(Debug, Default)]
struct State {
    plan: Option<HeartbeatPlan>,
    /// Grows with every plan; results for an older plan are dropped.
    version: u64,
    last: Option<Heartbeat>,
    is_closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's handle of the thread, which ends when the handle is dropped.
#[derive(Debug)]
pub(crate) struct HeartbeatThread {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl HeartbeatThread {
    /// Starts the thread, which sends over this transport.
    ///
    /// # Errors
    /// The system cannot start a thread.
    pub(crate) fn start<S: Sockets>(transport: TcpTransport<S>) -> std::io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut member = Member {
            clock: transport.clock(),
            transport,
            shared: Arc::clone(&shared),
            coordinator: None,
            next_id: 0,
        };
        let thread = std::thread::Builder::new()
            .name("fletchlog-heartbeat".to_owned())
            .spawn(move || member.run())?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// From now on the thread sends the heartbeats.
    pub(crate) fn begin(&self, plan: HeartbeatPlan) {
        let mut state = self.shared.lock();
        state.version += 1;
        state.plan = Some(plan);
        state.last = None;
    }

    /// From now on the client sends the heartbeats. Returns the result of the thread's last heartbeat.
    pub(crate) fn end(&self) -> Option<Heartbeat> {
        let mut state = self.shared.lock();
        state.version += 1;
        state.plan = None;
        state.last.take()
    }
}

impl Drop for HeartbeatThread {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The thread's next step.
enum Turn {
    Beat(u64, HeartbeatPlan),
    Leave(HeartbeatPlan),
    End,
}

/// The thread's side.
struct Member<S: Sockets> {
    transport: TcpTransport<S>,
    clock: Arc<dyn Clock>,
    shared: Arc<Shared>,
    coordinator: Option<NodeId>,
    next_id: i32,
}

/// The response that the next poll has to see: the newest, with the assignment of an earlier one if it brings none.
fn with_assignment(
    earlier: Option<ConsumerGroupHeartbeatResponse>,
    newest: Option<ConsumerGroupHeartbeatResponse>,
) -> Option<ConsumerGroupHeartbeatResponse> {
    let Some(mut newest) = newest else {
        return earlier;
    };
    if newest.error_code == ErrorCode::NONE && newest.assignment.is_none() {
        newest.assignment = earlier.and_then(|earlier| earlier.assignment);
    }
    Some(newest)
}

/// How long the thread waits for a plan before it checks again, ms: a plan is made at the end of every poll, and waking the thread each
/// time would cost more than the poll.
const LOOK_AGAIN_MS: i64 = 250;

impl<S: Sockets> Member<S> {
    fn run(&mut self) {
        loop {
            match self.next_turn() {
                Turn::Beat(version, plan) => self.beat(version, &plan),
                Turn::Leave(plan) => self.leave(&plan),
                Turn::End => return,
            }
        }
    }

    /// Waits until something is due.
    fn next_turn(&self) -> Turn {
        let mut state = self.shared.lock();
        loop {
            if state.is_closed {
                return Turn::End;
            }
            let now_ms = self.clock.monotonic_ms();
            let mut wait_ms = LOOK_AGAIN_MS;
            if let Some(plan) = &state.plan {
                if now_ms >= plan.leave_at_ms {
                    // The next poll learns that the member's generation has ended.
                    return state.plan.take().map_or(Turn::End, Turn::Leave);
                }
                if now_ms >= plan.next_ms {
                    return Turn::Beat(state.version, plan.clone());
                }
                let due_ms = plan.next_ms.min(plan.leave_at_ms);
                wait_ms = wait_ms.min(due_ms.saturating_sub(now_ms)).min(plan.interval_ms.max(1));
            }
            let wait = Duration::from_millis(u64::try_from(wait_ms).unwrap_or(0).max(1));
            let waited = self.shared.changed.wait_timeout(state, wait);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn beat(&mut self, version: u64, plan: &HeartbeatPlan) {
        let sent_ms = self.clock.monotonic_ms();
        let answer = self.ask(plan, plan.request.clone());
        let mut state = self.shared.lock();
        if state.version != version {
            return;
        }
        let Some(plan) = &mut state.plan else {
            return;
        };
        let (error, response) = match answer {
            Some(Response::Heartbeat(answered)) => (answered.error_code, None),
            Some(Response::ConsumerGroupHeartbeat(answered)) => (answered.error_code, Some(answered)),
            Some(Response::ShareGroupHeartbeat(answered)) => (answered.error_code, Some(answered.into())),
            _ => (ErrorCode::COORDINATOR_NOT_AVAILABLE, None),
        };
        if let (ErrorCode::NONE, Some(answered)) = (error, &response) {
            match &mut plan.request {
                Request::ConsumerGroupHeartbeat(request) => request.member_epoch = answered.member_epoch,
                Request::ShareGroupHeartbeat(request) => request.member_epoch = answered.member_epoch,
                _ => {}
            }
        }
        let is_answered = matches!(error, ErrorCode::NONE | ErrorCode::REBALANCE_IN_PROGRESS);
        plan.next_ms = sent_ms.saturating_add(if is_answered {
            plan.interval_ms
        } else {
            plan.retry_backoff_ms
        });
        if matches!(
            error,
            ErrorCode::UNKNOWN_MEMBER_ID
                | ErrorCode::ILLEGAL_GENERATION
                | ErrorCode::FENCED_INSTANCE_ID
                | ErrorCode::FENCED_MEMBER_EPOCH
        ) {
            state.plan = None; // The membership has ended: the next poll reports it.
        }
        if error == ErrorCode::NOT_COORDINATOR {
            self.coordinator = None;
        }
        let earlier = state.last.take().and_then(|last| last.response);
        state.last = Some(Heartbeat {
            sent_ms,
            error,
            response: with_assignment(earlier, response),
        });
    }

    /// max.poll.interval.ms has passed. Kafka: `HeartbeatThread#run`, `maybeLeaveGroup`; a static member only stops its heartbeats.
    fn leave(&mut self, plan: &HeartbeatPlan) {
        log::warn!(
            "a member of group {} was not polled for max.poll.interval.ms and leaves the group; raise max.poll.interval.ms or lower max.poll.records",
            plan.group_id
        );
        if let Some(leave) = &plan.leave {
            self.ask(plan, leave.clone());
        }
    }

    /// Sends one request to the coordinator and returns its response; looks up the coordinator first if it is not known.
    fn ask(&mut self, plan: &HeartbeatPlan, request: Request) -> Option<Response> {
        let node = match self.coordinator {
            Some(node) => node,
            None => self.find_coordinator(plan)?,
        };
        let answer = self.exchange(coordinator_connection(node), request, plan.interval_ms);
        self.coordinator = answer.is_some().then_some(node);
        answer
    }

    fn find_coordinator(&mut self, plan: &HeartbeatPlan) -> Option<NodeId> {
        let group_id = Arc::clone(&plan.group_id);
        let lookup = Request::FindCoordinator(FindCoordinatorRequest::of(CoordinatorType::Group, group_id));
        let servers = self.transport.bootstrap();
        let mut answers = servers
            .into_iter()
            .filter_map(|server| self.exchange(server, lookup.clone(), plan.interval_ms));
        answers.find_map(|answer| match answer {
            Response::FindCoordinator(found) => found.coordinator_node().ok(),
            _ => None,
        })
    }

    /// Sends a request and waits for its response, at most `limit_ms` and only until the thread is to end.
    fn exchange(&mut self, node: NodeId, request: Request, limit_ms: i64) -> Option<Response> {
        self.next_id = self.next_id.checked_add(1).unwrap_or(0);
        let id = self.next_id;
        let end_ms = self.clock.monotonic_ms().saturating_add(limit_ms);
        self.transport.send(node, id, request);
        loop {
            while let Some(completion) = self.transport.receive(node) {
                if completion.correlation_id == id {
                    return completion.result.ok();
                }
            }
            let left_ms = end_ms.saturating_sub(self.clock.monotonic_ms());
            if left_ms <= 0 || self.shared.lock().is_closed {
                self.transport.disconnect(node);
                return None;
            }
            let slice = u64::try_from(left_ms.min(LOOK_AGAIN_MS)).unwrap_or(0);
            self.transport.wait(Duration::from_millis(slice));
        }
    }
}
