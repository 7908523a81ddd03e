//! The partitions of fetch sessions: a request names only those that it adds or forgets, and is for all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fletchlog_protocol::tree::{Node, Tree};

use super::Faults;
use crate::request_view::{RequestView, TopicPartitions, partition_of, topic_of};

/// The name or the id that the request has for a topic, and partitions, by the name of the topic.
pub(super) type Session = BTreeMap<Arc<str>, (Node, BTreeSet<i32>)>;
/// Group and member.
pub(super) type ShareSessionKey = (Arc<str>, Arc<str>);

impl Faults {
    /// A connection was closed.
    pub fn disconnected(&self, connection: u64) {
        let mut state = self.lock();
        state.sessions.remove(&connection);
        state.share_sessions.remove(&connection);
    }

    /// Follows the fetch session of a connection, and adds its partitions to the request.
    pub(super) fn fetch_session(&self, view: &mut RequestView, request: &Tree) -> Vec<(Node, TopicPartitions)> {
        let mut state = self.lock();
        let session = state.sessions.entry(view.connection).or_default();
        self.follow(session, view, request, "session_epoch")
    }

    /// As [`Self::fetch_session`], for the share session of a member.
    pub(super) fn share_session(&self, view: &mut RequestView, request: &Tree) {
        let text = |field| request.get(field).and_then(Node::text).cloned().unwrap_or_default();
        let key = (text("group_id"), text("member_id"));
        let mut state = self.lock();
        let sessions = state.share_sessions.entry(view.connection).or_default();
        let session = sessions.entry(key.clone()).or_default();
        self.follow(session, view, request, "share_session_epoch");
        if view.topics.is_empty() {
            sessions.remove(&key);
        }
    }

    /// Takes into a session what a request adds and forgets, and puts its partitions into the view.
    fn follow(
        &self,
        session: &mut Session,
        view: &mut RequestView,
        request: &Tree,
        epoch: &str,
    ) -> Vec<(Node, TopicPartitions)> {
        let version = view.version;
        let epoch = request.get(epoch).and_then(Node::int).unwrap_or(-1);
        if epoch <= 0 {
            session.clear();
        }
        for element in request.get("topics").map(Node::elements).unwrap_or_default() {
            if let Some((name, key, numbers)) = self.topic_in_fetch(element, version) {
                session
                    .entry(name)
                    .or_insert_with(|| (key, BTreeSet::new()))
                    .1
                    .extend(numbers);
            }
        }
        for element in request
            .get("forgotten_topics_data")
            .map(Node::elements)
            .unwrap_or_default()
        {
            if let Some((name, _, numbers)) = self.topic_in_fetch(element, version)
                && let Some((_, known)) = session.get_mut(&name)
            {
                known.retain(|number| !numbers.contains(number));
            }
        }
        session.retain(|_, (_, numbers)| !numbers.is_empty());
        let all = session.iter().map(|(name, (key, numbers))| {
            (
                key.clone(),
                (Arc::clone(name), numbers.iter().copied().collect::<Vec<_>>()),
            )
        });
        let all: Vec<_> = all.collect();
        view.topics = all.iter().map(|(_, topic)| topic.clone()).collect();
        all
    }

    fn topic_in_fetch(&self, element: &Node, version: i16) -> Option<(Arc<str>, Node, Vec<i32>)> {
        let Node::Struct(tree) = element else { return None };
        let name = topic_of(tree, version, &self.names)?;
        let key = match tree.get("topic_id") {
            Some(Node::Uuid(id)) if *id != [0; 16] => Node::Uuid(*id),
            _ => Node::String(Arc::clone(&name)),
        };
        let numbers = tree
            .get("partitions")
            .map(Node::elements)
            .unwrap_or_default()
            .iter()
            .filter_map(partition_of);
        Some((name, key, numbers.collect()))
    }
}
