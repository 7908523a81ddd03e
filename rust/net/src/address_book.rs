//! Where nodes are: the addresses given to the client, and those that Metadata and FindCoordinator name.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use fletchlog_api::transport::node_of_connection;
use fletchlog_api::{ErrorCode, NodeId, Response};
use fletchlog_protocol::messages::metadata_response::MetadataResponseBroker;

/// The port of an address without one. Kafka has no default; its own examples and tools use this one.
const DEFAULT_PORT: u16 = 9092;

/// The largest node id that is accepted from a response: larger numbers are those of coordinator connections.
const MAX_NODE: NodeId = i32::MAX / 2;

/// A host and a port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Address {
    /// Name or IP address, without brackets.
    pub host: Arc<str>,
    /// Port, not 0.
    pub port: u16,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// A list of servers that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a list of servers: {reason}; expected HOST:PORT[,HOST:PORT...]")]
pub struct BadAddress {
    /// The text that was given.
    pub text: String,
    /// What is wrong.
    pub reason: &'static str,
}

/// The servers of `bootstrap.servers`, with or without `kafka://` in front. A port that is left out is 9092.
///
/// # Errors
/// No server at all, an empty host, an invalid port.
pub fn bootstrap_servers(text: &str) -> Result<Vec<Address>, BadAddress> {
    let bad = |reason| BadAddress {
        text: text.to_owned(),
        reason,
    };
    let list = text.trim().strip_prefix("kafka://").unwrap_or(text.trim());
    let parts = list.trim_end_matches('/').split(',').map(str::trim);
    let addresses: Vec<Address> = parts
        .filter(|part| !part.is_empty())
        .map(|part| address(part).map_err(bad))
        .collect::<Result<_, _>>()?;
    if addresses.is_empty() {
        return Err(bad("it names no server"));
    }
    Ok(addresses)
}

/// `host`, `host:port`, `[v6]`, `[v6]:port`. A security protocol in front (`PLAINTEXT://`) is accepted, as in Java.
fn address(text: &str) -> Result<Address, &'static str> {
    let text = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (host, port) = match text.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']').ok_or("a `[` has no `]`")?;
            (host, rest.strip_prefix(':').or((!rest.is_empty()).then_some("")))
        }
        None => match text.rsplit_once(':') {
            Some((host, _)) if host.contains(':') => return Err("an IPv6 address must be in brackets"),
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err("a port must be a number from 1 to 65535"),
        },
    };
    if host.is_empty() || host.contains(['/', '@', ' ']) {
        return Err("a host is empty or has a character that no host has");
    }
    Ok(Address {
        host: host.into(),
        port,
    })
}

/// The addresses of the bootstrap servers, the brokers and the coordinators.
#[derive(Debug)]
pub struct AddressBook {
    bootstrap: Vec<Address>,
    brokers: BTreeMap<NodeId, Address>,
    /// A coordinator's address may arrive before the metadata names its node.
    coordinators: BTreeMap<NodeId, Address>,
    /// As the last Metadata response has it.
    cluster_id: Option<Arc<str>>,
}

/// What a client expects at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) cluster_id: Arc<str>,
    pub(crate) node_id: NodeId,
}

impl AddressBook {
    /// A book with the servers that the client was given.
    pub fn new(bootstrap: Vec<Address>) -> Self {
        Self {
            bootstrap,
            brokers: BTreeMap::new(),
            coordinators: BTreeMap::new(),
            cluster_id: None,
        }
    }

    /// -1, -2, ... for the servers that the client was given. Kafka: `Cluster#bootstrap`.
    pub fn bootstrap_ids(&self) -> Vec<NodeId> {
        (1..)
            .zip(&self.bootstrap)
            .map(|(number, _): (NodeId, _)| -number)
            .collect()
    }

    /// The address of a connection's node.
    pub fn address_of(&self, connection: NodeId) -> Option<&Address> {
        if connection < 0 {
            let index = usize::try_from(-1_i64 - i64::from(connection)).ok()?;
            return self.bootstrap.get(index);
        }
        let node = node_of_connection(connection);
        let (first, second) = if node == connection {
            (&self.brokers, &self.coordinators)
        } else {
            (&self.coordinators, &self.brokers)
        };
        first.get(&node).or_else(|| second.get(&node))
    }

    /// What has to be at the other end of a connection; `None`: a server that the client was given, or the id of the cluster is not
    /// known. Kafka: `NetworkClient#initiateConnect`.
    pub(crate) fn destination_of(&self, connection: NodeId) -> Option<Destination> {
        let cluster_id = self.cluster_id.clone().filter(|_| connection >= 0)?;
        Some(Destination {
            cluster_id,
            node_id: node_of_connection(connection),
        })
    }

    /// Stores the addresses in a Metadata or FindCoordinator response. A coordinator with an unusable address is not available.
    pub(crate) fn note_addresses(&mut self, response: &mut Response) {
        match response {
            Response::Metadata(metadata) => {
                self.cluster_id.clone_from(&metadata.cluster_id);
                self.set_brokers(&mut metadata.brokers);
            }
            Response::FindCoordinator(found) => {
                for found in &mut found.coordinators {
                    let host = Arc::clone(&found.host);
                    if found.error_code == ErrorCode::NONE && !self.set_coordinator(found.node_id, host, found.port) {
                        found.error_code = ErrorCode::COORDINATOR_NOT_AVAILABLE;
                    }
                }
            }
            _ => {}
        }
    }

    /// Replaces the brokers by those of a Metadata response. A response without nodes, from a node that has just started, changes nothing.
    /// Sorts the list by id, and removes from it what has an id or an address that no node can have.
    fn set_brokers(&mut self, brokers: &mut Vec<MetadataResponseBroker>) {
        let address = |b: &MetadataResponseBroker| entry(b.node_id, Arc::clone(&b.host), b.port);
        let named: BTreeMap<NodeId, Address> = brokers.iter().filter_map(address).collect();
        brokers.retain(|b| named.contains_key(&b.node_id));
        brokers.sort_by_key(|b| b.node_id);
        brokers.dedup_by_key(|b| b.node_id);
        if !named.is_empty() {
            self.brokers = named;
        }
    }

    /// The addresses of the nodes in the last Metadata response.
    pub fn brokers(&self) -> impl Iterator<Item = &Address> {
        self.brokers.values()
    }

    /// Stores a coordinator. False if no client could connect to its address.
    fn set_coordinator(&mut self, node: NodeId, host: Arc<str>, port: i32) -> bool {
        let Some((node, address)) = entry(node, host, port) else {
            return false;
        };
        self.coordinators.insert(node, address);
        true
    }
}

fn entry(node: NodeId, host: Arc<str>, port: i32) -> Option<(NodeId, Address)> {
    let port = u16::try_from(port).ok().filter(|&port| port > 0)?;
    ((0..=MAX_NODE).contains(&node) && !host.is_empty()).then_some((node, Address { host, port }))
}

#[cfg(test)]
mod tests {
    use fletchlog_api::MetadataResponse;
    use fletchlog_api::transport::coordinator_connection;

    use super::*;

    fn shown(text: &str) -> Result<Vec<String>, &'static str> {
        bootstrap_servers(text)
            .map(|list| list.iter().map(ToString::to_string).collect())
            .map_err(|bad| bad.reason)
    }

    #[test]
    fn a_list_of_servers_is_read_as_java_and_people_write_it() {
        assert_eq!(shown("h1:9092").unwrap(), ["h1:9092"]);
        assert_eq!(shown("kafka://h1:1,h2:2").unwrap(), ["h1:1", "h2:2"]);
        assert_eq!(shown(" h1:1 , h2 ,").unwrap(), ["h1:1", "h2:9092"]);
        assert_eq!(shown("kafka://[::1]:7/").unwrap(), ["[::1]:7"]);
        assert_eq!(shown("[fe80::1]").unwrap(), ["[fe80::1]:9092"]);
        assert_eq!(shown("PLAINTEXT://h:1").unwrap(), ["h:1"]);
        for bad in [
            "", "kafka://", " , ", ":9092", "h:0", "h:65536", "h:x", "h:", "::1", "[::1", "[::1]x", "user@h:1",
        ] {
            assert!(shown(bad).is_err(), "{bad}");
        }
    }

    /// The nodes that are left in the list.
    fn set_brokers(book: &mut AddressBook, brokers: &[(NodeId, &str, i32)]) -> Vec<NodeId> {
        let broker = |&(node_id, host, port): &(NodeId, &str, i32)| MetadataResponseBroker {
            node_id,
            host: host.into(),
            port,
            rack: None,
        };
        let mut brokers = brokers.iter().map(broker).collect();
        book.set_brokers(&mut brokers);
        brokers.iter().map(|b| b.node_id).collect()
    }

    #[test]
    fn a_connection_leads_to_its_node_and_a_coordinator_s_to_the_newest_answer_about_it() {
        let mut book = AddressBook::new(bootstrap_servers("a:1,b:2").unwrap());
        assert_eq!(book.bootstrap_ids(), [-1, -2]);
        let at = |book: &AddressBook, id| book.address_of(id).map(ToString::to_string);
        assert_eq!(at(&book, -2).as_deref(), Some("b:2"));
        assert_eq!(at(&book, -3), None);
        assert_eq!(at(&book, i32::MIN), None);
        assert!(book.set_coordinator(5, "c".into(), 3));
        assert_eq!(at(&book, coordinator_connection(5)).as_deref(), Some("c:3"));
        assert_eq!(at(&book, 5).as_deref(), Some("c:3"));
        assert_eq!(set_brokers(&mut book, &[(7, "d", 4), (5, "e", 5)]), [5, 7]);
        assert_eq!(at(&book, 5).as_deref(), Some("e:5"));
        assert_eq!(at(&book, coordinator_connection(7)).as_deref(), Some("d:4"));
        set_brokers(&mut book, &[(7, "d", 4)]);
        assert_eq!(at(&book, 5).as_deref(), Some("c:3"), "only as a coordinator");
    }

    #[test]
    fn what_is_expected_at_an_address_is_known_with_the_metadata() {
        let mut book = AddressBook::new(bootstrap_servers("a:1").unwrap());
        let metadata = |cluster_id: Option<&str>| {
            Response::Metadata(MetadataResponse {
                cluster_id: cluster_id.map(Into::into),
                ..Default::default()
            })
        };
        assert_eq!(book.destination_of(5), None);
        book.note_addresses(&mut metadata(Some("c")));
        let expected = |node_id| {
            Some(Destination {
                cluster_id: "c".into(),
                node_id,
            })
        };
        assert_eq!(book.destination_of(5), expected(5));
        assert_eq!(book.destination_of(coordinator_connection(5)), expected(5));
        assert_eq!(book.destination_of(-1), None, "one of bootstrap.servers");
        book.note_addresses(&mut metadata(None));
        assert_eq!(book.destination_of(5), None);
    }

    #[test]
    fn what_no_node_can_be_is_left_out() {
        let mut book = AddressBook::new(Vec::new());
        let hostile = [
            (-1, "h", 1),
            (i32::MAX, "h", 1),
            (1, "", 1),
            (2, "h", 0),
            (3, "h", 65_536),
            (4, "h", -1),
            (5, "h", 9),
        ];
        assert_eq!(set_brokers(&mut book, &hostile), [5]);
        assert!(!book.set_coordinator(-1, "h".into(), 1));
        assert_eq!(book.address_of(-1), None);
    }
}
