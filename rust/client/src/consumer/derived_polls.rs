//! The polls of a Java consumer, derived from the fetches that it sent and the responses that it got.
//!
//! The consumer's own parts (`abstract_fetch`, `fetch_collector`, with the rules of its release) are driven instead of
//! those of the program: a response is delivered, a poll takes records, and every fetch that the poll would send must be
//! the recorded one, partition by partition. What the wire does not show is when a response was read, how many polls
//! there were before it, and `max.poll.records`: all that agree with the next recorded fetch are followed (`search`).
//!
//! | step     | what it does                                       | it is refused if                                        |
//! |----------|----------------------------------------------------|---------------------------------------------------------|
//! | deliver  | a response goes to the buffer                      | it has no response; under the lazy rule, with records left |
//! | poll     | takes up to max.poll.records, builds the fetches   | a fetch that it builds is not the next recorded one     |
//! | assign   | the group gives other partitions                   | the next fetch was sent before that                     |
//! | call     | a seek, pause or resume, only where nothing else agrees | the fetch is still another one                     |
//!
//! Two ways that lead to the same state of the consumer become one; the polls in which they differ are not decided. Nor are
//! polls from the first step on that is not certain: a call, and an assignment that begins where no position was.

mod rebuilt;
mod recorded;
mod replayed;
mod search;

pub use recorded::{
    RecordedAssignment, RecordedBatch, RecordedFetch, RecordedPartition, RecordedReader, RecordedResponse,
};
pub use search::{DerivedCall, DerivedPoll, DerivedPolls, DerivedRun, Parting, derive_polls};
