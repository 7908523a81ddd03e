//! A request and a response of any API: what a client gives to its connection and gets back.

use crate::error::WireError;
use crate::messages::{self, *};
use crate::{ApiKey, Message, Reader, Writer, for_each_api};

/// The request of an API, which knows its response. Kafka: `AbstractRequest`.
pub trait ApiRequest: Message + Into<Request> {
    /// Its response.
    type Response: Message;
    /// The response, if it is one of this API.
    fn response(response: Response) -> Option<Self::Response>;
}

macro_rules! requests {
    ($($api:ident $request:ident $response:ident;)*) => {
        /// A request of any API, in the shape of its newest version. Kafka: `AbstractRequest`.
        #[derive(Debug, Clone)]
        #[allow(missing_docs)]
        pub enum Request { $($api(messages::$request),)* }

        /// A response of any API, in the shape of its newest version. Kafka: `AbstractResponse`.
        #[derive(Debug, Clone)]
        #[allow(missing_docs)]
        pub enum Response { $($api(messages::$response),)* }

        impl Request {
            /// Its API.
            pub fn api(&self) -> ApiKey {
                match self { $(Self::$api(_) => ApiKey::$api,)* }
            }

            /// Writes its body at a version.
            ///
            /// # Errors
            /// As [`Message::encode`].
            pub fn encode(self, w: &mut Writer, version: i16) -> Result<(), WireError> {
                match self { $(Self::$api(request) => request.for_version(version).encode(w, version),)* }
            }

            /// Reads the body of a request of an API at a version.
            ///
            /// # Errors
            /// As [`Message::decode`].
            pub fn decode(api: ApiKey, r: &mut Reader, version: i16) -> Result<Self, WireError> {
                match api {
                    $(ApiKey::$api => $request::decode(r, version).map(|m| Self::$api(m.of_version(version))),)*
                }
            }
        }

        impl Response {
            /// Reads the body of a response of an API at a version.
            ///
            /// # Errors
            /// As [`Message::decode`].
            pub fn decode(api: ApiKey, r: &mut Reader, version: i16) -> Result<Self, WireError> {
                match api {
                    $(ApiKey::$api => $response::decode(r, version).map(|m| Self::$api(m.of_version(version))),)*
                }
            }

            /// Writes its body at a version.
            ///
            /// # Errors
            /// As [`Message::encode`].
            pub fn encode(self, w: &mut Writer, version: i16) -> Result<(), WireError> {
                match self { $(Self::$api(response) => response.for_version(version).encode(w, version),)* }
            }

            /// Its API.
            pub fn api(&self) -> ApiKey {
                match self { $(Self::$api(_) => ApiKey::$api,)* }
            }

            /// The pause that the node asks for, ms; 0 in a version whose clients do not pause, because the node itself delays the
            /// response (KIP-219). Kafka: `AbstractResponse#shouldClientThrottle`.
            pub fn client_throttle_ms(&self, version: i16) -> i32 {
                if self.api().first_throttling_version().is_none_or(|first| version < first) {
                    return 0;
                }
                match self { $(Self::$api(response) => response.throttle_time_ms(),)* }
            }
        }

        $(
            impl From<$request> for Request {
                fn from(request: $request) -> Self {
                    Self::$api(request)
                }
            }

            impl ApiRequest for $request {
                type Response = $response;
                fn response(response: Response) -> Option<$response> {
                    match response {
                        Response::$api(response) => Some(response),
                        _ => None,
                    }
                }
            }
        )*
    };
}

for_each_api!(requests);

impl Request {
    /// The newest version that can carry it.
    pub fn newest_version(&self) -> i16 {
        match self {
            Self::Fetch(fetch) => FetchRequest::newest_version(fetch),
            _ => self.versions_of_transaction().map_or(i16::MAX, |(_, newest)| newest),
        }
    }

    /// The oldest and the newest version that mean the same for the transaction of the request, if it is part of one.
    fn versions_of_transaction(&self) -> Option<(i16, i16)> {
        match self {
            Self::Produce(request) => Some(request.versions_of_transaction()),
            Self::TxnOffsetCommit(request) => Some(request.versions_of_transaction()),
            Self::EndTxn(request) => Some(request.versions_of_transaction()),
            _ => None,
        }
    }

    /// Refuses a version in which it would mean something else. Kafka: `ListOffsetsRequest.Builder#forConsumer`.
    ///
    /// # Errors
    /// Why this version cannot carry it.
    pub fn check_version(&self, version: i16) -> Result<(), &'static str> {
        if self
            .versions_of_transaction()
            .is_some_and(|(oldest, _)| version < oldest)
        {
            return Err("its version of this API does not know transactions of transaction.version 2");
        }
        let Self::ListOffsets(request) = self else {
            return Ok(());
        };
        let timestamps = request.partitions().map(|(_, partition)| partition.timestamp);
        match timestamps.filter_map(ListOffsetsRequest::first_version_of).max() {
            Some(needed) if needed > version => Err("its version of ListOffsets does not know this special timestamp"),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_pauses_from_the_version_on_in_which_the_node_does_not_delay_its_response() {
        let throttle_time_ms = 70;
        // (response, its highest version, first version in which clients pause)
        let throttled: [(Response, i16, Option<i16>); 5] = [
            (
                Response::Fetch(FetchResponse {
                    throttle_time_ms,
                    ..Default::default()
                }),
                18,
                Some(8),
            ),
            (
                Response::ListGroups(ListGroupsResponse {
                    throttle_time_ms,
                    ..Default::default()
                }),
                5,
                Some(2),
            ),
            (
                Response::OffsetDelete(OffsetDeleteResponse {
                    throttle_time_ms,
                    ..Default::default()
                }),
                0,
                Some(0),
            ),
            (
                Response::OffsetForLeaderEpoch(OffsetForLeaderEpochResponse {
                    throttle_time_ms,
                    ..Default::default()
                }),
                4,
                None,
            ),
            (Response::SaslHandshake(SaslHandshakeResponse::default()), 1, None),
        ];
        for (response, highest, first) in throttled {
            for version in 0..=highest {
                let expected = if first.is_some_and(|first| version >= first) {
                    70
                } else {
                    0
                };
                assert_eq!(
                    response.client_throttle_ms(version),
                    expected,
                    "{:?} {version}",
                    response.api()
                );
            }
        }
    }
}
