//! All messages by API, for tests that treat every one alike.

use bytes::Bytes;
use fletchlog_protocol::{ApiKey, FieldSpec, Message, Reader, WireError, Writer};

/// A request or a response, as functions.
#[derive(Clone, Copy)]
pub struct Kind {
    pub name: &'static str,
    pub table: &'static [FieldSpec],
    /// Decodes a body.
    pub decode: fn(Bytes, i16) -> Result<(), WireError>,
    /// Decodes a body and encodes it again; also what is left behind the body.
    pub again: fn(Bytes, i16) -> Result<(Vec<Bytes>, usize), WireError>,
}

fn again<M: Message>(body: Bytes, version: i16) -> Result<(Vec<Bytes>, usize), WireError> {
    let mut reader = Reader::new(body);
    let message = M::decode(&mut reader, version)?;
    let mut writer = Writer::new();
    message.encode(&mut writer, version)?;
    Ok((writer.into_chunks(), reader.remaining()))
}

fn kind<M: Message>() -> Kind {
    Kind {
        name: M::NAME,
        table: M::TABLE,
        decode: |body, version| M::decode(&mut Reader::new(body), version).map(drop),
        again: again::<M>,
    }
}

macro_rules! kinds {
    ($($api:ident $request:ident $response:ident;)*) => {
        /// The request and the response of an API.
        pub fn kinds(api: ApiKey) -> [Kind; 2] {
            use fletchlog_protocol::messages::*;
            match api {
                $(ApiKey::$api => [kind::<$request>(), kind::<$response>()],)*
            }
        }
    };
}

fletchlog_protocol::for_each_api!(kinds);
