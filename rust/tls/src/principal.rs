//! The name of a client that has a certificate, exactly as in Kafka's ACLs: `CN=alice,O=Example`. Kafka:
//! `DefaultKafkaPrincipalBuilder#build`; Java: `X500Principal#getName` (RFC 2253).

use std::fmt::Write;

use rustls::pki_types::CertificateDer;
use x509_cert::Certificate;
use x509_cert::attr::AttributeTypeAndValue;
use x509_cert::der::asn1::{Ia5StringRef, PrintableStringRef, TeletexStringRef, Utf8StringRef};
use x509_cert::der::{Decode, Encode, Tag, Tagged};

/// Attributes that have a name in RFC 2253; others are written by number.
const KEYWORDS: &[(&str, &str)] = &[
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.1", "UID"),
    ("0.9.2342.19200300.100.1.25", "DC"),
];

/// The subject of a certificate, its last part first. `None` if it cannot be read, which cannot happen with a verified certificate.
pub(crate) fn subject(certificate: &CertificateDer<'_>) -> Option<String> {
    let certificate = Certificate::from_der(certificate).ok()?;
    let name = certificate.tbs_certificate().subject();
    let mut parts: Vec<String> = Vec::new();
    for part in name.as_ref().iter() {
        let attributes: Vec<String> = part.as_ref().iter().map(attribute).collect();
        parts.push(attributes.join("+"));
    }
    parts.reverse();
    Some(parts.join(","))
}

fn attribute(attribute: &AttributeTypeAndValue) -> String {
    let id = attribute.oid.to_string();
    let keyword = KEYWORDS.iter().find(|(known, _)| *known == id);
    match (keyword, text(attribute)) {
        (Some((_, keyword)), Some(text)) => format!("{keyword}={}", escaped(&text)),
        (keyword, _) => {
            let mut hex = format!("{}=#", keyword.map_or(&*id, |(_, keyword)| keyword));
            for byte in attribute.value.to_der().unwrap_or_default() {
                // Writing to a String never fails.
                let _ = write!(hex, "{byte:02x}");
            }
            hex
        }
    }
}

fn text(attribute: &AttributeTypeAndValue) -> Option<String> {
    let value = &attribute.value;
    let text = match value.tag() {
        Tag::Utf8String => value.decode_as::<Utf8StringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::PrintableString => value.decode_as::<PrintableStringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::Ia5String => value.decode_as::<Ia5StringRef<'_>>().ok()?.as_str().to_owned(),
        Tag::TeletexString => value.decode_as::<TeletexStringRef<'_>>().ok()?.as_str().to_owned(),
        _ => return None,
    };
    Some(text)
}

/// RFC 2253, 2.4.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let last = text.chars().count().saturating_sub(1);
    for (at, character) in text.chars().enumerate() {
        let is_special = matches!(character, ',' | '+' | '"' | '\\' | '<' | '>' | ';');
        if is_special || (at == 0 && matches!(character, ' ' | '#')) || (at == last && character == ' ') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}
