//! Responses with an error that the broker did not give: for any API, from its tables. Kafka: `AbstractRequest#getErrorResponse`.
//!
//! An error is put where the API reports it: in the response's own error code if it has one in this version, otherwise in the partitions (or
//! whatever the request lists) that the response lists again; if a rule selects partitions, in these. What a request lists is copied by the
//! names of its fields. `judges/interop/test_35_error_answers.py` compares the responses with Kafka's.

use fletchlog_protocol::tree::{Node, Side, Tree};
use fletchlog_protocol::{ApiKey, FieldSpec, FieldType};
use fletchlog_records::ErrorCode;

use crate::faults::TopicNames;
use crate::request_view::{TopicPartitions, is_partitions, is_topics, partition_of, topic_of};
use crate::rule::Selector;

/// One error for what a rule selects.
pub(crate) struct Refusal<'a> {
    pub(crate) api: ApiKey,
    pub(crate) version: i16,
    pub(crate) code: ErrorCode,
    /// In a response of Produce.
    pub(crate) log_start_offset: Option<i64>,
    pub(crate) selector: &'a Selector,
    pub(crate) names: &'a TopicNames,
}

/// First version of Fetch whose error is that of the whole response alone.
const FIRST_FETCH_BY_ID: i16 = 13;

/// What Kafka writes beside an error where the table's default is another value: (API, field, value). Kafka: the `getErrorResponse` of each
/// request.
const BESIDE_AN_ERROR: &[(ApiKey, &str, i64)] = &[
    (ApiKey::Produce, "base_offset", -1),
    (ApiKey::Fetch, "high_watermark", -1),
    (ApiKey::FindCoordinator, "node_id", -1),
    (ApiKey::FindCoordinator, "port", -1),
    (ApiKey::InitProducerId, "producer_epoch", -1),
    (ApiKey::OffsetFetch, "committed_offset", -1),
    (ApiKey::DeleteRecords, "low_watermark", -1),
];

impl Refusal<'_> {
    /// The response to a request that was not carried out; `None`: it has no place for an error.
    pub(crate) fn response(&self, request: &Tree) -> Option<Tree> {
        let mut response = Tree::of(self.api, Side::Response);
        if let Some(session_id) = request.get("session_id") {
            response.set("session_id", session_id.clone());
        }
        let is_whole = !self.selector.is_partial();
        let at_the_top = is_whole && self.put(&mut response);
        let lists_too = match self.api {
            ApiKey::ElectLeaders | ApiKey::AlterPartitionReassignments => true,
            ApiKey::Fetch => self.version < FIRST_FETCH_BY_ID,
            _ => !at_the_top,
        };
        let placed = lists_too && self.fill(&mut response, request, None) || at_the_top || self.put(&mut response);
        placed.then_some(response)
    }

    /// The response to a fetch of these partitions. They come from the fetch session: the request lists only what has changed.
    pub(crate) fn fetch_response(&self, partitions: &[(Node, TopicPartitions)]) -> Tree {
        let mut response = Tree::of(self.api, Side::Response);
        let Some(FieldType::Array(&FieldType::Struct(_, of_topic))) = type_of(response.table, "responses") else {
            return response;
        };
        let mut topics = Vec::new();
        for (key, (topic, numbers)) in partitions {
            let mut element = Tree::initial(of_topic);
            element.set(
                if matches!(key, Node::Uuid(_)) {
                    "topic_id"
                } else {
                    "topic"
                },
                key.clone(),
            );
            let Some(FieldType::Array(&FieldType::Struct(_, of_partition))) = type_of(of_topic, "partitions") else {
                continue;
            };
            let refused = numbers.iter().filter(|number| self.selector.has(topic, Some(**number)));
            let refused: Vec<Node> = refused.map(|number| self.partition(of_partition, *number)).collect();
            if !refused.is_empty() {
                element.set("partitions", Node::Array(refused));
                topics.push(Node::Struct(Box::new(element)));
            }
        }
        response.set("responses", Node::Array(topics));
        response
    }

    fn partition(&self, table: &'static [FieldSpec], number: i32) -> Node {
        let mut partition = Tree::initial(table);
        partition.set("partition_index", Node::Int(number.into()));
        self.put(&mut partition);
        Node::Struct(Box::new(partition))
    }

    /// Lists in a response what the request lists, with the error. Returns whether it put the error anywhere.
    fn fill(&self, response: &mut Tree, request: &Tree, topic: Option<&str>) -> bool {
        let mut placed = false;
        for (spec, value) in response.table.iter().zip(&mut response.values) {
            let FieldType::Array(&FieldType::Struct(_, table)) = spec.field_type else {
                continue;
            };
            if !spec.presence.versions.contains(self.version) || !has_error(table) {
                continue;
            }
            let Some((name, elements)) = self.counterpart(table, request) else {
                continue;
            };
            let mut made = Vec::new();
            for element in elements {
                let here = self.topic_of(name, element);
                let topic = here.as_deref().or(topic);
                if self.selects(name, element, topic) {
                    let (element, has_error) = self.element(table, element, topic);
                    placed |= has_error;
                    made.push(element);
                }
            }
            *value = Node::Array(made);
        }
        placed
    }

    /// An element of a response for one of the request, and whether the error is in it.
    fn element(&self, table: &'static [FieldSpec], of: &Node, topic: Option<&str>) -> (Node, bool) {
        let mut made = Tree::initial(table);
        let placed;
        match of {
            Node::Struct(of) => {
                for (spec, value) in of.fields(self.version).filter(|(spec, _)| is_key(spec.name)) {
                    let same = table
                        .iter()
                        .position(|own| plain(own.name) == plain(spec.name) && own.field_type == spec.field_type);
                    if let Some(place) = same.and_then(|at| made.values.get_mut(at)) {
                        *place = value.clone();
                    }
                }
                let is_group = self.api == ApiKey::OffsetFetch && !self.selector.is_partial();
                if is_group && table.iter().any(|spec| spec.name == "group_id") {
                    // A group's error is beside its topics, not in them.
                    made.set("topics", Node::Array(Vec::new()));
                    placed = self.put(&mut made);
                } else {
                    placed = self.fill(&mut made, of, topic) || self.put(&mut made);
                }
            }
            key => {
                let is_key = |spec: &FieldSpec| match key {
                    Node::String(_) => matches!(spec.field_type, FieldType::String),
                    _ => matches!(spec.field_type, FieldType::Int32) && is_partition_number(spec.name),
                };
                // The first text of an element is its error message in some responses.
                let at = table
                    .iter()
                    .position(|spec| is_key(spec) && spec.name != "error_message");
                if let Some(place) = at.and_then(|at| made.values.get_mut(at)) {
                    *place = key.clone();
                }
                placed = self.put(&mut made);
            }
        }
        (Node::Struct(Box::new(made)), placed)
    }

    /// The array of a request that a response lists again as elements with this table.
    fn counterpart<'t>(&self, table: &[FieldSpec], request: &'t Tree) -> Option<(&'static str, &'t [Node])> {
        let shares = |other: &[FieldSpec]| {
            let keys = other.iter().filter(|spec| is_key(spec.name));
            keys.clone()
                .any(|key| table.iter().any(|own| plain(own.name) == plain(key.name)))
        };
        let fits = |field_type: FieldType| match field_type {
            FieldType::Array(&FieldType::Struct(_, other)) => shares(other),
            FieldType::Array(&FieldType::String) => table
                .iter()
                .any(|own| is_key(own.name) && matches!(own.field_type, FieldType::String)),
            FieldType::Array(&FieldType::Int32) => table.iter().any(|own| is_partition_number(own.name)),
            _ => false,
        };
        request.fields(self.version).find_map(|(spec, node)| match node {
            Node::Array(elements) if fits(spec.field_type) => Some((spec.name, &elements[..])),
            _ => None,
        })
    }

    /// Puts the error into the error codes of a message or of a struct. Returns whether it has one.
    fn put(&self, tree: &mut Tree) -> bool {
        let mut placed = false;
        for (spec, value) in tree.table.iter().zip(&mut tree.values) {
            if is_error(spec) && spec.presence.versions.contains(self.version) {
                *value = Node::Int(self.code.code().into());
                placed = true;
            }
            if let Some((.., beside)) = BESIDE_AN_ERROR
                .iter()
                .find(|(api, name, _)| *api == self.api && *name == spec.name)
            {
                *value = Node::Int(*beside);
            }
            match (self.api, spec.name) {
                (ApiKey::Produce, "log_start_offset") => *value = Node::Int(self.log_start_offset.unwrap_or(-1)),
                // Kafka sends no records, and not null.
                (ApiKey::Fetch, "records") => *value = Node::Bytes(bytes::Bytes::new()),
                (ApiKey::DescribeClientQuotas, "entries") => *value = Node::Null,
                _ => {}
            }
        }
        placed
    }

    fn topic_of(&self, array: &str, element: &Node) -> Option<std::sync::Arc<str>> {
        match element {
            Node::Struct(tree) if is_topics(array) => topic_of(tree, self.version, self.names),
            Node::String(topic) if is_topics(array) => Some(std::sync::Arc::clone(topic)),
            _ => None,
        }
    }

    /// Whether an element of an array is selected, or has something in it that is.
    fn selects(&self, array: &str, element: &Node, topic: Option<&str>) -> bool {
        let Some(topic) = topic.filter(|_| self.selector.is_partial()) else {
            return true;
        };
        if is_partitions(array) {
            return self.selector.has(topic, partition_of(element));
        }
        let Node::Struct(tree) = element else {
            return self.selector.has(topic, None);
        };
        let mut partitions = tree
            .fields(self.version)
            .filter(|(spec, _)| is_partitions(spec.name))
            .flat_map(|(_, node)| node.elements().iter().map(partition_of))
            .peekable();
        match partitions.peek() {
            None => self.selector.has(topic, None),
            Some(_) => partitions.any(|partition| self.selector.has(topic, partition)),
        }
    }

    /// Takes what is selected out of a request or of a response. Returns whether anything is left of what it lists.
    pub(crate) fn take_out(&self, tree: &mut Tree, topic: Option<&str>) -> bool {
        let (mut lists, mut left) = (false, false);
        for (spec, value) in tree.table.iter().zip(&mut tree.values) {
            let is_listing = is_topics(spec.name) || topic.is_some() && is_partitions(spec.name);
            let Node::Array(elements) = value else { continue };
            if !is_listing {
                for element in elements {
                    if let Node::Struct(inner) = element {
                        left |= self.take_out(inner, topic);
                        lists = true;
                    }
                }
                continue;
            }
            lists = true;
            elements.retain_mut(|element| {
                let here = self.topic_of(spec.name, element);
                match (element, topic.or(here.as_deref())) {
                    (Node::Struct(inner), Some(topic)) if here.is_some() => {
                        let names_partitions = inner
                            .fields(self.version)
                            .any(|(s, n)| is_partitions(s.name) && !n.elements().is_empty());
                        match names_partitions {
                            true => self.take_out(inner, Some(topic)),
                            false => !self.selector.has(topic, None),
                        }
                    }
                    (element, Some(topic)) => !self.selector.has(topic, partition_of(element)),
                    (_, None) => true,
                }
            });
            left |= !elements.is_empty();
        }
        left || !lists
    }

    /// Puts the error into everything of a response that is selected.
    pub(crate) fn mark(&self, tree: &mut Tree, topic: Option<&str>) {
        let mut inner_errors = false;
        for (spec, value) in tree.table.iter().zip(&mut tree.values) {
            let Node::Array(elements) = value else { continue };
            for element in elements {
                let here = self.topic_of(spec.name, element);
                let topic = here.as_deref().or(topic);
                if !self.selects(spec.name, element, topic) {
                    continue;
                }
                if let Node::Struct(inner) = element
                    && has_error(inner.table)
                {
                    self.mark(inner, topic);
                    inner_errors = true;
                }
            }
        }
        if !inner_errors {
            self.put(tree);
        }
    }
}

/// Puts a response with errors into another response of the same API and version: what has an error of its own replaces what it is about, and
/// what is listed beside it stays.
pub(crate) fn merge(into: &mut Tree, errors: Tree) {
    if has_own_error(&errors) {
        *into = errors;
        return;
    }
    for (place, value) in into.values.iter_mut().zip(errors.values) {
        let (Node::Array(all), Node::Array(more)) = (place, value) else {
            continue;
        };
        for element in more {
            let same = all.iter_mut().find_map(|other| match (other, &element) {
                (Node::Struct(other), Node::Struct(one)) if same_key(other, one) => Some(other),
                _ => None,
            });
            match (same, element) {
                (Some(other), Node::Struct(one)) => merge(other, *one),
                (_, element) => all.push(element),
            }
        }
    }
}

/// Whether a struct has an error that is not in one of those that it lists.
fn has_own_error(tree: &Tree) -> bool {
    let mut fields = tree.table.iter().zip(&tree.values);
    fields
        .any(|(spec, node)| is_error(spec) && node.int().is_some_and(|code| code != i64::from(ErrorCode::NONE.code())))
}

/// Whether two structs of the same table have equal keys, and so are about the same topic, partition or group.
fn same_key(one: &Tree, other: &Tree) -> bool {
    let keys = one.table.iter().enumerate().filter(|(_, spec)| is_key(spec.name));
    let mut equal = keys
        .map(|(at, _)| one.values.get(at) == other.values.get(at))
        .peekable();
    equal.peek().is_some() && equal.all(|equal| equal)
}

/// Every error in a response, in its order.
pub(crate) fn errors_of(tree: &Tree, version: i16, found: &mut Vec<ErrorCode>) {
    for (spec, node) in tree.fields(version) {
        if matches!(spec.field_type, FieldType::ErrorCode) {
            let code = node
                .int()
                .and_then(|code| i16::try_from(code).ok())
                .and_then(ErrorCode::from_code);
            if let Some(code) = code.filter(|code| *code != ErrorCode::NONE && !found.contains(code)) {
                found.push(code);
            }
        }
        for element in node.elements() {
            if let Node::Struct(inner) = element {
                errors_of(inner, version, found);
            }
        }
    }
}

fn is_error(spec: &FieldSpec) -> bool {
    matches!(spec.field_type, FieldType::ErrorCode) && matches!(spec.name, "error_code" | "partition_error_code")
}

/// Whether a struct or one in it has an error code.
fn has_error(table: &[FieldSpec]) -> bool {
    table.iter().any(|spec| {
        is_error(spec) || matches!(spec.field_type, FieldType::Array(&FieldType::Struct(_, inner)) if has_error(inner))
    })
}

fn type_of(table: &[FieldSpec], name: &str) -> Option<FieldType> {
    table.iter().find(|spec| spec.name == name).map(|spec| spec.field_type)
}

/// One word for the names of a field in requests and responses.
fn plain(name: &str) -> &str {
    match name {
        "name" | "topic" | "topic_name" | "user" | "topics" => "name",
        "partition_index" | "index" | "partition" | "partition_id" => "partition",
        "groups" | "groups_names" | "group_ids" | "group_id" => "group",
        other => other,
    }
}

/// Whether a field says which topic, partition, group or resource its struct is about.
fn is_key(name: &str) -> bool {
    is_partition_number(name)
        || matches!(
            name,
            "name"
                | "topic"
                | "topic_name"
                | "topic_id"
                | "user"
                | "group_id"
                | "key"
                | "transactional_id"
                | "resource_name"
                | "resource_type"
                | "feature"
                | "producer_id"
                | "member_id"
                | "entity"
        )
}

fn is_partition_number(name: &str) -> bool {
    matches!(name, "partition_index" | "index" | "partition" | "partition_id")
}
