//! A request arrives: the rule whose turn it is, and what that means.

use std::sync::Arc;

use bytes::Bytes;
use fletchlog_protocol::header::RequestHeader;
use fletchlog_protocol::tree::{Node, Side, Tree};
use fletchlog_protocol::{ApiKey, Reader};
use fletchlog_records::planted;

use super::exchange::{After, Arrived, BLACK_HOLE, Exchange, Step, Wait, describe};
use super::{Faults, Predicate, State, progress_of};
use crate::frames::{encoded, request_again};
use crate::request_view::{RequestView, TopicPartitions};
use crate::requests::{RequestRow, batches_of};
use crate::rule::{Action, Rule, When};

impl Faults {
    /// A request has arrived; `None`: its header cannot be read, and nothing is decided.
    pub fn arrived(&self, connection: u64, node: i32, request: &Bytes) -> Option<Arrived> {
        let mut reader = Reader::of_trees(request.clone());
        let header = RequestHeader::decode(&mut reader).ok()?;
        let api = ApiKey::from_code(header.api_key);
        let tree = api.and_then(|api| Tree::decode(api, Side::Request, &mut reader, header.api_version).ok());
        let mut view = RequestView::new(&header, connection, node, request.len());
        if let Some(tree) = &tree {
            view.add(tree, header.api_version, &self.names);
        }
        let session = tree
            .as_ref()
            .filter(|_| api == Some(ApiKey::Fetch))
            .map(|tree| self.fetch_session(&mut view, tree));
        if let Some(tree) = tree.as_ref().filter(|_| api == Some(ApiKey::ShareFetch)) {
            self.share_session(&mut view, tree);
        }
        let rule = self.rule_for(&view);
        let number = self.recorded(
            view,
            rule.as_ref(),
            tree.as_ref().filter(|_| api == Some(ApiKey::Produce)),
        );
        let mut exchange = Exchange {
            number,
            header,
            after: After::Nothing,
            rule: rule.as_ref().map(|(_, rule)| Arc::clone(rule)),
        };
        let Some((of, rule)) = rule else {
            return Some(Arrived {
                exchange,
                wait: Wait::No,
                step: Step::Handle(request.clone()),
            });
        };
        let handle = || Step::Handle(request.clone());
        let wait = match rule.delay_ms {
            0 => Wait::No,
            ms => Wait::Ms(ms),
        };
        let (wait, step) = match &rule.action {
            Action::Error { .. } => (
                wait,
                self.refuse(&mut exchange, request, tree, session.as_deref(), &rule),
            ),
            Action::Close(When::BeforeHandling) => (wait, Step::Close),
            Action::BlackHole(When::BeforeHandling) => {
                self.finish(&exchange, BLACK_HOLE, None);
                (wait, Step::Nothing)
            }
            Action::Delay(ms) => (Wait::Ms(*ms), handle()),
            Action::Hold => (Wait::Release(of), handle()),
            action => {
                exchange.after = After::Act(action.clone());
                (wait, handle())
            }
        };
        Some(Arrived { exchange, wait, step })
    }

    /// The rule whose turn it is. Every rule counts the request.
    fn rule_for(&self, view: &RequestView) -> Option<(u64, Arc<Rule>)> {
        let state = self.lock();
        let candidates = state.rules.iter().filter(|progress| !progress.report.is_cleared);
        let candidates =
            candidates.filter(|p| !p.report.rule.action.is_of_connection() && p.report.rule.selector.matches(view));
        let candidates: Vec<_> = candidates.map(|p| (p.report.number, p.predicate.clone())).collect();
        drop(state);
        // Predicates are asked without the lock: they may need a lock that its holder waits for.
        let holds = |predicate: &Option<Predicate>| predicate.as_ref().is_none_or(|predicate| predicate(view));
        let matching: Vec<u64> = candidates
            .iter()
            .filter(|(_, predicate)| holds(predicate))
            .map(|(number, _)| *number)
            .collect();
        let mut state = self.lock();
        let mut found = None;
        for number in matching {
            if let Some(progress) = progress_of(&mut state, number)
                && progress.is_its_turn()
                && found.is_none()
            {
                progress.report.applied += 1;
                found = Some((number, Arc::clone(&progress.report.rule)));
            }
        }
        let State {
            random, sent, drawn, ..
        } = &mut *state;
        let random = random.as_ref().and_then(|random| random.decide(sent, view));
        found.or_else(|| {
            let rule = random?;
            drawn.push(rule.clone());
            Some((0, Arc::new(rule)))
        })
    }

    /// Records a request; returns its number.
    fn recorded(&self, request: RequestView, rule: Option<&(u64, Arc<Rule>)>, produce: Option<&Tree>) -> u64 {
        let mut state = self.lock();
        let (records, after) = (state.records, state.last_turn);
        let batches = produce.filter(|_| records);
        let batches = batches.map(|tree| batches_of(tree, request.version, &self.names));
        state.requests.push(records, |number| RequestRow {
            number,
            time_ms: self.clock.now_ms(),
            arrived_ms: self.clock.monotonic_ms(),
            request,
            duration_ms: None,
            response_bytes: None,
            errors: Vec::new(),
            outcome: "pending",
            batches: batches.unwrap_or_default(),
            after,
            fault: rule.map(|(_, rule)| describe(rule)),
        })
    }

    /// Answers with a rule's error what it selects, and lets the rest be carried out.
    fn refuse(
        &self,
        exchange: &mut Exchange,
        request: &Bytes,
        tree: Option<Tree>,
        session: Option<&[(Node, TopicPartitions)]>,
        rule: &Arc<Rule>,
    ) -> Step {
        let api = ApiKey::from_code(exchange.header.api_key);
        // An API or a version that is not known is carried out: the broker knows how it refuses it.
        let (Some(mut tree), Some(api), Action::Error { handled, .. }) = (tree, api, &rule.action) else {
            return Step::Handle(request.clone());
        };
        let Some(refusal) = self.refusal(api, exchange.header.api_version, rule) else {
            return Step::Handle(request.clone());
        };
        if let Some(session) = session.filter(|_| rule.selector.is_partial() || *handled) {
            exchange.after = After::Merge(Box::new(refusal.fetch_response(session)), Arc::clone(rule));
            // A response with an error does not wait for data.
            tree.set("max_wait_ms", Node::Int(0));
            return Step::Handle(request_again(&exchange.header, &tree, request));
        }
        let Some(response) = refusal.response(&tree) else {
            exchange.after = After::Mark(Arc::clone(rule));
            return Step::Handle(request.clone());
        };
        let is_whole = !rule.selector.is_partial() || !refusal.take_out(&mut tree, None);
        if (*handled && !planted!("handled-error-not-handled")) || !is_whole {
            exchange.after = After::Merge(Box::new(response), Arc::clone(rule));
            return match *handled {
                true => Step::Handle(request.clone()),
                false => Step::Handle(request_again(&exchange.header, &tree, request)),
            };
        }
        encoded(&exchange.header, &response).map_or_else(|| Step::Handle(request.clone()), Step::Answer)
    }
}
