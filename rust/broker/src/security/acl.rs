//! ACLs and filters of them. Kafka: `AclBinding`, `AclBindingFilter`, `ResourcePatternFilter`, `AclControlManager`.

use fletchlog_api::ErrorCode;

use crate::BrokerError;

/// A value with a number and a name in Kafka's protocol.
pub trait Coded: Sized {
    /// The value of a number on the wire.
    fn from_code(code: i8) -> Option<Self>;
    /// The number on the wire.
    fn code(self) -> i8;
    /// Kafka's name.
    fn name(self) -> &'static str;
    /// The value of a name.
    fn from_name(name: &str) -> Option<Self>;
}

/// Defines an enumeration of Kafka's protocol: variant, number, name.
macro_rules! codes {
    ($(#[$doc:meta])* $name:ident { $($variant:ident = $code:literal $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub enum $name { $($variant = $code,)* }

        impl Coded for $name {
            fn from_code(code: i8) -> Option<Self> {
                match code { $($code => Some(Self::$variant),)* _ => None }
            }
            fn code(self) -> i8 {
                self as i8
            }
            fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
            fn from_name(name: &str) -> Option<Self> {
                match name { $($text => Some(Self::$variant),)* _ => None }
            }
        }
    };
}

codes! {
    /// The kind of resource. Kafka: `ResourceType`.
    ResourceType {
        Any = 1 "ANY",
        Topic = 2 "TOPIC",
        Group = 3 "GROUP",
        Cluster = 4 "CLUSTER",
        TransactionalId = 5 "TRANSACTIONAL_ID",
        DelegationToken = 6 "DELEGATION_TOKEN",
        User = 7 "USER",
    }
}

codes! {
    /// How a name of an ACL selects resources. Kafka: `PatternType`. `Any` and `Match` are for filters.
    PatternType {
        Any = 1 "ANY",
        Match = 2 "MATCH",
        Literal = 3 "LITERAL",
        Prefixed = 4 "PREFIXED",
    }
}

codes! {
    /// The operation. Kafka: `AclOperation`.
    AclOperation {
        Any = 1 "ANY",
        All = 2 "ALL",
        Read = 3 "READ",
        Write = 4 "WRITE",
        Create = 5 "CREATE",
        Delete = 6 "DELETE",
        Alter = 7 "ALTER",
        Describe = 8 "DESCRIBE",
        ClusterAction = 9 "CLUSTER_ACTION",
        DescribeConfigs = 10 "DESCRIBE_CONFIGS",
        AlterConfigs = 11 "ALTER_CONFIGS",
        IdempotentWrite = 12 "IDEMPOTENT_WRITE",
        CreateTokens = 13 "CREATE_TOKENS",
        DescribeTokens = 14 "DESCRIBE_TOKENS",
        TwoPhaseCommit = 15 "TWO_PHASE_COMMIT",
    }
}

codes! {
    /// Whether the operation is allowed or denied. Kafka: `AclPermissionType`.
    PermissionType {
        Any = 1 "ANY",
        Deny = 2 "DENY",
        Allow = 3 "ALLOW",
    }
}

/// Every name, every principal of a type, every host. Kafka: `ResourcePattern#WILDCARD_RESOURCE`.
pub(crate) const WILDCARD: &str = "*";
/// The one resource of type CLUSTER. Kafka: `Resource#CLUSTER_NAME`.
pub const CLUSTER_NAME: &str = "kafka-cluster";

/// One rule: a principal may or must not do something with a resource, from a host. Kafka: `AclBinding`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)]
pub struct Acl {
    pub resource_type: ResourceType,
    pub resource_name: String,
    pub pattern_type: PatternType,
    pub principal: String,
    pub host: String,
    pub operation: AclOperation,
    pub permission_type: PermissionType,
}

impl Acl {
    /// Kafka: `AclControlManager#validateNewAcl`, `AclApis#handleCreateAcls`.
    ///
    /// # Errors
    /// INVALID_REQUEST with what is wrong.
    pub fn validate(&self) -> Result<(), BrokerError> {
        let text = if self.resource_type == ResourceType::Cluster && self.resource_name != CLUSTER_NAME {
            format!("The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
        } else if self.resource_name.is_empty() {
            "Invalid empty resource name".to_owned()
        } else if self.resource_type == ResourceType::Any {
            "Invalid resourceType ANY".to_owned()
        } else if !matches!(self.pattern_type, PatternType::Literal | PatternType::Prefixed) {
            format!("Invalid patternType {}", self.pattern_type.name())
        } else if self.operation == AclOperation::Any {
            "Invalid operation ANY".to_owned()
        } else if self.permission_type == PermissionType::Any {
            "Invalid permissionType ANY".to_owned()
        } else if !self
            .principal
            .split_once(':')
            .is_some_and(|(kind, name)| !kind.is_empty() && !name.is_empty())
        {
            format!(
                "Could not parse principal from `{}` (no colon is present separating the principal type from the principal name)",
                self.principal
            )
        } else {
            return Ok(());
        };
        Err(BrokerError::kafka(ErrorCode::INVALID_REQUEST, text))
    }

    /// Its approximate size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.resource_name.len() + self.principal.len() + self.host.len()
    }
}

/// Selects ACLs; a field that is `None` or ANY matches everything. Kafka: `AclBindingFilter`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct AclFilter {
    pub resource_type: ResourceType,
    pub resource_name: Option<String>,
    pub pattern_type: PatternType,
    pub principal: Option<String>,
    pub host: Option<String>,
    pub operation: AclOperation,
    pub permission_type: PermissionType,
}

impl AclFilter {
    /// Kafka: `AclBindingFilter#matches`.
    pub(super) fn matches(&self, acl: &Acl) -> bool {
        let is = |asked: &Option<String>, value: &str| asked.as_deref().is_none_or(|asked| asked == value);
        (self.resource_type == ResourceType::Any || self.resource_type == acl.resource_type)
            && self.matches_name(acl)
            && is(&self.principal, &acl.principal)
            && is(&self.host, &acl.host)
            && (self.operation == AclOperation::Any || self.operation == acl.operation)
            && (self.permission_type == PermissionType::Any || self.permission_type == acl.permission_type)
    }

    /// Kafka: `ResourcePatternFilter#matches`.
    fn matches_name(&self, acl: &Acl) -> bool {
        if !matches!(self.pattern_type, PatternType::Any | PatternType::Match) && self.pattern_type != acl.pattern_type
        {
            return false;
        }
        match &self.resource_name {
            None => true,
            Some(name) if self.pattern_type != PatternType::Match => *name == acl.resource_name,
            Some(name) => match acl.pattern_type {
                PatternType::Prefixed => name.starts_with(&acl.resource_name),
                _ => acl.resource_name == *name || acl.resource_name == WILDCARD,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(pattern_type: PatternType, name: &str) -> Acl {
        Acl {
            resource_type: ResourceType::Topic,
            resource_name: name.to_owned(),
            pattern_type,
            principal: "User:alice".to_owned(),
            host: "*".to_owned(),
            operation: AclOperation::Read,
            permission_type: PermissionType::Allow,
        }
    }

    fn filter(pattern_type: PatternType, name: Option<&str>) -> AclFilter {
        AclFilter {
            resource_type: ResourceType::Any,
            resource_name: name.map(str::to_owned),
            pattern_type,
            principal: None,
            host: None,
            operation: AclOperation::Any,
            permission_type: PermissionType::Any,
        }
    }

    #[test]
    fn a_filter_means_a_pattern_itself_or_what_covers_a_name() {
        use PatternType::{Any, Literal, Match, Prefixed};
        let acls = [
            acl(Literal, "foobar"),
            acl(Literal, "*"),
            acl(Prefixed, "foo"),
            acl(Literal, "foo"),
        ];
        for (pattern, name, expected) in [
            (Any, None, [true; 4]),
            (Match, Some("foobar"), [true, true, true, false]),
            (Literal, Some("foo"), [false, false, false, true]),
            (Prefixed, Some("foo"), [false, false, true, false]),
            (Any, Some("foo"), [false, false, true, true]),
            (Literal, None, [true, true, false, true]),
        ] {
            let filter = filter(pattern, name);
            assert_eq!(acls.each_ref().map(|acl| filter.matches(acl)), expected, "{filter:?}");
        }
        let other = AclFilter {
            principal: Some("User:bob".to_owned()),
            ..filter(Any, None)
        };
        assert!(!other.matches(&acls[0]));
    }

    #[test]
    fn what_is_no_rule_is_refused() {
        let good = acl(PatternType::Literal, "t");
        assert!(good.validate().is_ok());
        for bad in [
            Acl {
                resource_name: String::new(),
                ..good.clone()
            },
            Acl {
                resource_type: ResourceType::Cluster,
                ..good.clone()
            },
            Acl {
                resource_type: ResourceType::Any,
                ..good.clone()
            },
            Acl {
                pattern_type: PatternType::Match,
                ..good.clone()
            },
            Acl {
                operation: AclOperation::Any,
                ..good.clone()
            },
            Acl {
                permission_type: PermissionType::Any,
                ..good.clone()
            },
            Acl {
                principal: "alice".to_owned(),
                ..good.clone()
            },
        ] {
            assert_eq!(
                bad.validate().unwrap_err().code(),
                ErrorCode::INVALID_REQUEST,
                "{bad:?}"
            );
        }
    }
}
