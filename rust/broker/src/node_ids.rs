//! The ids of a broker's nodes (`broker.id`, in Kafka also `node.id`).

use std::sync::Arc;

use fletchlog_api::NodeId;

/// Maximum number of nodes of an embedded broker. Each costs a log directory and a session cache; the clusters that they model have
/// tens.
pub(crate) const MAX_NODES: u32 = 1_000;

/// Ids of nodes, ascending; there is at least one. The place of an id is that of its node's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NodeIds(Arc<[NodeId]>);

impl NodeIds {
    /// 1 to `count`, at least 1.
    pub(crate) fn numbered(count: u32) -> Self {
        let count = NodeId::try_from(count.max(1)).unwrap_or(NodeId::MAX);
        Self((1..=count).collect())
    }

    /// These ids; the error says what is wrong with them.
    pub(crate) fn of(mut ids: Vec<NodeId>) -> Result<Self, String> {
        ids.sort_unstable();
        let most = usize::try_from(MAX_NODES).unwrap_or(usize::MAX);
        match ids.first() {
            None => return Err("has no node".to_owned()),
            Some(negative @ ..0) => return Err(format!("cannot have node {negative}; ids of nodes are 0 or more")),
            Some(_) if ids.len() > most => {
                return Err(format!("can have 1 to {MAX_NODES} nodes, not {}", ids.len()));
            }
            Some(_) => {}
        }
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(twice) => Err(format!("cannot have node {} twice", twice[0])),
            None => Ok(Self(ids.into())),
        }
    }

    /// Number of nodes.
    pub(crate) fn count(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// The ids, ascending.
    pub(crate) fn as_slice(&self) -> &[NodeId] {
        &self.0
    }

    /// The place of a node; `None`: no such node.
    pub(crate) fn index_of(&self, node: NodeId) -> Option<usize> {
        let from_first = node.checked_sub(self.first())?;
        let guess = usize::try_from(from_first).ok()?;
        match self.0.get(guess) {
            Some(found) if *found == node => Some(guess),
            _ => self.0.binary_search(&node).ok(),
        }
    }

    /// Whether there is this node.
    pub(crate) fn contains(&self, node: NodeId) -> bool {
        self.index_of(node).is_some()
    }

    /// The node with the lowest id.
    pub(crate) fn first(&self) -> NodeId {
        self.0[0]
    }

    /// The node at a place; after the last one the first follows.
    pub(crate) fn at(&self, place: u64) -> NodeId {
        let index = place % u64::from(self.count());
        self.0[usize::try_from(index).unwrap_or(0)]
    }

    /// Whether the ids are 1, 2, 3 and so on.
    pub(crate) fn is_numbered(&self) -> bool {
        self.0
            .iter()
            .copied()
            .eq(1..=NodeId::try_from(self.0.len()).unwrap_or(NodeId::MAX))
    }
}

impl std::fmt::Display for NodeIds {
    /// As errors name them: `1 to 3`, `0, 2, 5`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.is_numbered() && self.count() > 1 {
            return write!(f, "1 to {}", self.count());
        }
        for (index, id) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { ", " })?;
            write!(f, "{id}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_ids_belong_together() {
        let ids = NodeIds::of(vec![7, 0, 2]).unwrap();
        assert_eq!((ids.as_slice(), ids.count(), ids.first()), (&[0, 2, 7][..], 3, 0));
        assert_eq!(
            [0, 2, 7, 1, 8, -1].map(|node| ids.index_of(node)),
            [Some(0), Some(1), Some(2), None, None, None]
        );
        assert_eq!([0, 1, 2, 3].map(|place| ids.at(place)), [0, 2, 7, 0]);
        assert_eq!(
            (ids.to_string(), NodeIds::numbered(3).to_string()),
            ("0, 2, 7".to_owned(), "1 to 3".to_owned())
        );
        assert!(!ids.is_numbered() && NodeIds::numbered(1).is_numbered());
        for wrong in [vec![], vec![1, -2], vec![3, 3]] {
            assert!(NodeIds::of(wrong.clone()).is_err(), "{wrong:?}");
        }
    }
}
