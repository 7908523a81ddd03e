//! Requests and responses: whatever a peer sends is a message or an error, and a message is the same after encoding and decoding it.

use bytes::Bytes;
use fletchlog_protocol::header::{RequestHeader, ResponseHeader, response_header_version};
use fletchlog_protocol::{ApiKey, Fault, Message, Reader, WireError, Writer};

use super::Input;

/// In place of an API: the rest is a frame with its own header.
const WHOLE_FRAME: u8 = 0xff;

/// `[api u8] [version u8] [body]`, or `[0xff] [header and body]`.
pub(super) fn request(data: &[u8]) {
    let mut input = Input(data);
    let frame = match data.first() {
        Some(&WHOLE_FRAME) => Bytes::copy_from_slice(&data[1..]),
        _ => {
            let (api, version) = chosen(&mut input);
            let header = RequestHeader {
                api_key: api.code(),
                api_version: version,
                ..RequestHeader::default()
            };
            let mut writer = Writer::new();
            header.encode(&mut writer).unwrap();
            [&writer.into_chunks().concat(), input.0].concat().into()
        }
    };
    let mut reader = Reader::new(frame);
    let Ok(header) = RequestHeader::decode(&mut reader) else {
        return;
    };
    if let Some(api) = ApiKey::from_code(header.api_key) {
        message(api, Side::Request, reader, header.api_version);
    }
}

/// `[api u8] [version u8] [header and body]`.
pub(super) fn response(data: &[u8]) {
    let mut input = Input(data);
    let (api, version) = chosen(&mut input);
    let mut reader = Reader::new(Bytes::copy_from_slice(input.0));
    let header_version = response_header_version(api.code(), version);
    if ResponseHeader::decode(&mut reader, header_version).is_ok() {
        message(api, Side::Response, reader, version);
    }
}

/// The API and the version that two bytes name, or some other if they do not exist.
fn chosen(input: &mut Input) -> (ApiKey, i16) {
    let (code, number) = (input.byte(), i16::from(input.byte()));
    let any = ApiKey::ALL[usize::from(code) % ApiKey::ALL.len()];
    let api = ApiKey::from_code(code.into()).unwrap_or(any);
    let versions = api.min_version()..=api.max_version();
    match versions.contains(&number) {
        true => (api, number),
        false => (
            api,
            api.min_version() + number % (api.max_version() - api.min_version() + 1),
        ),
    }
}

#[derive(Clone, Copy)]
enum Side {
    Request,
    Response,
}

macro_rules! messages {
    ($($api:ident $request:ident $response:ident;)*) => {
        fn message(api: ApiKey, side: Side, reader: Reader, version: i16) {
            use fletchlog_protocol::messages::{$($request, $response),*};
            match (api, side) {
                $(
                    (ApiKey::$api, Side::Request) => there_and_back::<$request>(reader, version),
                    (ApiKey::$api, Side::Response) => there_and_back::<$response>(reader, version),
                )*
            }
        }
    };
}

fletchlog_protocol::for_each_api!(messages);

/// Encodes a decoded message, and checks that decoding and encoding it again gives the same bytes.
fn there_and_back<M: Message>(mut reader: Reader, version: i16) {
    let Ok(message) = M::decode(&mut reader, version) else {
        return;
    };
    assert!((M::MIN_VERSION..=M::MAX_VERSION).contains(&version));
    let bytes = match encode(&message, version) {
        // replacing invalid UTF-8 has made a text longer than a string can be
        Err(error) => return assert!(matches!(error.fault, Fault::Length(32768..)), "{error}"),
        Ok(chunks) => Bytes::from(chunks.concat()),
    };
    let mut reader = Reader::new(bytes.clone());
    let again = M::decode(&mut reader, version).unwrap();
    assert_eq!(reader.remaining(), 0);
    let chunks = encode(&again, version).unwrap();
    assert!(chunks.concat() == bytes, "{}: encoded differently", M::NAME);
}

fn encode<M: Message>(message: &M, version: i16) -> Result<Vec<Bytes>, WireError> {
    let mut writer = Writer::new();
    message.encode(&mut writer, version)?;
    Ok(writer.into_chunks())
}
