//! What the parts of one consumer share: polls, fetches, lookups of offsets, validation of positions.

use super::fetch_buffer::FetchBuffer;
use super::metadata::ConsumerMetadata;
use super::settings::Settings;
use super::subscription_state::SubscriptionState;
use super::trace::Trace;

/// The state of a consumer that every part reads and some change.
#[derive(Clone)]
pub struct ConsumerState {
    pub(super) settings: Settings,
    pub(super) metadata: ConsumerMetadata,
    pub(super) subs: SubscriptionState,
    pub(super) buffer: FetchBuffer,
    pub(super) trace: Trace,
}
