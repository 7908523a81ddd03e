//! What clients may do. Kafka: `StandardAuthorizer`, `StandardAuthorizerData`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use fletchlog_api::Config;

use super::SecurityRecord;
use super::acl::{Acl, AclOperation, PatternType, PermissionType, ResourceType, WILDCARD};
use super::search::{of_pattern, of_type, patterns_about};

/// A client: its principal (`User:alice`) and the address it comes from.
#[derive(Debug, Clone, Copy)]
pub struct Principal<'a> {
    /// Type and name.
    pub name: &'a str,
    /// Address.
    pub host: &'a str,
}

/// The operation that a client requests, and the resource.
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs)]
pub struct Action<'a> {
    pub operation: AclOperation,
    pub resource_type: ResourceType,
    pub resource_name: &'a str,
}

/// Decides with the ACLs of one moment.
#[derive(Debug)]
pub struct Authorizer<'a> {
    rules: &'a Rules,
    security: Arc<SecurityRecord>,
}

/// The configuration of an authorizer.
#[derive(Debug)]
pub(crate) struct Rules {
    super_users: HashSet<String>,
    /// The decision for a resource without an ACL.
    otherwise: bool,
}

impl Rules {
    /// `None`: there is no authorizer.
    pub(crate) fn new(config: &Config) -> Option<Self> {
        let users = config
            .text("super.users")
            .split(';')
            .map(str::trim)
            .filter(|user| !user.is_empty());
        (!config.text("authorizer.class.name").is_empty()).then(|| Self {
            super_users: users.map(str::to_owned).collect(),
            otherwise: config.boolean("allow.everyone.if.no.acl.found"),
        })
    }

    /// An authorizer with these ACLs.
    pub(crate) fn authorizer(&self, security: Arc<SecurityRecord>) -> Authorizer<'_> {
        Authorizer { rules: self, security }
    }
}

impl Authorizer<'_> {
    /// Whether a client may do the action. Kafka: `StandardAuthorizerData#authorize`.
    pub fn authorize(&self, principal: Principal<'_>, action: Action<'_>) -> bool {
        self.rules.super_users.contains(principal.name) || self.rules.by_acls(&self.security.acls, principal, action)
    }

    /// Whether a client may do the operation with any resource of a type. Kafka: `Authorizer#authorizeByResourceType`.
    pub fn authorize_by_resource_type(
        &self,
        principal: Principal<'_>,
        operation: AclOperation,
        resource_type: ResourceType,
    ) -> bool {
        // Kafka finds out in this way whether a resource without ACLs is open: with a name that no resource has.
        let resource_name = "hardcode";
        if self.authorize(
            principal,
            Action {
                operation,
                resource_type,
                resource_name,
            },
        ) {
            return true;
        }
        let is_meant = |acl: &&Acl| is_for(acl, principal) && [operation, AclOperation::All].contains(&acl.operation);
        let (denied, allowed): (Vec<&Acl>, Vec<&Acl>) = of_type(&self.security.acls, resource_type)
            .filter(is_meant)
            .partition(|acl| acl.permission_type == PermissionType::Deny);
        let denied = Denied::new(&denied);
        allowed.into_iter().any(|allow| !denied.covers(allow))
    }
}

/// The patterns of ACLs that deny.
struct Denied<'a> {
    every_name: bool,
    names: HashSet<&'a str>,
    /// Sorted, without prefixes that begin with another one: the prefix with which a name begins is then the last one that is not
    /// greater than the name.
    prefixes: Vec<&'a str>,
}

impl<'a> Denied<'a> {
    /// The patterns of these ACLs, which are in their order.
    fn new(acls: &[&'a Acl]) -> Self {
        let names = |pattern_type| {
            let with_pattern = acls.iter().filter(move |acl| acl.pattern_type == pattern_type);
            with_pattern.map(|acl| acl.resource_name.as_str())
        };
        let mut prefixes: Vec<&str> = names(PatternType::Prefixed).collect();
        prefixes.dedup_by(|longer, prefix| longer.starts_with(*prefix));
        let names: HashSet<&str> = names(PatternType::Literal).collect();
        Self {
            every_name: names.contains(WILDCARD),
            names,
            prefixes,
        }
    }

    /// Whether every name that a pattern matches is denied.
    fn covers(&self, allow: &Acl) -> bool {
        let (name, is_literal) = (allow.resource_name.as_str(), allow.pattern_type == PatternType::Literal);
        if self.every_name || (is_literal && name == WILDCARD) {
            return self.every_name;
        }
        let before = self.prefixes.partition_point(|prefix| *prefix <= name);
        let is_prefixed = self.prefixes[..before]
            .last()
            .is_some_and(|prefix| name.starts_with(prefix));
        is_prefixed || (is_literal && self.names.contains(name))
    }
}

/// The principal of ACLs that apply to every user.
const EVERY_USER: &str = "User:*";

fn is_for(acl: &Acl, principal: Principal<'_>) -> bool {
    (acl.principal == principal.name || acl.principal == EVERY_USER) && is_from(acl, principal)
}

fn is_from(acl: &Acl, principal: Principal<'_>) -> bool {
    acl.host == WILDCARD || acl.host == principal.host
}

impl Rules {
    /// Decides by ACLs that deny, then by ACLs that allow; if no ACL is about the resource, by the configuration.
    fn by_acls(&self, acls: &BTreeSet<Acl>, principal: Principal<'_>, action: Action<'_>) -> bool {
        let patterns = patterns_about(acls, action.resource_type, action.resource_name);
        let mut is_allowed = false;
        for (pattern, name) in patterns
            .iter()
            .flat_map(|like| [(*like, principal.name), (*like, EVERY_USER)])
        {
            let of_principal = of_pattern(acls, pattern, Some(name));
            for acl in of_principal.filter(|acl| is_from(acl, principal) && is_of_operation(acl, action.operation)) {
                if acl.permission_type == PermissionType::Deny {
                    return false;
                }
                is_allowed = true;
            }
        }
        is_allowed || (patterns.is_empty() && self.otherwise)
    }
}

/// An ACL that allows to read, write, delete or alter also allows to describe; one that denies these does not deny it. Kafka:
/// `StandardAuthorizerData#findResult`.
fn is_of_operation(acl: &Acl, operation: AclOperation) -> bool {
    use AclOperation::{All, Alter, AlterConfigs, Delete, Describe, DescribeConfigs, Read, Write};
    let implied = match operation {
        Describe => [Read, Write, Delete, Alter].contains(&acl.operation),
        DescribeConfigs => acl.operation == AlterConfigs,
        _ => false,
    };
    acl.operation == operation || acl.operation == All || (implied && acl.permission_type == PermissionType::Allow)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::acl::Coded;
    use super::super::search::tests::{NAMES, acls as acls_of_few_names};
    use super::*;

    const ALICE: Principal<'_> = Principal {
        name: "User:alice",
        host: "10.0.0.1",
    };

    fn rules(otherwise: bool) -> Rules {
        let super_users = HashSet::from(["User:root".to_owned()]);
        Rules { super_users, otherwise }
    }

    /// `allow|deny principal host operation literal|prefixed name`, all about topics.
    fn acls(texts: &[&str]) -> Arc<SecurityRecord> {
        let acl = |text: &&str| {
            let words: Vec<&str> = text.split(' ').collect();
            let upper = |at: usize| words[at].to_uppercase();
            Acl {
                permission_type: PermissionType::from_name(&upper(0)).unwrap(),
                principal: words[1].to_owned(),
                host: words[2].to_owned(),
                operation: AclOperation::from_name(&upper(3)).unwrap(),
                pattern_type: PatternType::from_name(&upper(4)).unwrap(),
                resource_name: words[5].to_owned(),
                resource_type: ResourceType::Topic,
            }
        };
        let acls = texts.iter().map(acl).collect();
        Arc::new(SecurityRecord {
            acls,
            ..SecurityRecord::default()
        })
    }

    fn may(rules: &Rules, security: &Arc<SecurityRecord>, operation: AclOperation, resource_name: &str) -> bool {
        let authorizer = Authorizer {
            rules,
            security: Arc::clone(security),
        };
        let resource_type = ResourceType::Topic;
        authorizer.authorize(
            ALICE,
            Action {
                operation,
                resource_type,
                resource_name,
            },
        )
    }

    #[test]
    fn denials_win_over_permissions_and_patterns_of_every_kind_count() {
        use AclOperation::{Describe, Read, Write};
        let rules = rules(false);
        let security = acls(&[
            "allow User:alice * read prefixed ord",
            "deny User:alice * read literal orders-secret",
            "allow User:* 10.0.0.1 write literal open",
            "allow User:* 10.0.0.2 write literal elsewhere",
            "allow User:alice * all literal *",
            "deny User:alice * write literal *",
        ]);
        let may = |operation, name| may(&rules, &security, operation, name);
        assert!(may(Read, "orders") && may(Read, "ord") && may(Read, "anything"));
        assert!(!may(Read, "orders-secret"));
        assert!(may(Describe, "orders-secret"), "a denial implies nothing");
        assert!(!may(Write, "open"), "denied for every name");
    }

    #[test]
    fn a_permission_implies_describing() {
        use AclOperation::{Alter, AlterConfigs, Describe, DescribeConfigs, Read};
        let rules = rules(false);
        for (operation, describe, configs) in [
            ("read", true, false),
            ("write", true, false),
            ("delete", true, false),
            ("alter", true, false),
            ("create", false, false),
            ("alter_configs", false, true),
            ("describe", true, false),
        ] {
            let security = acls(&[&format!("allow User:alice * {operation} literal t")]);
            assert_eq!(may(&rules, &security, Describe, "t"), describe, "{operation}");
            assert_eq!(may(&rules, &security, DescribeConfigs, "t"), configs, "{operation}");
        }
        let security = acls(&["allow User:alice * describe literal t"]);
        assert!(
            ![Read, Alter, AlterConfigs]
                .into_iter()
                .any(|operation| may(&rules, &security, operation, "t"))
        );
    }

    #[test]
    fn a_resource_without_acls_is_as_configured_and_one_with_acls_is_closed() {
        let security = acls(&["allow User:bob * read literal t"]);
        for open in [false, true] {
            assert!(!may(&rules(open), &security, AclOperation::Read, "t"));
            assert_eq!(may(&rules(open), &security, AclOperation::Read, "other"), open);
        }
        let rules = rules(false);
        let authorizer = Authorizer {
            rules: &rules,
            security,
        };
        let action = Action {
            operation: AclOperation::Delete,
            resource_type: ResourceType::Group,
            resource_name: "g",
        };
        assert!(authorizer.authorize(
            Principal {
                name: "User:root",
                host: "x"
            },
            action
        ));
    }

    #[test]
    fn some_resource_is_enough_where_any_will_do() {
        let rules = rules(false);
        let may = |texts: &[&str]| {
            let authorizer = Authorizer {
                rules: &rules,
                security: acls(texts),
            };
            authorizer.authorize_by_resource_type(ALICE, AclOperation::Write, ResourceType::Topic)
        };
        assert!(may(&["allow User:alice * write literal t"]));
        assert!(may(&["allow User:* 10.0.0.1 all prefixed t"]));
        assert!(may(&[
            "allow User:alice * write prefixed t",
            "deny User:alice * write literal t1"
        ]));
        assert!(!may(&["allow User:alice * read literal t"]));
        assert!(!may(&[
            "allow User:alice * write literal t1",
            "deny User:alice * all prefixed t"
        ]));
        assert!(!may(&[
            "allow User:alice * write prefixed t",
            "deny User:alice * write literal *"
        ]));
        assert!(!may(&["allow User:alice 10.0.0.9 write literal t"]));
    }

    /// Whether every name that one pattern matches is matched by the other.
    fn covers(wide: &Acl, narrow: &Acl) -> bool {
        let all = |acl: &Acl| acl.pattern_type == PatternType::Literal && acl.resource_name == WILDCARD;
        match wide.pattern_type {
            _ if all(wide) => true,
            _ if all(narrow) => false,
            PatternType::Prefixed => narrow.resource_name.starts_with(&wide.resource_name),
            _ => narrow.pattern_type == PatternType::Literal && narrow.resource_name == wide.resource_name,
        }
    }

    /// The decision by a look at each ACL.
    fn plain(acls: &BTreeSet<Acl>, otherwise: bool, principal: Principal<'_>, action: Action<'_>) -> bool {
        let is_about = |acl: &&Acl| {
            acl.resource_type == action.resource_type
                && match acl.pattern_type {
                    PatternType::Prefixed => action.resource_name.starts_with(&acl.resource_name),
                    _ => acl.resource_name == WILDCARD || acl.resource_name == action.resource_name,
                }
        };
        let about: Vec<&Acl> = acls.iter().filter(is_about).collect();
        let is_meant = |acl: &&&Acl| is_for(acl, principal) && is_of_operation(acl, action.operation);
        let meant: Vec<&&Acl> = about.iter().filter(is_meant).collect();
        let is_denial = |acl: &&&Acl| acl.permission_type == PermissionType::Deny;
        !meant.iter().any(is_denial) && (!meant.is_empty() || (about.is_empty() && otherwise))
    }

    proptest! {
        /// The same decisions as by a look at each ACL.
        #[test]
        fn what_is_found_by_order_decides_as_all_acls_do(
            acls in acls_of_few_names(),
            name in prop::sample::select(NAMES),
            user in prop::sample::select(&["User:a", "User:*", "User:other"][..]),
            host in prop::sample::select(&["h", "other"][..]),
            operation in prop::sample::select(&[AclOperation::Read, AclOperation::Describe, AclOperation::All][..]),
            otherwise: bool,
        ) {
            let rules = rules(otherwise);
            let security = Arc::new(SecurityRecord { acls: acls.clone(), ..SecurityRecord::default() });
            let authorizer = Authorizer { rules: &rules, security };
            let principal = Principal { name: user, host };
            let action = |resource_name| Action { operation, resource_type: ResourceType::Topic, resource_name };
            prop_assert_eq!(authorizer.authorize(principal, action(name)), plain(&acls, otherwise, principal, action(name)));
            let is_meant = |acl: &&Acl| {
                acl.resource_type == ResourceType::Topic
                    && is_for(acl, principal)
                    && [operation, AclOperation::All].contains(&acl.operation)
            };
            let (denied, allowed): (Vec<&Acl>, Vec<&Acl>) = acls
                .iter()
                .filter(is_meant)
                .partition(|acl| acl.permission_type == PermissionType::Deny);
            let some = allowed.iter().any(|allow| !denied.iter().any(|deny| covers(deny, allow)));
            prop_assert_eq!(
                authorizer.authorize_by_resource_type(principal, operation, ResourceType::Topic),
                some || plain(&acls, otherwise, principal, action("hardcode"))
            );
        }
    }
}
