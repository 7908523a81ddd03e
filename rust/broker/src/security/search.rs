//! Finds ACLs by their order (type, name, pattern, principal), without examining the others. Kafka:
//! `StandardAuthorizerData#checkSection`, `AclControlManager#deleteAcls`.

use std::collections::{BTreeSet, HashMap};

use super::SecurityRecord;
use super::acl::{Acl, AclFilter, AclOperation, PatternType, PermissionType, ResourceType, WILDCARD};

/// A bound that sorts before every ACL with these fields, and after every ACL with lesser ones.
fn least(resource_type: ResourceType, name: String, pattern_type: PatternType, principal: &str) -> Acl {
    Acl {
        resource_type,
        resource_name: name,
        pattern_type,
        principal: principal.to_owned(),
        host: String::new(),
        operation: AclOperation::Any,
        permission_type: PermissionType::Any,
    }
}

/// A bound that sorts before every ACL of a name, and after those of lesser names.
fn from_name(resource_type: ResourceType, name: &str) -> Acl {
    least(resource_type, name.to_owned(), PatternType::Any, "")
}

/// A bound that sorts after every ACL of a name, and before those of greater names.
fn behind_name(resource_type: ResourceType, name: &str) -> Acl {
    least(resource_type, format!("{name}\0"), PatternType::Any, "")
}

/// The ACLs about resources of one type.
pub(super) fn of_type(acls: &BTreeSet<Acl>, resource_type: ResourceType) -> impl Iterator<Item = &Acl> {
    let from = acls.range(from_name(resource_type, "")..);
    from.take_while(move |acl| acl.resource_type == resource_type)
}

/// An ACL of this pattern, if there is one.
fn pattern<'a>(acls: &'a BTreeSet<Acl>, kind: ResourceType, name: &str, pattern_type: PatternType) -> Option<&'a Acl> {
    let next = acls.range(least(kind, name.to_owned(), pattern_type, "")..).next();
    next.filter(|acl| (acl.resource_type, acl.pattern_type) == (kind, pattern_type) && acl.resource_name == name)
}

/// The ACLs with the pattern of `like`; only those of `principal`, if it is given.
pub(super) fn of_pattern<'a>(
    acls: &'a BTreeSet<Acl>,
    like: &'a Acl,
    principal: Option<&str>,
) -> impl Iterator<Item = &'a Acl> {
    let name = like.resource_name.clone();
    let first = least(like.resource_type, name, like.pattern_type, principal.unwrap_or(""));
    acls.range(first..).take_while(move |acl| {
        (acl.resource_type, acl.pattern_type) == (like.resource_type, like.pattern_type)
            && acl.resource_name == like.resource_name
            && principal.is_none_or(|principal| principal == acl.principal)
    })
}

/// The patterns that match a resource, each represented by one of its ACLs.
pub(super) fn patterns_about<'a>(acls: &'a BTreeSet<Acl>, resource_type: ResourceType, name: &str) -> Vec<&'a Acl> {
    let literal = |name| pattern(acls, resource_type, name, PatternType::Literal);
    let mut found: Vec<&Acl> = literal(name).into_iter().collect();
    if name != WILDCARD {
        found.extend(literal(WILDCARD));
    }
    // A prefix of the name is not greater than the name, so the search goes down from the name. If an ACL's name is not a prefix,
    // nothing between it and the part that it has in common with the name is one.
    let first = from_name(resource_type, "");
    let mut end = behind_name(resource_type, name);
    while let Some(acl) = acls.range(&first..&end).next_back() {
        let common = common_prefix(&acl.resource_name, name);
        end = if common < acl.resource_name.len() {
            behind_name(resource_type, &name[..common])
        } else {
            // Of the patterns of a name, this is the last one.
            found.extend((acl.pattern_type == PatternType::Prefixed).then_some(acl));
            from_name(resource_type, &acl.resource_name)
        };
    }
    found
}

/// Length of the common prefix, in bytes of whole characters.
fn common_prefix(one: &str, other: &str) -> usize {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    same.map(|(letter, _)| letter.len_utf8()).sum()
}

const RESOURCE_TYPES: [ResourceType; 6] = [
    ResourceType::Topic,
    ResourceType::Group,
    ResourceType::Cluster,
    ResourceType::TransactionalId,
    ResourceType::DelegationToken,
    ResourceType::User,
];

impl AclFilter {
    /// The ACLs that it matches. A filter with a resource name examines only the ACLs of that name.
    pub(crate) fn matched<'a>(&self, acls: &'a BTreeSet<Acl>) -> Vec<&'a Acl> {
        let Some(name) = &self.resource_name else {
            return acls.iter().filter(|acl| self.matches(acl)).collect();
        };
        let mut found = Vec::new();
        let is_type = |kind: &ResourceType| [*kind, ResourceType::Any].contains(&self.resource_type);
        for resource_type in RESOURCE_TYPES.into_iter().filter(is_type) {
            let patterns = match self.pattern_type {
                PatternType::Match => patterns_about(acls, resource_type, name),
                _ => [PatternType::Literal, PatternType::Prefixed]
                    .into_iter()
                    .filter_map(|pattern_type| pattern(acls, resource_type, name, pattern_type))
                    .collect(),
            };
            for like in patterns {
                let of_pattern = of_pattern(acls, like, self.principal.as_deref());
                found.extend(of_pattern.filter(|acl| self.matches(acl)));
            }
        }
        found.sort_unstable();
        found
    }
}

/// The ACLs that several filters match, for each filter; `None`: they are more than `room` bytes, counted for each filter.
pub(super) fn matched_by_all(acls: &BTreeSet<Acl>, filters: &[AclFilter], mut room: usize) -> Option<Vec<Vec<Acl>>> {
    let by_text = match filters.iter().any(|filter| filter.resource_name.is_none()) {
        true => by_principal_and_host(acls),
        false => HashMap::new(),
    };
    let matched = |filter: &AclFilter| {
        let texts = [&filter.principal, &filter.host].into_iter().flatten();
        let lists = texts.map(|text| by_text.get(text.as_str()).map_or(&[][..], Vec::as_slice));
        match lists.min_by_key(|list| list.len()) {
            Some(list) if filter.resource_name.is_none() => {
                list.iter().copied().filter(|acl| filter.matches(acl)).collect()
            }
            _ => filter.matched(acls),
        }
    };
    let mut known: HashMap<&AclFilter, Vec<&Acl>> = HashMap::new();
    let of_filter = |filter| {
        let found = known.entry(filter).or_insert_with(|| matched(filter));
        let mut copied = Vec::new();
        for acl in found {
            room = room.checked_sub(acl.bytes())?;
            copied.push((*acl).clone());
        }
        Some(copied)
    };
    filters.iter().map(of_filter).collect()
}

/// ACLs by their principals and by their hosts.
fn by_principal_and_host(acls: &BTreeSet<Acl>) -> HashMap<&str, Vec<&Acl>> {
    let mut by_text: HashMap<&str, Vec<&Acl>> = HashMap::new();
    for acl in acls {
        for text in BTreeSet::from([&*acl.principal, &*acl.host]) {
            by_text.entry(text).or_default().push(acl);
        }
    }
    by_text
}

impl SecurityRecord {
    /// Removes the ACLs that the filters match, and returns them for each filter; `None`: they are more than `room` bytes, and none
    /// was removed.
    pub(crate) fn delete_acls(&mut self, filters: &[AclFilter], room: usize) -> Option<Vec<Vec<Acl>>> {
        let deleted = matched_by_all(&self.acls, filters, room)?;
        for acl in deleted.iter().flatten() {
            self.acls.remove(acl);
        }
        Some(deleted)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(texts: &'static [&'static str]) -> impl Strategy<Value = String> {
        prop::sample::select(texts).prop_map(str::to_owned)
    }

    pub(in crate::security) const NAMES: &[&str] = &[
        "*", "a", "a\0", "aa", "aaa", "aab", "ab", "abc", "b", "ba", "ä", "äö", "ü",
    ];
    const PRINCIPALS: &[&str] = &["User:*", "User:a", "User:b", "h"];
    const HOSTS: &[&str] = &["*", "h", "i"];

    fn acl() -> impl Strategy<Value = Acl> {
        let kinds = prop::sample::select(&[ResourceType::Topic, ResourceType::Group, ResourceType::Cluster][..]);
        let patterns = prop::sample::select(&[PatternType::Literal, PatternType::Prefixed][..]);
        let operations = prop::sample::select(&[AclOperation::All, AclOperation::Read, AclOperation::Describe][..]);
        let permissions = prop::sample::select(&[PermissionType::Allow, PermissionType::Deny][..]);
        let texts = (text(NAMES), text(PRINCIPALS), text(HOSTS));
        (kinds, patterns, operations, permissions, texts).prop_map(|(kind, pattern, operation, permission, texts)| {
            Acl {
                resource_type: kind,
                resource_name: texts.0,
                pattern_type: pattern,
                principal: texts.1,
                host: texts.2,
                operation,
                permission_type: permission,
            }
        })
    }

    fn filter() -> impl Strategy<Value = AclFilter> {
        let kinds = prop::sample::select(&[ResourceType::Any, ResourceType::Topic, ResourceType::Group][..]);
        let patterns = prop::sample::select(
            &[
                PatternType::Any,
                PatternType::Match,
                PatternType::Literal,
                PatternType::Prefixed,
            ][..],
        );
        let operations = prop::sample::select(&[AclOperation::Any, AclOperation::Read][..]);
        let permissions = prop::sample::select(&[PermissionType::Any, PermissionType::Deny][..]);
        let maybe = |texts| prop::option::of(text(texts));
        let texts = (maybe(NAMES), maybe(PRINCIPALS), maybe(HOSTS));
        (kinds, patterns, operations, permissions, texts).prop_map(|(kind, pattern, operation, permission, texts)| {
            AclFilter {
                resource_type: kind,
                resource_name: texts.0,
                pattern_type: pattern,
                principal: texts.1,
                host: texts.2,
                operation,
                permission_type: permission,
            }
        })
    }

    pub(in crate::security) fn acls() -> impl Strategy<Value = BTreeSet<Acl>> {
        prop::collection::btree_set(acl(), 0..40)
    }

    proptest! {
        /// The same as a look at each of them.
        #[test]
        fn filters_match_what_they_match_one_by_one(acls in acls(), filters in prop::collection::vec(filter(), 0..8)) {
            let plain = |filter: &AclFilter| acls.iter().filter(|acl| filter.matches(acl)).cloned().collect();
            let expected: Vec<Vec<Acl>> = filters.iter().map(plain).collect();
            for (filter, expected) in filters.iter().zip(&expected) {
                prop_assert_eq!(filter.matched(&acls).into_iter().cloned().collect::<Vec<_>>(), expected.clone());
            }
            let bytes = expected.iter().flatten().map(Acl::bytes).sum::<usize>();
            if bytes > 0 {
                prop_assert_eq!(matched_by_all(&acls, &filters, bytes - 1), None);
            }
            prop_assert_eq!(matched_by_all(&acls, &filters, bytes), Some(expected));
        }

        #[test]
        fn patterns_are_about_what_they_say(acls in acls(), name in text(NAMES), like in acl()) {
            let about: BTreeSet<&Acl> = patterns_about(&acls, like.resource_type, &name)
                .into_iter()
                .flat_map(|like| of_pattern(&acls, like, None))
                .collect();
            let is_about = |acl: &&Acl| {
                acl.resource_type == like.resource_type
                    && match acl.pattern_type {
                        PatternType::Prefixed => name.starts_with(&acl.resource_name),
                        _ => acl.resource_name == WILDCARD || acl.resource_name == name,
                    }
            };
            prop_assert_eq!(about, acls.iter().filter(is_about).collect::<BTreeSet<_>>());
            let of_type: Vec<&Acl> = of_type(&acls, like.resource_type).collect();
            let expected: Vec<&Acl> = acls.iter().filter(|acl| acl.resource_type == like.resource_type).collect();
            prop_assert_eq!(of_type, expected);
        }
    }
}
