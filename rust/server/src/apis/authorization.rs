//! Asks the broker's authorizer what a client may do. Kafka: `AuthHelper`.

use std::net::SocketAddr;
use std::sync::Arc;

use fletchlog_broker::{AclOperation, Action, Authorizer, Broker, CLUSTER_NAME, Coded, Principal, ResourceType};
use fletchlog_protocol::local::ClientName;
use fletchlog_records::ErrorCode;

use super::{Call, Peer};

/// The name of a client that did not have to authenticate. Kafka: `KafkaPrincipal#ANONYMOUS`.
const ANONYMOUS: &str = "ANONYMOUS";

/// The client that sent a request, as the authorizer knows it.
#[derive(Debug, Clone)]
pub(super) struct Client {
    principal: String,
    host: String,
}

impl Client {
    fn of(user: Option<&String>, address: &SocketAddr) -> Self {
        Self {
            principal: format!("User:{}", user.map_or(ANONYMOUS, String::as_str)),
            host: address.ip().to_string(),
        }
    }

    fn principal(&self) -> Principal<'_> {
        Principal {
            name: &self.principal,
            host: &self.host,
        }
    }

    /// Its type and name: `User:alice`.
    pub(super) fn into_principal(self) -> Arc<str> {
        self.principal.into()
    }

    /// Whether the current ACLs allow the operation.
    pub(super) fn may(&self, broker: &Broker, operation: AclOperation, kind: ResourceType, name: &str) -> bool {
        broker
            .authorizer()
            .is_none_or(|authorizer| self.may_by(&authorizer, operation, kind, name))
    }

    fn may_by(&self, authorizer: &Authorizer<'_>, operation: AclOperation, kind: ResourceType, name: &str) -> bool {
        let action = Action {
            operation,
            resource_type: kind,
            resource_name: name,
        };
        let is_allowed = authorizer.authorize(self.principal(), action);
        if !is_allowed {
            log::debug!(
                "{} from {} may not {} {}:{}",
                self.principal.escape_debug(),
                self.host,
                operation.name(),
                kind.name(),
                name.escape_debug()
            );
        }
        is_allowed
    }
}

impl From<Client> for ClientName {
    fn from(client: Client) -> Self {
        Self {
            principal: client.principal.into(),
            host: client.host.into(),
        }
    }
}

impl Peer {
    /// The client, for the authorizer.
    pub(super) fn client(&self) -> Client {
        Client::of(self.user.get(), &self.address)
    }
}

impl Call<'_> {
    fn may(&self, operation: AclOperation, kind: ResourceType, name: &str) -> bool {
        self.peer.client().may(&self.apis.broker, operation, kind, name)
    }

    /// Whether the client may do this with a topic.
    pub(super) fn may_topic(&self, operation: AclOperation, name: &str) -> bool {
        self.may(operation, ResourceType::Topic, name)
    }

    /// Whether the client may do this with a group.
    pub(super) fn may_group(&self, operation: AclOperation, name: &str) -> bool {
        self.may(operation, ResourceType::Group, name)
    }

    /// Whether the client may do this with a transactional id.
    pub(super) fn may_transaction(&self, operation: AclOperation, id: &str) -> bool {
        self.may(operation, ResourceType::TransactionalId, id)
    }

    /// Whether the client may do this with the cluster.
    pub(super) fn may_cluster(&self, operation: AclOperation) -> bool {
        self.may(operation, ResourceType::Cluster, CLUSTER_NAME)
    }

    /// NONE, or CLUSTER_AUTHORIZATION_FAILED. Kafka: `AuthHelper#authorizeClusterOperation`.
    pub(super) fn check_cluster(&self, operation: AclOperation) -> Result<(), ErrorCode> {
        match self.may_cluster(operation) {
            true => Ok(()),
            false => Err(ErrorCode::CLUSTER_AUTHORIZATION_FAILED),
        }
    }

    /// Whether the client may write to at least one topic.
    pub(super) fn may_write_anywhere(&self) -> bool {
        let may = |authorizer: Authorizer<'_>| {
            let client = self.peer.client();
            authorizer.authorize_by_resource_type(client.principal(), AclOperation::Write, ResourceType::Topic)
        };
        self.apis.broker.authorizer().is_none_or(may)
    }

    /// The operations that the client may do, as bits numbered by Kafka's codes. Kafka: `AuthHelper#authorizedOperations`.
    pub(super) fn authorized_operations(&self, all: i32, kind: ResourceType, name: &str) -> i32 {
        let Some(authorizer) = self.apis.broker.authorizer() else {
            return all;
        };
        let client = self.peer.client();
        let is_allowed = |bit: &i8| {
            let operation = AclOperation::from_code(*bit).filter(|_| all & (1 << bit) != 0);
            operation.is_some_and(|operation| client.may_by(&authorizer, operation, kind, name))
        };
        (0..31_i8).filter(is_allowed).map(|bit| 1 << bit).sum()
    }
}

/// The message beside CLUSTER_AUTHORIZATION_FAILED. Kafka: `Errors#message`.
pub(super) fn cluster_refused() -> Option<Arc<str>> {
    Some("Cluster authorization failed.".into())
}
