//! G0 and G1c: cycles of operations (Adya; Elle). Edges: a record follows another one (ww), an operation read what another one sent (wr),
//! an operation followed another one in its process, an operation ended before another one began. No edge leads from a read to a later
//! write: a poll says nothing about records that were not fetched.

use std::collections::{BTreeMap, BTreeSet};

use super::index::Index;
use super::{Anomaly, Class};
use crate::history::{Action, Outcome, Step, Value};

type Edges = Vec<BTreeSet<usize>>;

pub(super) fn check(index: &Index<'_>, found: &mut Vec<Anomaly>) {
    let nodes = index.history.ops.len();
    let (writes, reads) = (order_of_records(index), reads_of_writes(index));
    let (process, time) = (in_process(index), in_time(index));
    let with_reads = union(&writes, &reads);
    // From the strongest claim to the weakest: the first one with a cycle gives it its name.
    let claims = [
        (Class::G0, writes.clone()),
        (Class::G1c, with_reads.clone()),
        (Class::G0Process, union(&writes, &process)),
        (Class::G1cProcess, union(&with_reads, &process)),
        (Class::G0Realtime, union(&writes, &time)),
        (Class::G1cRealtime, union(&with_reads, &time)),
    ];
    let everything = union(&union(&with_reads, &process), &time);
    for tangle in components(&(0..nodes).collect(), &everything) {
        let named = claims.iter().find_map(|(class, edges)| {
            let component = components(&tangle, edges).into_iter().next()?;
            Some((*class, cycle_in(&component, edges)))
        });
        if let Some((class, cycle)) = named {
            let path: Vec<String> = cycle.iter().map(ToString::to_string).collect();
            let what = format!("the operations {} precede each other in a circle", path.join(" -> "));
            found.push(Anomaly {
                class,
                partition: None,
                what,
                ops: cycle,
            });
        }
    }
}

fn union(a: &Edges, b: &Edges) -> Edges {
    a.iter().zip(b).map(|(a, b)| a | b).collect()
}

fn none(index: &Index<'_>) -> Edges {
    vec![BTreeSet::new(); index.history.ops.len()]
}

fn order_of_records(index: &Index<'_>) -> Edges {
    let mut edges = none(index);
    for log in index.logs.values() {
        // A record that exists twice has no place in the order; it is a different anomaly.
        let mut places: BTreeMap<Value, usize> = BTreeMap::new();
        log.at
            .values()
            .flatten()
            .for_each(|&value| *places.entry(value).or_default() += 1);
        let once = log.visible[1].values().filter(|value| places[value] == 1);
        let writers: Vec<usize> = once.map(|value| index.writer[value]).collect();
        for pair in writers.windows(2).filter(|pair| pair[0] != pair[1]) {
            edges[pair[0]].insert(pair[1]);
        }
    }
    edges
}

fn reads_of_writes(index: &Index<'_>) -> Edges {
    let mut edges = none(index);
    for (number, op) in index.history.ops.iter().enumerate() {
        for step in op.steps() {
            let Step::Poll { records, .. } = step else { continue };
            for (_, _, value) in records {
                if let Some(&writer) = index.writer.get(value).filter(|&&w| w != number && index.committed[w]) {
                    edges[writer].insert(number);
                }
            }
        }
    }
    edges
}

fn in_process(index: &Index<'_>) -> Edges {
    let mut of_process: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (number, op) in index.history.ops.iter().enumerate() {
        of_process.entry(op.process).or_default().push(number);
    }
    let mut edges = none(index);
    for ops in of_process.values() {
        precede(index, ops, &mut edges);
    }
    edges
}

fn in_time(index: &Index<'_>) -> Edges {
    let mut edges = none(index);
    let all: Vec<usize> = (0..index.history.ops.len()).collect();
    precede(index, &all, &mut edges);
    edges
}

/// Adds an edge from each operation to those that began after it had ended, except for edges that follow from others.
fn precede(index: &Index<'_>, ops: &[usize], edges: &mut Edges) {
    let judged = |&&number: &&usize| matches!(index.history.ops[number].action, Action::Steps { .. });
    let mut moments: Vec<(u64, bool, usize)> = Vec::new();
    for &number in ops.iter().filter(judged) {
        let op = &index.history.ops[number];
        moments.push((op.begin, false, number));
        if op.outcome != Outcome::Unknown && op.end < u64::MAX {
            moments.push((op.end, true, number));
        }
    }
    moments.sort_unstable();
    let mut ended: BTreeSet<usize> = BTreeSet::new();
    let mut before: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (_, is_end, number) in moments {
        if is_end {
            for earlier in before.remove(&number).unwrap_or_default() {
                ended.remove(&earlier);
            }
            ended.insert(number);
        } else {
            for &earlier in &ended {
                edges[earlier].insert(number);
            }
            before.insert(number, ended.iter().copied().collect());
        }
    }
}

/// The sets of two or more of these operations that all reach each other. Tarjan's algorithm, without recursion.
fn components(nodes: &BTreeSet<usize>, edges: &Edges) -> Vec<BTreeSet<usize>> {
    const NEW: usize = usize::MAX;
    let size = edges.len();
    let (mut number, mut low, mut on_stack) = (vec![NEW; size], vec![0; size], vec![false; size]);
    let (mut stack, mut found, mut next) = (Vec::new(), Vec::new(), 0);
    for &root in nodes {
        if number[root] != NEW {
            continue;
        }
        let mut path: Vec<(usize, Vec<usize>)> = Vec::new();
        let mut enter = Some(root);
        loop {
            if let Some(node) = enter.take() {
                (number[node], low[node]) = (next, next);
                next += 1;
                stack.push(node);
                on_stack[node] = true;
                path.push((node, edges[node].intersection(nodes).copied().collect()));
            }
            let Some((node, left)) = path.last_mut() else { break };
            let node = *node;
            match left.pop() {
                Some(to) if number[to] == NEW => enter = Some(to),
                Some(to) if on_stack[to] => low[node] = low[node].min(number[to]),
                Some(_) => {}
                None => {
                    path.pop();
                    if let Some(&(above, _)) = path.last() {
                        low[above] = low[above].min(low[node]);
                    }
                    if low[node] == number[node] {
                        let from = stack.iter().rposition(|&n| n == node).unwrap_or(0);
                        let component: BTreeSet<usize> = stack.split_off(from).into_iter().collect();
                        component.iter().for_each(|&n| on_stack[n] = false);
                        if component.len() > 1 {
                            found.push(component);
                        }
                    }
                }
            }
        }
    }
    found
}

/// A short cycle: the shortest one through any of the component's first operations.
fn cycle_in(component: &BTreeSet<usize>, edges: &Edges) -> Vec<usize> {
    /// Number of operations to try: a component can be a whole history.
    const STARTS: usize = 16;
    let through = component
        .iter()
        .take(STARTS)
        .map(|&start| cycle_through(start, component, edges));
    through.min_by_key(Vec::len).unwrap_or_default()
}

/// The shortest cycle through an operation that is in one.
fn cycle_through(start: usize, component: &BTreeSet<usize>, edges: &Edges) -> Vec<usize> {
    let mut came_from: BTreeMap<usize, usize> = BTreeMap::new();
    let mut level = vec![start];
    while !level.is_empty() && !came_from.contains_key(&start) {
        let mut next = Vec::new();
        for node in level {
            for &to in edges[node].intersection(component) {
                came_from.entry(to).or_insert_with(|| {
                    next.push(to);
                    node
                });
            }
        }
        level = next;
    }
    let mut cycle = vec![start];
    while let Some(&node) = came_from.get(&cycle[cycle.len() - 1]).filter(|&&node| node != start) {
        cycle.push(node);
    }
    cycle[1..].reverse();
    cycle
}
