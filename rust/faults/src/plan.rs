//! Plans: rules as data, in JSON (or TOML, which the shell turns into JSON).
//!
//! A plan is `{"rules": [RULE, ..]}`. A rule is one flat object: its selectors, when it applies, and exactly one action.
//!
//! | key | value |
//! |---|---|
//! | `name` | the rule's name in reports |
//! | `api` | a name or an array of names, such as "Produce" |
//! | `version` | a number, or `[first, last]` |
//! | `client_id`, `topic`, `group`, `transactional_id` | a text, `*` for any characters |
//! | `connection`, `node`, `partition` | a number |
//! | `nth` | the first match that it applies to, from 1 |
//! | `times` | to how many requests it applies at most; without it to one with `nth`, else until it is cleared |
//! | `optional` | true: that it never applied is no mistake |
//! | `error` | action: name or code of Kafka's error; with `"handled": true` the request is carried out all the same; `log_start_offset` is that of a Produce response with the error |
//! | `close` | action: `"before"` or `"after"` the request is carried out |
//! | `lose_response` | action: true; the same as `"close": "after"` |
//! | `black_hole` | action: `"before"` or `"after"` |
//! | `delay_ms`, `delay_response_ms`, `throttle_time_ms` | action: ms. `delay_ms` may be beside another action, which then happens so much later |
//! | `hold` | action: true |
//! | `cut_after_bytes` | action: bytes of the response, its size included |
//! | `wrong_correlation_id`, `refuse_connection`, `tls_failure` | action: true |
//! | `slow_bytes_per_second` | action: bytes |

use std::ops::RangeInclusive;

use fletchlog_api::nearest_name;
use fletchlog_protocol::{ApiKey, api_name};
use fletchlog_records::ErrorCode;
use serde_json::{Map, Value, json};

use crate::random::{RandomFaults, RandomKind};
use crate::rule::{Action, Glob, Rule, Selector, When};

/// What is wrong with a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Not JSON.
    #[error("the plan is not JSON: {0}")]
    Json(String),
    /// Not an object with rules.
    #[error("a plan is an object with `rules`, an array of objects, and with nothing else but `random`; {0}")]
    Shape(String),
    /// A rule that cannot be understood.
    #[error("{rule}: {reason}")]
    Rule {
        /// Which rule: "rule 2", with its name if it has one; "the rule" if there is only one.
        rule: String,
        /// What is wrong with it, and what is possible.
        reason: String,
    },
}

impl PlanError {
    /// A rule that a client in this process cannot have.
    pub(crate) fn of_bytes(number: u64, rule: &Rule) -> Self {
        Self::Rule {
            rule: format!("rule {number} ({})", rule_json(rule)),
            reason: "it is about the bytes of a socket, and the plan is for clients in this process, which have none; use it at a listener or a \
                     proxy (`broker.listen().faults`, `cluster.proxy().faults`)"
                .to_owned(),
        }
    }
}

/// The rules of a plan, and its random faults.
///
/// # Errors
/// What is wrong, in which rule, and what is possible instead.
pub fn rules_of(plan: &str) -> Result<(Vec<Rule>, Option<RandomFaults>), PlanError> {
    let value: Value = serde_json::from_str(plan).map_err(|error| PlanError::Json(error.to_string()))?;
    let Value::Object(mut plan) = value else {
        return Err(PlanError::Shape("this is none".to_owned()));
    };
    let rules = match plan.remove("rules") {
        None => Vec::new(),
        Some(Value::Array(rules)) => rules,
        Some(_) => return Err(PlanError::Shape("`rules` is not an array".to_owned())),
    };
    let random = plan.remove("random").map(random_of).transpose()?;
    if let Some(key) = plan.keys().next() {
        return Err(PlanError::Shape(format!("`{key}` is unknown")));
    }
    let is_alone = rules.len() == 1;
    let rules = rules.into_iter().enumerate().map(|(at, rule)| {
        let number = match is_alone {
            true => "the rule".to_owned(),
            false => format!("rule {}", at + 1),
        };
        let name = match rule.get("name").and_then(Value::as_str) {
            Some(name) => format!("{number} (`{name}`)"),
            None => number,
        };
        rule_of(rule).map_err(|reason| PlanError::Rule { rule: name, reason })
    });
    Ok((rules.collect::<Result<_, _>>()?, random))
}

/// The keys of an object that have not been read.
struct Keys(Map<String, Value>);

impl Keys {
    fn of(value: Value) -> Result<Self, String> {
        match value {
            Value::Object(keys) => Ok(Self(keys)),
            _ => Err("it is not an object".to_owned()),
        }
    }

    /// The value of a key, as `read` reads it.
    fn take<T>(&mut self, key: &str, kind: &str, read: impl FnOnce(&Value) -> Option<T>) -> Result<Option<T>, String> {
        let Some(value) = self.0.remove(key) else {
            return Ok(None);
        };
        let found = read(&value).ok_or_else(|| format!("`{key}` must be {kind}, not {value}"))?;
        Ok(Some(found))
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, String> {
        self.take(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    fn glob(&mut self, key: &str) -> Result<Option<Glob>, String> {
        Ok(self.text(key)?.map(Glob))
    }

    fn number<T: TryFrom<i64>>(&mut self, key: &str, least: i64) -> Result<Option<T>, String> {
        let read = |value: &Value| {
            value
                .as_i64()
                .filter(|number| *number >= least)
                .and_then(|number| T::try_from(number).ok())
        };
        self.take(key, &format!("a whole number, {least} or more"), read)
    }

    fn truth(&mut self, key: &str) -> Result<bool, String> {
        Ok(self.take(key, "true or false", Value::as_bool)?.unwrap_or(false))
    }

    fn when(&mut self, key: &str) -> Result<Option<When>, String> {
        self.take(
            key,
            "\"before\" or \"after\" (the request is carried out)",
            |value| match value.as_str() {
                Some("before") => Some(When::BeforeHandling),
                Some("after") => Some(When::AfterHandling),
                _ => None,
            },
        )
    }

    /// An error if a key is left.
    fn end(self, known: &str) -> Result<(), String> {
        match self.0.keys().next() {
            Some(key) => Err(format!("`{key}` is unknown; known are {known}")),
            None => Ok(()),
        }
    }
}

const SELECTORS: &str =
    "name, api, version, client_id, connection, node, topic, partition, group, transactional_id, nth, times, optional";
const ACTIONS: &str = "error (with handled and log_start_offset), close, lose_response, black_hole, delay_ms (also beside another action), delay_response_ms, hold, throttle_time_ms, \
                       cut_after_bytes, wrong_correlation_id, slow_bytes_per_second, refuse_connection, tls_failure";

fn rule_of(value: Value) -> Result<Rule, String> {
    let mut keys = Keys::of(value)?;
    let name = keys.text("name")?.unwrap_or_default();
    let selector = Selector {
        api: apis(&mut keys)?,
        version: keys.take("version", "a number or [first, last]", version)?,
        client_id: keys.glob("client_id")?,
        connection: keys.number("connection", 1)?,
        node: keys.number("node", 0)?,
        topic: keys.glob("topic")?,
        partition: keys.number("partition", 0)?,
        group: keys.glob("group")?,
        transactional_id: keys.glob("transactional_id")?,
    };
    let nth = keys.number("nth", 1)?;
    let times = keys.number("times", 1)?;
    let optional = keys.truth("optional")?;
    let delay_ms: Option<i64> = keys.number("delay_ms", 0)?;
    let mut actions = actions(&mut keys)?;
    keys.end(&format!("{SELECTORS}; and the actions {ACTIONS}"))?;
    let (action, delay_ms) = match (actions.pop(), actions.is_empty(), delay_ms) {
        (Some(action), true, delay_ms) => (action, delay_ms.unwrap_or(0)),
        (None, _, Some(delay_ms)) => (Action::Delay(delay_ms), 0),
        (None, _, None) => return Err(format!("it has no action; the actions are {ACTIONS}")),
        (Some(_), false, _) => return Err("it has more than one action; a rule has one, write two rules".to_owned()),
    };
    check(&selector, &action, delay_ms)?;
    Ok(Rule {
        name,
        selector,
        action,
        delay_ms,
        times: times.or(nth.map(|_| 1)),
        nth: nth.unwrap_or(1),
        optional,
    })
}

/// Refuses what could never apply.
fn check(selector: &Selector, action: &Action, delay_ms: i64) -> Result<(), String> {
    let of_requests = Selector {
        node: None,
        connection: None,
        ..selector.clone()
    };
    if action.is_of_connection() && of_requests != Selector::default() {
        return Err(
            "it is about connections, before anything is known of the client: only node and connection can select them"
                .to_owned(),
        );
    }
    if delay_ms > 0 && (action.is_of_connection() || *action == Action::Hold) {
        return Err("`delay_ms` cannot be beside `hold`, `refuse_connection` or `tls_failure`".to_owned());
    }
    let Action::Error { log_start_offset, .. } = action else {
        return Ok(());
    };
    if selector.api.is_empty() {
        return Err("an error needs an `api`: each API reports errors in its own way".to_owned());
    }
    if log_start_offset.is_some() && selector.api != [ApiKey::Produce.name()] {
        return Err("`log_start_offset` is in errors of Produce alone: it needs `api` Produce".to_owned());
    }
    Ok(())
}

fn apis(keys: &mut Keys) -> Result<Vec<&'static str>, String> {
    let names = keys.take("api", "a name or an array of names", |value| match value {
        Value::String(name) => Some(vec![name.clone()]),
        Value::Array(names) if !names.is_empty() => names.iter().map(|name| name.as_str().map(str::to_owned)).collect(),
        _ => None,
    })?;
    names.unwrap_or_default().iter().map(|name| api_of(name)).collect()
}

/// Kafka's name of an API, which is this text.
///
/// # Errors
/// There is none; the text says which was meant.
pub fn api_of(name: &str) -> Result<&'static str, String> {
    let all = || (0..=i16::from(u8::MAX)).filter_map(api_name);
    all().find(|known| *known == name).ok_or_else(|| {
        let given = name.replace('_', "");
        let hint = all().find(|known| known.eq_ignore_ascii_case(&given));
        let hint = hint.or_else(|| nearest(&given, all));
        format!(
            "Kafka has no API `{name}`; {}",
            meant(hint, "names are Kafka's, such as Produce or JoinGroup")
        )
    })
}

/// The first name that begins as the given one, or the nearest one.
fn nearest<'a, I: Iterator<Item = &'a str>>(given: &str, names: impl Fn() -> I) -> Option<&'a str> {
    let begins = names().find(|known| !given.is_empty() && known.starts_with(given));
    begins.or_else(|| nearest_name(given, names()))
}

fn meant(name: Option<&str>, otherwise: &str) -> String {
    name.map_or_else(|| otherwise.to_owned(), |name| format!("did you mean {name}?"))
}

fn version(value: &Value) -> Option<RangeInclusive<i16>> {
    let number = |value: &Value| {
        value
            .as_i64()
            .and_then(|number| i16::try_from(number).ok())
            .filter(|number| *number >= 0)
    };
    match value {
        Value::Array(ends) => match &ends[..] {
            [first, last] => Some(number(first)?..=number(last)?).filter(|versions| !versions.is_empty()),
            _ => None,
        },
        one => number(one).map(|one| one..=one),
    }
}

fn actions(keys: &mut Keys) -> Result<Vec<Action>, String> {
    let mut found = Vec::new();
    let handled = keys.take("handled", "true or false", Value::as_bool)?;
    let log_start_offset = keys.number("log_start_offset", -1)?;
    if let Some(code) = keys.take("error", "a name or a code", |value| Some(value.clone()))? {
        found.push(Action::Error {
            code: error_of(&code)?,
            handled: handled.unwrap_or(false),
            log_start_offset,
        });
    } else if handled.is_some() || log_start_offset.is_some() {
        return Err("`handled` and `log_start_offset` belong to `error`".to_owned());
    }
    found.extend(keys.when("close")?.map(Action::Close));
    found.extend(keys.when("black_hole")?.map(Action::BlackHole));
    found.extend(keys.number("delay_response_ms", 0)?.map(Action::DelayResponse));
    found.extend(keys.number("throttle_time_ms", 0)?.map(Action::Throttle));
    found.extend(keys.number("cut_after_bytes", 0)?.map(Action::Cut));
    found.extend(keys.number("slow_bytes_per_second", 1)?.map(Action::Slow));
    for (key, action) in [
        ("lose_response", Action::Close(When::AfterHandling)),
        ("hold", Action::Hold),
        ("wrong_correlation_id", Action::WrongCorrelationId),
        ("refuse_connection", Action::RefuseConnection),
        ("tls_failure", Action::TlsFailure),
    ] {
        if keys.truth(key)? {
            found.push(action);
        }
    }
    Ok(found)
}

fn error_of(value: &Value) -> Result<ErrorCode, String> {
    let found = match value {
        Value::String(name) => ErrorCode::from_name(name),
        number => number
            .as_i64()
            .and_then(|code| i16::try_from(code).ok())
            .and_then(ErrorCode::from_code),
    };
    if found == Some(ErrorCode::NONE) {
        return Err(format!(
            "{value} means that there is no error; name one of Kafka's, such as NOT_LEADER_OR_FOLLOWER"
        ));
    }
    found.ok_or_else(|| {
        let names = || ErrorCode::ALL.iter().map(|code| code.name());
        let given = value.as_str().map(as_in_table);
        let hint = given.and_then(|given| nearest(&given, names));
        let otherwise = "names are those of Kafka's table, such as NOT_LEADER_OR_FOLLOWER";
        format!("Kafka has no error {value}; {}", meant(hint, otherwise))
    })
}

/// The name of an error as Kafka's table would have it, of the name of an exception: NotEnoughReplicasException is NOT_ENOUGH_REPLICAS.
fn as_in_table(name: &str) -> String {
    let name = name
        .strip_suffix("Exception")
        .or_else(|| name.strip_suffix("Error"))
        .unwrap_or(name);
    let mut text = String::with_capacity(2 * name.len());
    let mut is_lower = false;
    for letter in name.chars() {
        if letter.is_uppercase() && is_lower {
            text.push('_');
        }
        is_lower = letter.is_lowercase();
        text.extend(letter.to_uppercase());
    }
    text
}

fn random_of(value: Value) -> Result<RandomFaults, PlanError> {
    let read = || {
        let mut keys = Keys::of(value)?;
        let seed = keys
            .number("seed", 0)?
            .ok_or("it has no `seed`, a whole number, 0 or more")?;
        let rate = keys.take("rate", "a number from 0 to 1", |value| {
            value.as_f64().filter(|rate| (0.0..=1.0).contains(rate))
        })?;
        let kinds = keys.take("kinds", "an array of texts", |value| {
            value
                .as_array()?
                .iter()
                .map(|kind| kind.as_str().map(str::to_owned))
                .collect::<Option<Vec<_>>>()
        })?;
        let apis = apis(&mut keys)?;
        keys.end("seed, rate, kinds, api")?;
        let kinds = match kinds {
            None => RandomKind::ALL.map(|(_, kind)| kind).to_vec(),
            Some(names) => names.iter().map(|name| kind_of(name)).collect::<Result<_, _>>()?,
        };
        let rate = rate.ok_or("it has no `rate`, a number from 0 to 1")?;
        Ok(RandomFaults {
            seed,
            rate,
            kinds,
            apis,
        })
    };
    read().map_err(|reason: String| PlanError::Rule {
        rule: "random".to_owned(),
        reason,
    })
}

fn kind_of(name: &str) -> Result<RandomKind, String> {
    let known = RandomKind::ALL.iter().find(|(known, _)| *known == name);
    known.map(|(_, kind)| *kind).ok_or_else(|| {
        let all = RandomKind::ALL.map(|(name, _)| name).join(", ");
        format!("`{name}` is no kind of random fault; the kinds are {all}")
    })
}

/// A rule as it is written in a plan.
pub fn rule_json(rule: &Rule) -> Value {
    let selector = &rule.selector;
    let mut keys = Map::new();
    let mut put = |key: &str, value: Option<Value>| {
        if let Some(value) = value {
            keys.insert(key.to_owned(), value);
        }
    };
    let glob = |glob: &Option<Glob>| glob.as_ref().map(|glob| json!(glob.0));
    put("name", (!rule.name.is_empty()).then(|| json!(rule.name)));
    put(
        "api",
        match &selector.api[..] {
            [] => None,
            [one] => Some(json!(one)),
            all => Some(json!(all)),
        },
    );
    put(
        "version",
        selector
            .version
            .as_ref()
            .map(|range| json!([range.start(), range.end()])),
    );
    put("client_id", glob(&selector.client_id));
    put("connection", selector.connection.map(|number| json!(number)));
    put("node", selector.node.map(|node| json!(node)));
    put("topic", glob(&selector.topic));
    put("partition", selector.partition.map(|partition| json!(partition)));
    put("group", glob(&selector.group));
    put("transactional_id", glob(&selector.transactional_id));
    put("nth", (rule.nth > 1 || rule.times == Some(1)).then(|| json!(rule.nth)));
    put(
        "times",
        rule.times.filter(|times| *times != 1).map(|times| json!(times)),
    );
    put("optional", rule.optional.then_some(json!(true)));
    let when = |when: &When| match when {
        When::BeforeHandling => json!("before"),
        When::AfterHandling => json!("after"),
    };
    put("delay_ms", (rule.delay_ms > 0).then(|| json!(rule.delay_ms)));
    let (key, value) = match &rule.action {
        Action::Error {
            code,
            handled,
            log_start_offset,
        } => {
            put("handled", handled.then_some(json!(true)));
            put("log_start_offset", log_start_offset.map(|offset| json!(offset)));
            ("error", json!(code.name()))
        }
        Action::Close(When::AfterHandling) => ("lose_response", json!(true)),
        Action::Close(at) => ("close", when(at)),
        Action::BlackHole(at) => ("black_hole", when(at)),
        Action::Delay(ms) => ("delay_ms", json!(ms)),
        Action::DelayResponse(ms) => ("delay_response_ms", json!(ms)),
        Action::Hold => ("hold", json!(true)),
        Action::Throttle(ms) => ("throttle_time_ms", json!(ms)),
        Action::Cut(bytes) => ("cut_after_bytes", json!(bytes)),
        Action::WrongCorrelationId => ("wrong_correlation_id", json!(true)),
        Action::Slow(bytes) => ("slow_bytes_per_second", json!(bytes)),
        Action::RefuseConnection => ("refuse_connection", json!(true)),
        Action::TlsFailure => ("tls_failure", json!(true)),
    };
    put(key, Some(value));
    Value::Object(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(rule: &str) -> Result<Rule, String> {
        match rules_of(&format!("{{\"rules\": [{rule}]}}")) {
            Ok((mut rules, _)) => Ok(rules.remove(0)),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn every_action_is_written_as_it_is_read() {
        for text in [
            r#"{"api":"Produce","error":"NOT_ENOUGH_REPLICAS","nth":3,"topic":"orders"}"#,
            r#"{"api":["Fetch","ListOffsets"],"error":"NOT_LEADER_OR_FOLLOWER","handled":true,"partition":2,"times":4}"#,
            r#"{"api":"Produce","delay_ms":5,"error":"UNKNOWN_PRODUCER_ID","log_start_offset":7}"#,
            r#"{"client_id":"billing-*","close":"before","version":[3,7]}"#,
            r#"{"close":"before","delay_ms":9}"#,
            r#"{"connection":2,"lose_response":true,"name":"lost"}"#,
            r#"{"black_hole":"after","group":"g","optional":true}"#,
            r#"{"delay_ms":5,"transactional_id":"t*"}"#,
            r#"{"delay_response_ms":5,"node":1}"#,
            r#"{"hold":true,"nth":2,"times":3}"#,
            r#"{"throttle_time_ms":100}"#,
            r#"{"cut_after_bytes":0}"#,
            r#"{"wrong_correlation_id":true}"#,
            r#"{"slow_bytes_per_second":10}"#,
            r#"{"refuse_connection":true}"#,
            r#"{"connection":1,"tls_failure":true}"#,
        ] {
            let rule = one(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            let expected: Value = serde_json::from_str(text).unwrap_or_default();
            assert_eq!(rule_json(&rule), expected, "{text}");
        }
    }

    #[test]
    fn a_mistake_is_named_with_what_is_possible() {
        for (text, parts) in [
            ("{}", &["the rule: ", "no action", "lose_response"][..]),
            (r#"{"nht": 3, "hold": true}"#, &["`nht` is unknown", "nth"]),
            (
                r#"{"api": "produce", "hold": true}"#,
                &["no API `produce`", "did you mean Produce?"],
            ),
            (
                r#"{"api": "Prod", "hold": true}"#,
                &["no API `Prod`", "did you mean Produce?"],
            ),
            (r#"{"api": "Produse", "hold": true}"#, &["did you mean Produce?"]),
            (r#"{"api": "no such thing at all", "hold": true}"#, &["JoinGroup"]),
            (r#"{"api": [], "hold": true}"#, &["`api` must be"]),
            (r#"{"version": [9, 3], "hold": true}"#, &["[first, last]"]),
            (r#"{"hold": true, "throttle_time_ms": 1}"#, &["more than one action"]),
            (r#"{"hold": true, "delay_ms": 1}"#, &["cannot be beside `hold`"]),
            (
                r#"{"api": "Fetch", "error": 6, "log_start_offset": 1}"#,
                &["it needs `api` Produce"],
            ),
            (
                r#"{"error": "NOT_LEADER", "api": "Fetch"}"#,
                &["no error \"NOT_LEADER\"", "did you mean NOT_LEADER_OR_FOLLOWER?"],
            ),
            (
                r#"{"error": "NOT_ENOUGH_REPLICA", "api": "Fetch"}"#,
                &["did you mean NOT_ENOUGH_REPLICAS?"],
            ),
            (
                r#"{"error": "RebalanceInProgressException", "api": "Fetch"}"#,
                &["did you mean REBALANCE_IN_PROGRESS?"],
            ),
            (r#"{"error": 0, "api": "Fetch"}"#, &["0 means that there is no error"]),
            (r#"{"error": 6}"#, &["needs an `api`"]),
            (
                r#"{"delay_ms": -1}"#,
                &["`delay_ms` must be a whole number, 0 or more, not -1"],
            ),
            (
                r#"{"nth": 0, "hold": true}"#,
                &["`nth` must be a whole number, 1 or more, not 0"],
            ),
            (r#"{"close": true}"#, &["`close` must be", "before"]),
            (
                r#"{"handled": true, "hold": true}"#,
                &["`handled` and `log_start_offset` belong to `error`"],
            ),
            (
                r#"{"refuse_connection": true, "client_id": "a"}"#,
                &["only node and connection"],
            ),
            (
                r#"{"version": [1], "hold": true, "name": "v"}"#,
                &["the rule (`v`)", "[first, last]"],
            ),
        ] {
            let error = one(text).err().unwrap_or_else(|| panic!("{text} was accepted"));
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
        for (plan, part) in [
            ("[]", "this is none"),
            ("{", "not JSON"),
            (r#"{"rule": []}"#, "`rule` is unknown"),
            (r#"{"random": {"seed": 1}}"#, "no `rate`"),
            (r#"{"random": {"rate": 0.5}}"#, "no `seed`"),
            (r#"{"random": {"seed": 1, "rate": 2}}"#, "from 0 to 1"),
            (
                r#"{"random": {"seed": 1, "rate": 0.1, "kinds": ["explode"]}}"#,
                "error, lose_response, close, delay",
            ),
        ] {
            let error = rules_of(plan).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(part), "{plan}: {error}");
        }
    }
}
