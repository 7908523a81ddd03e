//! Deterministic member ids. A broker's ids end in random digits, and the sticky assignor iterates over them by hash, so each run would
//! assign partitions differently. So clients get ids that end in the number of the broker's start. A member of a consumer group chooses
//! its id at random: the broker gets its client.id, which no other life of a member has.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{Request, Response};

/// Length of `-4xxx-8xxx-xxxxxxxxxxxx`, the random end of an id.
const RANDOM: usize = 23;

#[derive(Default)]
pub(super) struct Members {
    /// The broker's ids by the clients' ids.
    real: BTreeMap<Arc<str>, Arc<str>>,
    /// The client.id of members that have chosen their ids.
    chosen: BTreeMap<Arc<str>, Arc<str>>,
    /// The random end of the ids, for each start of the broker that has issued some.
    starts: Vec<Box<str>>,
}

impl Members {
    fn name(&mut self, real: &mut Arc<str>) {
        let Some(kept) = real.len().checked_sub(RANDOM) else {
            return;
        };
        let (kept, random) = real.split_at(kept);
        let known = self.starts.iter().position(|start| **start == *random);
        let start = known.unwrap_or_else(|| {
            self.starts.push(random.into());
            self.starts.len() - 1
        });
        let name: Arc<str> = format!("{kept}-{start}").into();
        let real = std::mem::replace(real, name.clone());
        self.real.insert(name, real);
    }

    fn real(&self, name: &mut Arc<str>) {
        if let Some(real) = self.real.get(name).or_else(|| self.chosen.get(name)) {
            *name = real.clone();
        }
    }

    /// Puts the clients' ids into a response.
    pub fn rename(&mut self, mut response: Response) -> Response {
        if let Response::JoinGroup(join) = &mut response {
            self.name(&mut join.member_id);
            self.name(&mut join.leader);
            join.members.iter_mut().for_each(|m| self.name(&mut m.member_id));
        }
        response
    }

    /// Puts the broker's ids into a request.
    pub fn for_broker(&mut self, mut request: Request) -> Request {
        match &mut request {
            Request::ConsumerGroupHeartbeat(heartbeat) => {
                let client_id = Arc::clone(&heartbeat.sender.client_id);
                let chosen = std::mem::replace(&mut heartbeat.member_id, Arc::clone(&client_id));
                self.chosen.insert(chosen, client_id);
            }
            Request::ShareGroupHeartbeat(heartbeat) => {
                let client_id = Arc::clone(&heartbeat.sender.client_id);
                let chosen = std::mem::replace(&mut heartbeat.member_id, Arc::clone(&client_id));
                self.chosen.insert(chosen, client_id);
            }
            Request::ShareFetch(fetch) => fetch.member_id.iter_mut().for_each(|id| self.real(id)),
            Request::ShareAcknowledge(ack) => ack.member_id.iter_mut().for_each(|id| self.real(id)),
            Request::JoinGroup(join) => self.real(&mut join.member_id),
            Request::SyncGroup(sync) => {
                self.real(&mut sync.member_id);
                sync.assignments
                    .iter_mut()
                    .for_each(|assigned| self.real(&mut assigned.member_id));
            }
            Request::Heartbeat(heartbeat) => self.real(&mut heartbeat.member_id),
            Request::LeaveGroup(leave) => leave.members.iter_mut().for_each(|m| self.real(&mut m.member_id)),
            Request::OffsetCommit(commit) => self.real(&mut commit.member_id),
            Request::TxnOffsetCommit(commit) => self.real(&mut commit.member_id),
            _ => {}
        }
        request
    }
}
