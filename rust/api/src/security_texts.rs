//! Descriptions of the properties of TLS and SASL, the same for a consumer, a producer and a listener, and of those that clients of a
//! cluster share.

pub(crate) const SECURITY_PROTOCOL: &str =
    "How brokers are spoken to: PLAINTEXT, SSL (TLS), SASL_PLAINTEXT (a user and no encryption) or SASL_SSL.";
pub(crate) const ENABLED_PROTOCOLS: &str =
    "Versions of TLS that are spoken; the newest one that both sides know is taken.";
pub(crate) const ENDPOINT_IDENTIFICATION: &str = "https: the broker's certificate has to be for the host name that is connected to. Empty or none: for any name, so everybody with a certificate of a trusted authority can pose as the broker.";
pub(crate) const KEY_PASSWORD: &str = "Password of an encrypted private key (PKCS#8).";
pub(crate) const CERTIFICATE_CHAIN: &str =
    "The own certificate as PEM text, and those of the authorities between it and the trusted one behind it.";
pub(crate) const CERTIFICATE_LOCATION: &str =
    "As ssl.keystore.location, for a file that has only the certificates. librdkafka's name.";
pub(crate) const KEY: &str = "The private key of the own certificate as PEM text.";
pub(crate) const KEY_LOCATION: &str =
    "A PEM file that has only the private key of the own certificate. librdkafka's name.";
pub(crate) const KEYSTORE_LOCATION: &str =
    "A PEM file with the own certificate, the authorities between it and the trusted one, and its private key.";
pub(crate) const KEYSTORE_TYPE: &str =
    "What the key store is: PEM. A Java key store (JKS, PKCS12) has to be converted; the error says how.";
pub(crate) const TRUSTSTORE_CERTIFICATES: &str = "Certificates of the trusted authorities as PEM text.";
pub(crate) const TRUSTSTORE_LOCATION: &str = "A PEM file with the certificates of the trusted authorities. Neither this nor ssl.truststore.certificates: those that the system trusts.";
pub(crate) const TRUSTSTORE_TYPE: &str =
    "What the trust store is: PEM. A Java trust store (JKS, PKCS12) has to be converted; the error says how.";
pub(crate) const SASL_JAAS: &str = "User and password, or what tokens say, in Kafka's form: PlainLoginModule or ScramLoginModule required username=\"..\" password=\"..\"; OAuthBearerLoginModule required clientId=\"..\" clientSecret=\"..\" scope=\"..\"; or with unsecuredLoginStringClaim_sub=\"..\", for tests.";
pub(crate) const SASL_MECHANISM: &str =
    "How the client authenticates, when security.protocol is SASL_PLAINTEXT or SASL_SSL.";
pub(crate) const SASL_USERNAME: &str = "User of PLAIN and SCRAM. librdkafka's name.";
pub(crate) const SASL_PASSWORD: &str = "Password of PLAIN and SCRAM. librdkafka's name.";
pub(crate) const OAUTH_URL: &str = "Where tokens of OAUTHBEARER come from: an OAuth 2 token endpoint, which is asked with the client's id and secret (grant client_credentials). oauth_cb, a function that returns (token, end in seconds since 1970), is given in its place.";
pub(crate) const OAUTH_ID: &str = "The client's id at the token endpoint.";
pub(crate) const OAUTH_SECRET: &str = "The client's secret at the token endpoint.";
pub(crate) const OAUTH_SCOPE: &str = "The scope that the token is asked for.";
pub(crate) const RECOVERY_STRATEGY: &str = "When no known broker of a cluster can be reached, or one answers REBOOTSTRAP_REQUIRED: rebootstrap asks bootstrap.servers again, none tries the known ones for ever.";
pub(crate) const CLUSTER_CHECK: &str = "Under metadata.recovery.strategy=rebootstrap: brokers of 4.4 and later are asked whether they are the node and the cluster that the client means, and if not, bootstrap.servers are asked again.";
pub(crate) const REBOOTSTRAP_TRIGGER: &str = "Under metadata.recovery.strategy=rebootstrap: bootstrap.servers are asked again, too, when no metadata came for so many ms although they were wanted.";
