//! The polls of a Java consumer, derived from the fetches that it sent and the responses that it got.
//!
//! The consumer's own parts (`abstract_fetch`, `fetch_collector`, with the rules of its release) are driven instead of
//! those of the program: a response is delivered, a poll takes records, and every fetch that the poll would send must be
//! the recorded one, partition by partition. What the wire does not show is when a response was read, how many polls
//! there were before it, and `max.poll.records`: all that agree with the next recorded fetch are followed (`search`). What
//! was committed before a fetch was returned before it.
//!
//! | step     | what it does                                       | it is refused if                                        |
//! |----------|----------------------------------------------------|---------------------------------------------------------|
//! | deliver  | a response goes to the buffer                      | it has no response; under the lazy rule, with records left |
//! | poll     | takes up to max.poll.records, builds the fetches   | a fetch that it builds is not the next recorded one     |
//! | send     | the same fetches, sent by another thread: group.protocol=consumer (KIP-848) | as for a poll                  |
//! | assign   | the group gives other partitions                   | the next fetch was sent before that                     |
//! | narrow   | a Metadata request names fewer topics: `assign()`   | the same                                                |
//! | call     | a seek, pause, resume or assign, only where nothing else agrees | the fetch is still another one             |
//!
//! Two ways that lead to the same state of the consumer become one; the polls in which they differ are not decided. Nor are
//! polls from a step on that is not certain (a call, and an assignment that begins where no position was) until every
//! partition was asked for again and nothing is buffered. Leaders are those that the fetches were sent to (`leaders`).

mod calls;
mod chain;
mod compared;
mod derived;
mod leaders;
mod max_poll_records;
mod rebuilt;
mod recorded;
mod recording;
mod replayed;
mod search;

pub use derived::{DerivedCall, DerivedPoll, DerivedPolls, DerivedRun, Parting};
pub use max_poll_records::derive_polls;
pub use recorded::{
    RecordedAssignment, RecordedBatch, RecordedCommit, RecordedFetch, RecordedPartition, RecordedReader,
    RecordedResponse, RecordedTopics,
};
