//! `Cluster.scan`: its arguments as ranges of partitions, which [`RangeScan`] reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use fletchlog_api::{Config, ErrorCode};
use fletchlog_client::consumer::{OffsetRange, RangeScan};
use fletchlog_net::TopicOffsets;
use fletchlog_records::TopicPartition;
use pyo3::prelude::*;

use crate::capsule::Gil;
use crate::errors::Failure;
use crate::peer::Peer;
use crate::scan_arguments::Wanted;

/// The ranges to read, fixed when `scan` was called.
pub struct Plan {
    peer: Arc<Peer>,
    config: Config,
    /// In the order of the scan; none is empty.
    pub ranges: Vec<OffsetRange>,
}

impl Plan {
    /// Resolves the arguments against the current state of the topic.
    ///
    /// # Errors
    /// Those of `Broker.scan`.
    pub fn new(
        peer: Arc<Peer>,
        given: &Config,
        topic: &TopicOffsets,
        firsts: &BTreeMap<i32, i64>,
        wanted: &Wanted<'_>,
    ) -> Result<Self, Failure> {
        let committed = wanted.isolation_level == "read_committed";
        if let Some(number) = wanted.partition
            && !topic.partitions.iter().any(|p| p.partition == number)
        {
            let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            let text = format!("{}-{number}: {}", topic.name, code.message());
            return Err(Failure::kafka(code, text));
        }
        let mut ranges = Vec::new();
        for p in topic
            .partitions
            .iter()
            .filter(|p| wanted.partition.is_none_or(|number| number == p.partition))
        {
            let tp = TopicPartition::new(Arc::clone(&topic.name), p.partition);
            let log_end = if committed {
                p.last_stable_offset
            } else {
                p.high_watermark
            };
            let start = wanted.start_offset.unwrap_or(p.log_start_offset);
            if start < p.log_start_offset {
                let text = format!(
                    "offset {start} of {tp} is gone: the log starts at {}; scan from there",
                    p.log_start_offset
                );
                return Err(Failure::kafka(ErrorCode::OFFSET_OUT_OF_RANGE, text));
            }
            let start = firsts.get(&p.partition).map_or(start, |first| start.max(*first));
            let end = wanted.end_offset.map_or(log_end, |end| end.min(log_end));
            if start < end {
                let topic_id = topic.topic_id;
                ranges.push(OffsetRange {
                    tp,
                    topic_id,
                    start,
                    end,
                });
            }
        }
        Ok(Self {
            peer,
            config: RangeScan::config(given, wanted.isolation_level, wanted.order == "timestamp")?,
            ranges,
        })
    }

    /// Opens a reader of the plan with its own connections.
    ///
    /// # Errors
    /// The system refuses a selector.
    pub fn open(&self) -> Result<RangeScan, Failure> {
        self.open_ranges(&self.ranges)
    }

    /// As [`Plan::open`], for other ranges.
    ///
    /// # Errors
    /// As [`Plan::open`].
    pub fn open_ranges(&self, ranges: &[OffsetRange]) -> Result<RangeScan, Failure> {
        let clock = self.peer.clock();
        let transport = self.peer.connect(&self.config, &clock)?;
        Ok(RangeScan::new(self.config.clone(), ranges, transport, clock)?)
    }
}

/// Whether Ctrl-C was pressed. If so, the reader of the Arrow stream gets an error; the signal is raised again, so that the interpreter
/// handles it afterwards.
pub fn wants_to_stop() -> bool {
    let _gil = Gil::hold();
    let stops = Python::try_attach(|py| {
        let stops = py.check_signals().is_err();
        if stops && let Ok(threads) = py.import("_thread") {
            drop(threads.call_method0("interrupt_main"));
        }
        stops
    });
    stops.unwrap_or(false)
}
