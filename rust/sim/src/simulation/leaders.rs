//! Leaders that move. The broker's nodes keep their partitions, but the ids by which clients know the nodes change: after a move, another
//! node leads all partitions of a node, under the next leader epoch, and requests to the old leader are refused.

use fletchlog_api::{NodeId, Request, Response};

pub(super) struct Leaders {
    /// The id by which clients know each of the broker's nodes, node 1 first.
    names: Vec<NodeId>,
    /// The number of moves of each node.
    moves: Vec<i32>,
}

impl Leaders {
    pub fn new(nodes: u32) -> Self {
        let nodes = i32::try_from(nodes).unwrap_or(1);
        Self {
            names: (1..=nodes).collect(),
            moves: vec![0; usize::try_from(nodes).unwrap_or(1)],
        }
    }

    /// The broker's nodes.
    pub fn nodes(&self) -> std::ops::RangeInclusive<NodeId> {
        1..=i32::try_from(self.names.len()).unwrap_or(1)
    }

    /// Exchanges two nodes.
    pub fn swap(&mut self, a: usize, b: usize) {
        self.names.swap(a, b);
        self.moves[a] += 1;
        self.moves[b] += 1;
    }

    /// The broker's node with this id for clients.
    pub fn real(&self, name: NodeId) -> NodeId {
        let found = self.names.iter().position(|&n| n == name);
        found.map_or(name, |at| i32::try_from(at).unwrap_or(0) + 1)
    }

    fn of(&self, real: NodeId) -> Option<usize> {
        usize::try_from(real - 1).ok().filter(|&at| at < self.names.len())
    }

    fn name(&self, real: NodeId) -> NodeId {
        self.of(real).map_or(real, |at| self.names[at])
    }

    /// Puts the current ids into a response to a client.
    pub fn to_client(&self, mut response: Response) -> Response {
        match &mut response {
            Response::Metadata(metadata) => {
                for partition in metadata.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
                    partition.leader_epoch += self.of(partition.leader_id).map_or(0, |at| self.moves[at]);
                    partition.leader_id = self.name(partition.leader_id);
                }
            }
            Response::FindCoordinator(response) => {
                for found in &mut response.coordinators {
                    found.node_id = self.name(found.node_id);
                }
            }
            _ => {}
        }
        response
    }

    /// Converts the clients' leader epochs in a request to the broker's. A request that was made before a move has an old epoch for the
    /// broker too, as in Kafka.
    pub fn to_broker(&self, real: NodeId, mut request: Request) -> Request {
        let moves = self.of(real).map_or(0, |at| self.moves[at]);
        let turn = |epoch: &mut i32| {
            if *epoch >= 0 {
                *epoch = (*epoch - moves).max(0);
            }
        };
        match &mut request {
            Request::Fetch(fetch) => {
                let partitions = fetch.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|p| turn(&mut p.current_leader_epoch));
            }
            Request::ListOffsets(list) => {
                let partitions = list.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|p| turn(&mut p.current_leader_epoch));
            }
            Request::OffsetForLeaderEpoch(ask) => {
                let partitions = ask.topics.iter_mut().flat_map(|topic| &mut topic.partitions);
                partitions.for_each(|p| turn(&mut p.current_leader_epoch));
            }
            _ => {}
        }
        request
    }
}
