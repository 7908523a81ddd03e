//! SCRAM: salts, keys, proofs and messages. Kafka: `ScramFormatter`, `ScramMessages`, `ScramSaslServer`, `ScramSaslClient`.
//!
//! ```text
//! client first    n,[a=authorization id],n=name,r=client nonce[,extensions]       (bare: from n=name on)
//! server first    r=client nonce + server nonce,s=salt,i=iterations[,extensions]
//! client final    c=base64 of "n,,",r=nonce[,extensions],p=proof                  (without proof: up to ,p=)
//! server final    v=server signature    or    e=error
//!
//! salted password  = PBKDF2(password, salt, iterations)
//! client key       = HMAC(salted password, "Client Key"), stored key = H(client key)
//! server key       = HMAC(salted password, "Server Key")
//! signed           = client first bare "," server first "," client final without proof
//! proof            = client key XOR HMAC(stored key, signed)
//! server signature = HMAC(server key, signed)
//! ```
//! In a name `,` is written `=2C` and `=` is written `=3D`. Salt, proof and signature are base64.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

use crate::{SaslError, Secret, is_same, text};

/// Fewest iterations of both mechanisms. Kafka: `ScramMechanism#minIterations`.
pub const MIN_ITERATIONS: u32 = 4096;
/// Most iterations of credentials that are stored. Kafka: `ScramMechanism#maxIterations`.
pub const MAX_ITERATIONS: u32 = 16384;
/// Most iterations that a client computes for a server: a second of work, not an hour.
const MAX_ITERATIONS_ASKED: u32 = 1_000_000;

/// A kind of SCRAM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ScramMechanism {
    /// SCRAM-SHA-256.
    Sha256,
    /// SCRAM-SHA-512.
    Sha512,
}

impl ScramMechanism {
    /// Its name in messages and properties.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sha256 => "SCRAM-SHA-256",
            Self::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// Its number in Kafka's messages and files. Kafka: `ScramMechanism#type`.
    pub fn code(self) -> i8 {
        match self {
            Self::Sha256 => 1,
            Self::Sha512 => 2,
        }
    }

    /// The mechanism of this number.
    pub fn from_code(code: i8) -> Option<Self> {
        [Self::Sha256, Self::Sha512]
            .into_iter()
            .find(|mechanism| mechanism.code() == code)
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    fn hmac(self, key: &[u8], bytes: &[u8]) -> Vec<u8> {
        fn mac<M: Mac + KeyInit>(key: &[u8], bytes: &[u8]) -> Vec<u8> {
            // No error: a key may have any length.
            M::new_from_slice(key).map_or_else(
                |_| Vec::new(),
                |mac| mac.chain_update(bytes).finalize().into_bytes().to_vec(),
            )
        }
        match self {
            Self::Sha256 => mac::<Hmac<Sha256>>(key, bytes),
            Self::Sha512 => mac::<Hmac<Sha512>>(key, bytes),
        }
    }

    /// PBKDF2 of a password. Kafka: `ScramFormatter#saltedPassword`, `#hi`.
    pub fn salted_password(self, password: &Secret, salt: &[u8], iterations: u32) -> Vec<u8> {
        let password = password.reveal().as_bytes();
        match self {
            Self::Sha256 => pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password, salt, iterations).to_vec(),
            Self::Sha512 => pbkdf2::pbkdf2_hmac_array::<Sha512, 64>(password, salt, iterations).to_vec(),
        }
    }
}

/// What a server keeps of a password: enough to check proofs, not enough to make one. Kafka: `ScramCredential`.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramCredential {
    /// Random bytes.
    pub salt: Vec<u8>,
    /// Hash of the client key.
    pub stored_key: Vec<u8>,
    /// The server's key.
    pub server_key: Vec<u8>,
    /// Iterations of PBKDF2.
    pub iterations: u32,
}

impl fmt::Debug for ScramCredential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramCredential")
            .field("iterations", &self.iterations)
            .finish_non_exhaustive()
    }
}

impl ScramCredential {
    /// Makes it from a salted password, which clients send to have it stored. Kafka: `ScramControlManager.ScramCredentialData`.
    pub fn from_salted_password(mechanism: ScramMechanism, salted: &[u8], salt: &[u8], iterations: u32) -> Self {
        Self {
            salt: salt.to_vec(),
            stored_key: mechanism.hash(&mechanism.hmac(salted, b"Client Key")),
            server_key: mechanism.hmac(salted, b"Server Key"),
            iterations,
        }
    }
}

/// Escapes a name for a message. Kafka: `ScramFormatter#saslName`.
fn sasl_name(username: &str) -> String {
    username.replace('=', "=3D").replace(',', "=2C")
}

/// Removes the escapes from a name in a message. Kafka: `ScramFormatter#username`.
fn username(sasl_name: &str) -> Option<String> {
    let name = sasl_name.replace("=2C", ",");
    (!name.replace("=3D", "").contains('=')).then(|| name.replace("=3D", "="))
}

fn xor(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter().zip(other).map(|(a, b)| a ^ b).collect()
}

/// The parts of a message, each with its letter: `r=...`. Unknown parts come after the known ones.
struct Parts<'a> {
    parts: std::str::Split<'a, char>,
    what: &'static str,
}

impl<'a> Parts<'a> {
    fn of(message: &'a str, what: &'static str) -> Self {
        let parts = message.split(',');
        Self { parts, what }
    }

    fn wrong(&self) -> SaslError {
        SaslError::invalid(format!("Invalid SCRAM {} message format", self.what))
    }

    /// The next part, which has this letter and is not empty.
    fn next(&mut self, letter: char) -> Result<&'a str, SaslError> {
        let part = self
            .parts
            .next()
            .and_then(|part| part.strip_prefix(letter)?.strip_prefix('='));
        part.filter(|value| !value.is_empty()).ok_or_else(|| self.wrong())
    }

    fn base64(&self, value: &str) -> Result<Vec<u8>, SaslError> {
        BASE64.decode(value).map_err(|_| self.wrong())
    }
}

fn is_printable(nonce: &str) -> bool {
    nonce.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The client's first message.
pub(crate) struct ClientFirst {
    /// The part of it that is signed.
    bare: String,
    pub(crate) username: String,
    pub(crate) authorization_id: String,
    nonce: String,
    /// The name is that of a delegation token. Kafka: `ScramExtensions#tokenAuthenticated`.
    pub(crate) is_token: bool,
}

impl ClientFirst {
    /// Kafka: `ClientFirstMessage`.
    fn decode(message: &[u8]) -> Result<Self, SaslError> {
        let wrong = || SaslError::invalid("Invalid SCRAM client first message format");
        let message = text(message, "SCRAM message")?;
        let (authorization_id, bare) = message
            .strip_prefix("n,")
            .and_then(|rest| rest.split_once(','))
            .ok_or_else(wrong)?;
        let authorization_id = match authorization_id {
            "" => "",
            given => given.strip_prefix("a=").filter(|id| !id.is_empty()).ok_or_else(wrong)?,
        };
        // A mandatory extension (m=) is skipped, as in Kafka.
        let known = match bare.strip_prefix("m=") {
            Some(reserved) => reserved.split_once(',').ok_or_else(wrong)?.1,
            None => bare,
        };
        let mut parts = Parts::of(known, "client first");
        let username = username(parts.next('n')?).ok_or_else(wrong)?;
        let nonce = parts.next('r')?.to_owned();
        if !is_printable(&nonce) {
            return Err(wrong());
        }
        let is_token = parts.parts.any(|extension| extension == "tokenauth=true");
        let (bare, authorization_id) = (bare.to_owned(), authorization_id.to_owned());
        Ok(Self {
            bare,
            username,
            authorization_id,
            nonce,
            is_token,
        })
    }
}

/// The server's side after its first message.
pub(crate) struct ServerExchange {
    mechanism: ScramMechanism,
    credential: ScramCredential,
    client_first_bare: String,
    server_first: String,
    nonce: String,
}

/// The client's first message.
pub(crate) fn client_first(message: &[u8]) -> Result<ClientFirst, SaslError> {
    ClientFirst::decode(message)
}

impl ServerExchange {
    /// Makes the response to the client's first message.
    pub(crate) fn begin(
        mechanism: ScramMechanism,
        first: &ClientFirst,
        server_nonce: &str,
        credential: ScramCredential,
    ) -> Result<Self, SaslError> {
        if credential.iterations < MIN_ITERATIONS {
            let text = format!(
                "{} iterations are less than the minimum {MIN_ITERATIONS}",
                credential.iterations
            );
            return Err(SaslError::Invalid(text));
        }
        let nonce = format!("{}{server_nonce}", first.nonce);
        let server_first = format!(
            "r={nonce},s={},i={}",
            BASE64.encode(&credential.salt),
            credential.iterations
        );
        Ok(Self {
            mechanism,
            credential,
            client_first_bare: first.bare.clone(),
            server_first,
            nonce,
        })
    }

    /// The server's first message.
    pub(crate) fn first(&self) -> Vec<u8> {
        self.server_first.clone().into_bytes()
    }

    /// Checks the client's final message, and returns the server's. Kafka: `ScramSaslServer#verifyClientProof`.
    pub(crate) fn finish(&self, message: &[u8]) -> Result<Vec<u8>, SaslError> {
        let message = text(message, "SCRAM message")?;
        let mut parts = Parts::of(message, "client final");
        let binding = parts.next('c')?;
        parts.base64(binding)?;
        if parts.next('r')? != self.nonce {
            return Err(SaslError::invalid("Invalid client nonce in the final client message."));
        }
        let (without_proof, proof) = message.rsplit_once(",p=").ok_or_else(|| parts.wrong())?;
        let proof = parts.base64(proof)?;
        let signed = format!("{},{},{without_proof}", self.client_first_bare, self.server_first);
        let signature = self.mechanism.hmac(&self.credential.stored_key, signed.as_bytes());
        let stored_key = self.mechanism.hash(&xor(&signature, &proof));
        if proof.len() != signature.len() || !is_same(&stored_key, &self.credential.stored_key) {
            return Err(SaslError::invalid("Invalid client credentials"));
        }
        let server_signature = self.mechanism.hmac(&self.credential.server_key, signed.as_bytes());
        Ok(format!("v={}", BASE64.encode(server_signature)).into_bytes())
    }
}

/// The client's side after its first message.
pub(crate) struct ClientExchange {
    mechanism: ScramMechanism,
    password: Secret,
    nonce: String,
    first_bare: String,
}

/// The signature that the client expects from the server.
pub(crate) struct ServerSignature(Vec<u8>);

impl ClientExchange {
    /// The first message is [`ClientExchange::first`].
    pub(crate) fn begin(
        mechanism: ScramMechanism,
        username: &str,
        password: Secret,
        nonce: &str,
        is_token: bool,
    ) -> Self {
        let token = if is_token { ",tokenauth=true" } else { "" };
        let first_bare = format!("n={},r={nonce}{token}", sasl_name(username));
        Self {
            mechanism,
            password,
            nonce: nonce.to_owned(),
            first_bare,
        }
    }

    /// The client's first message.
    pub(crate) fn first(&self) -> Vec<u8> {
        format!("n,,{}", self.first_bare).into_bytes()
    }

    /// Returns the client's final message, and the signature that the server must send.
    pub(crate) fn prove(&self, server_first: &[u8]) -> Result<(Vec<u8>, ServerSignature), SaslError> {
        let server_first = text(server_first, "SCRAM message")?;
        let known = match server_first.strip_prefix("m=").map(|rest| rest.split_once(',')) {
            Some(rest) => rest.map_or("", |(_, known)| known),
            None => server_first,
        };
        let mut parts = Parts::of(known, "server first");
        let nonce = parts.next('r')?;
        let salt = parts.next('s')?;
        let salt = parts.base64(salt)?;
        let iterations: u32 = parts.next('i')?.parse().map_err(|_| parts.wrong())?;
        if !nonce.starts_with(&self.nonce) {
            return Err(SaslError::invalid(
                "Invalid server nonce: does not start with client nonce",
            ));
        }
        if !(MIN_ITERATIONS..=MAX_ITERATIONS_ASKED).contains(&iterations) {
            let (least, most) = (MIN_ITERATIONS, MAX_ITERATIONS_ASKED);
            let text =
                format!("the server asks for {iterations} iterations, and between {least} and {most} are accepted");
            return Err(SaslError::Invalid(text));
        }
        let salted = self.mechanism.salted_password(&self.password, &salt, iterations);
        let without_proof = format!("c={},r={nonce}", BASE64.encode("n,,"));
        let signed = format!("{},{server_first},{without_proof}", self.first_bare);
        let client_key = self.mechanism.hmac(&salted, b"Client Key");
        let signature = self
            .mechanism
            .hmac(&self.mechanism.hash(&client_key), signed.as_bytes());
        let message = format!("{without_proof},p={}", BASE64.encode(xor(&client_key, &signature)));
        let server_key = self.mechanism.hmac(&salted, b"Server Key");
        let expected = self.mechanism.hmac(&server_key, signed.as_bytes());
        Ok((message.into_bytes(), ServerSignature(expected)))
    }
}

impl ServerSignature {
    /// Checks the server's final message, which proves that it knows the password or its keys.
    pub(crate) fn check(&self, server_final: &[u8]) -> Result<(), SaslError> {
        let server_final = text(server_final, "SCRAM message")?;
        let mut parts = Parts::of(server_final, "server final");
        if let Some(error) = server_final.strip_prefix("e=") {
            return Err(SaslError::Refused(format!("the server says: {error}")));
        }
        let signature = parts.next('v')?;
        match is_same(&parts.base64(signature)?, &self.0) {
            true => Ok(()),
            false => Err(SaslError::invalid("Invalid server signature in server final message")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 7677, section 3.
    #[test]
    fn the_exchange_of_the_rfc_is_spoken_by_both_sides() {
        let sha256 = ScramMechanism::Sha256;
        let client = ClientExchange::begin(sha256, "user", Secret::new("pencil"), "rOprNGfwEbeRWgbNEkqO", false);
        let first = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
        assert_eq!(client.first(), first);

        let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let salted = sha256.salted_password(&Secret::new("pencil"), &salt, 4096);
        let credential = ScramCredential::from_salted_password(sha256, &salted, &salt, 4096);
        let server_nonce = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let server = ServerExchange::begin(sha256, &client_first(first).unwrap(), server_nonce, credential).unwrap();
        let server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        assert_eq!(server.first(), server_first);

        let client_final = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
            p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
        let (message, signature) = client.prove(server_first).unwrap();
        assert_eq!(message, client_final);
        let server_final = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(server.finish(client_final).unwrap(), server_final);
        signature.check(server_final).unwrap();
    }

    #[test]
    fn names_are_escaped() {
        for (name, escaped) in [("a=b,c", "a=3Db=2Cc"), ("=2C", "=3D2C"), ("plain", "plain")] {
            assert_eq!(sasl_name(name), escaped);
        }
        // Kafka replaces in this order, which is not the inverse for a name such as `=2C`.
        assert_eq!(username("a=3Db=2Cc").as_deref(), Some("a=b,c"));
        assert_eq!(username("a=b"), None);
    }

    #[test]
    fn messages_that_are_not_of_the_form_are_refused() {
        let bad = [
            "",
            "n",
            "n,,",
            "n,,n=,r=x",
            "n,,n=u",
            "n,,r=x,n=u",
            "y,,n=u,r=x",
            "p=tls-unique,,n=u,r=x",
            "n,b,n=u,r=x",
            "n,,n=u=,r=x",
            "n,,n=u,r=a b",
            "n,,m=x",
        ];
        for message in bad {
            assert!(client_first(message.as_bytes()).is_err(), "{message}");
        }
        let with_extensions = client_first(b"n,a=u,n=u,r=x,tokenauth=true,b=c").unwrap();
        assert!(with_extensions.is_token);
        assert_eq!(with_extensions.authorization_id, "u");

        let client = ClientExchange::begin(ScramMechanism::Sha512, "u", Secret::new("p"), "abc", false);
        for message in [
            "",
            "r=abc",
            "r=abcd,s=AAAA",
            "r=xabc,s=AAAA,i=4096",
            "r=abcd,s=A,i=4096",
            "r=abcd,s=AAAA,i=4095",
            "r=abcd,s=AAAA,i=1000001",
            "r=abcd,s=AAAA,i=-1",
            "m=x",
            "e=no",
        ] {
            assert!(client.prove(message.as_bytes()).is_err(), "{message}");
        }
        let (_, signature) = client.prove(b"r=abcd,s=AAAA,i=4096").unwrap();
        for message in ["", "v=", "v=AAAA", "e=other-error", "v=A", "x=AAAA"] {
            assert!(signature.check(message.as_bytes()).is_err(), "{message}");
        }
    }
}
