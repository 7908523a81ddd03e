//! PEM text. Kafka: `DefaultSslEngineFactory.PemParser`, `PemStore`.
//!
//! ```text
//! -----BEGIN LABEL-----
//! base64, with blanks and line ends anywhere: it may be one line, as in a file of properties
//! -----END LABEL-----
//! ```

use fletchlog_api::ConfigError;
use pkcs8::EncryptedPrivateKeyInfoRef;
use pkcs8::der::pem::decode_vec;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};

/// Characters of base64 in one line.
const LINE: usize = 64;

/// PEM text and the property that it came from, for errors.
pub(crate) struct Pem {
    pub(crate) property: &'static str,
    /// The file that the property names; `None`: the text is the property.
    pub(crate) file: Option<String>,
    pub(crate) text: String,
}

impl Pem {
    /// An error of the property. It does not contain the PEM text.
    pub(crate) fn error(&self, reason: impl Into<String>) -> ConfigError {
        ConfigError::Invalid {
            name: self.property.to_owned(),
            value: self.file.clone().unwrap_or_else(|| "PEM text".to_owned()),
            reason: reason.into(),
        }
    }

    /// The certificates, in their order; other blocks are skipped.
    ///
    /// # Errors
    /// There is none, or one is cut off or not base64.
    pub(crate) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
        let mut found = Vec::new();
        for block in blocks(&self.text).filter(|block| block.label.ends_with("CERTIFICATE")) {
            found.push(CertificateDer::from(self.decoded(&block)?));
        }
        match found.is_empty() {
            true => Err(self.error("it has no `-----BEGIN CERTIFICATE-----`")),
            false => Ok(found),
        }
    }

    /// The first private key, which may be encrypted (PKCS#8).
    ///
    /// # Errors
    /// There is none, or it cannot be read with this password.
    pub(crate) fn key(&self, password: Option<&str>) -> Result<PrivateKeyDer<'static>, ConfigError> {
        let Some(block) = blocks(&self.text).find(|block| block.label.ends_with("PRIVATE KEY")) else {
            return Err(self.error("it has no `-----BEGIN PRIVATE KEY-----`"));
        };
        if block.base64.contains("Proc-Type:") {
            return Err(self.error(
                "its private key is encrypted in OpenSSL's old way; convert it with `openssl pkcs8 -topk8 -in KEY -out NEW`",
            ));
        }
        let der = self.decoded(&block)?;
        let key = match block.label {
            "ENCRYPTED PRIVATE KEY" => self.decrypted(&der, password)?,
            "PRIVATE KEY" => PrivateKeyDer::Pkcs8(der.into()),
            "RSA PRIVATE KEY" => PrivateKeyDer::Pkcs1(der.into()),
            "EC PRIVATE KEY" => PrivateKeyDer::Sec1(der.into()),
            other => return Err(self.error(format!("a key of the kind `{other}` is not understood"))),
        };
        Ok(key)
    }

    fn decrypted(&self, der: &[u8], password: Option<&str>) -> Result<PrivateKeyDer<'static>, ConfigError> {
        let password = password.ok_or_else(|| self.error("its private key is encrypted: give ssl.key.password"))?;
        let encrypted = EncryptedPrivateKeyInfoRef::try_from(der)
            .map_err(|_| self.error("its encrypted private key is damaged"))?;
        let key = encrypted.decrypt(password).map_err(|_| {
            self.error(
                "its private key cannot be decrypted: ssl.key.password is another one, or the encryption is not PBES2 with AES or scrypt",
            )
        })?;
        Ok(PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec())))
    }

    fn decoded(&self, block: &Block<'_>) -> Result<Vec<u8>, ConfigError> {
        let base64: Vec<u8> = block
            .base64
            .bytes()
            .filter(|byte| !byte.is_ascii_whitespace())
            .collect();
        let mut pem = format!("-----BEGIN {}-----\n", block.label).into_bytes();
        for line in base64.chunks(LINE) {
            pem.extend_from_slice(line);
            pem.push(b'\n');
        }
        pem.extend_from_slice(format!("-----END {}-----\n", block.label).as_bytes());
        let decoded = decode_vec(&pem).map(|(_, der)| der);
        decoded.map_err(|error| self.error(format!("its `{}` is damaged: {error}", block.label)))
    }
}

struct Block<'a> {
    label: &'a str,
    base64: &'a str,
}

/// The complete blocks of a text.
fn blocks(text: &str) -> impl Iterator<Item = Block<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, begun) = rest.split_once("-----BEGIN ")?;
        let (label, body) = begun.split_once("-----")?;
        let (base64, behind) = body.split_once(&format!("-----END {label}-----"))?;
        rest = behind;
        Some(Block { label, base64 })
    })
}
