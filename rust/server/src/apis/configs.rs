//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources. Kafka: `ConfigHelper`, `ConfigAdminManager`.

use std::collections::HashSet;
use std::sync::Arc;

use fletchlog_api::ConfigResource;
use fletchlog_broker::{
    AclOperation, AlterConfig, AlterConfigOp, Alteration, BrokerError, ConfigChange, ConfigEntry, ConfigSource,
    ConfigSynonym, ConfigType,
};
use fletchlog_protocol::messages::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, ListConfigResourcesRequest,
    ListConfigResourcesResponse, alter_configs_response, describe_configs_request, describe_configs_response,
    incremental_alter_configs_request, incremental_alter_configs_response, list_config_resources_response,
};
use fletchlog_records::ErrorCode;

use super::topics::gone_in_4;
use super::{CLOSED, Call, Handled, Unreadable, repeated};

/// The types of resources that have properties. Kafka: `ConfigResource.Type`.
mod resource {
    pub(super) const TOPIC: i8 = 2;
    pub(super) const BROKER: i8 = 4;
    pub(super) const BROKER_LOGGER: i8 = 8;
    pub(super) const CLIENT_METRICS: i8 = 16;
    pub(super) const GROUP: i8 = 32;
    pub(super) const ALL: [i8; 5] = [TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP];
}

/// An error code and its text.
struct Refusal(ErrorCode, Option<Arc<str>>);

impl Refusal {
    fn request(text: impl Into<Arc<str>>) -> Self {
        Self(ErrorCode::INVALID_REQUEST, Some(text.into()))
    }
}

pub(super) fn describe_configs(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: DescribeConfigsRequest = call.message()?;
    let (synonyms, documentation) = (request.include_synonyms, request.include_documentation);
    // Kafka: an unknown type is the error of the whole request.
    let is_readable = request
        .resources
        .iter()
        .all(|r| resource::ALL.contains(&r.resource_type));
    let mut room = call.room();
    let results = request.resources.into_iter().map(|resource| {
        let described = match is_readable {
            true => describe(call, &resource),
            false => Err(Refusal::request(MALFORMED)),
        };
        let (error, entries) = match described {
            Ok(entries) => (Refusal(ErrorCode::NONE, Some("".into())), entries),
            Err(refusal) => (refusal, Vec::new()),
        };
        let keys = resource.configuration_keys.filter(|keys| !keys.is_empty());
        let keys: Option<HashSet<Arc<str>>> = keys.map(|keys| keys.into_iter().collect());
        let is_asked = |entry: &ConfigEntry| match &keys {
            Some(keys) => keys.contains(&*entry.name),
            None => entry.is_listed(),
        };
        let entries = entries.into_iter().filter(is_asked);
        let configs: Vec<_> = entries
            .map(|entry| described_entry(entry, synonyms, documentation))
            .collect();
        room.take(configs.iter().map(size).sum())?;
        Ok(describe_configs_response::DescribeConfigsResult {
            error_code: error.0,
            error_message: error.1,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
            configs,
        })
    });
    let results = results.collect::<Result<_, Unreadable>>()?;
    call.answer(DescribeConfigsResponse {
        results,
        ..Default::default()
    })
}

/// Approximate size of a property in memory, in bytes.
fn size(config: &describe_configs_response::DescribeConfigsResourceResult) -> usize {
    let text = |text: &Option<Arc<str>>| text.as_ref().map_or(0, |text| text.len());
    let synonyms = config.synonyms.iter().map(|s| 64 + s.name.len() + text(&s.value));
    128 + config.name.len() + text(&config.value) + text(&config.documentation) + synonyms.sum::<usize>()
}

fn describe(
    call: &Call<'_>,
    resource: &describe_configs_request::DescribeConfigsResource,
) -> Result<Vec<ConfigEntry>, Refusal> {
    let name = &*resource.resource_name;
    check_allowed(call, resource.resource_type, name, AclOperation::DescribeConfigs)?;
    let refused = |error: BrokerError| match error.code() {
        ErrorCode::UNKNOWN_TOPIC_OR_PARTITION => Refusal(error.code(), Some("".into())),
        code => Refusal(code, Some(error.kafka_message().into())),
    };
    let node = call.peer.port.node();
    let described = |of: ConfigResource| call.broker().describe_config(node, &of).map_err(refused);
    match resource.resource_type {
        resource::TOPIC => described(ConfigResource::Topic(name.to_owned())),
        resource::BROKER if name.is_empty() => described(ConfigResource::AllBrokers),
        resource::BROKER => {
            check_broker(
                call,
                "Broker",
                name,
                "Unexpected broker id, expected {} or empty string, but",
            )?;
            let mut entries = described(ConfigResource::Broker(node))?;
            entries.extend(of_node(call));
            Ok(entries)
        }
        resource::BROKER_LOGGER if name.is_empty() => Err(Refusal::request("Broker id must not be empty")),
        // No logger has its own level.
        resource::BROKER_LOGGER => {
            check_broker(call, "Broker", name, "Unexpected broker id, expected {} but").map(|()| Vec::new())
        }
        resource::CLIENT_METRICS if name.is_empty() => {
            Err(Refusal::request("Client metrics subscription name must not be empty"))
        }
        resource::CLIENT_METRICS => described(ConfigResource::ClientMetrics(name.to_owned())),
        resource::GROUP if name.is_empty() => Err(Refusal::request("Group name must not be empty")),
        resource::GROUP => described(ConfigResource::Group(name.to_owned())),
        _ => Err(Refusal::request(MALFORMED)),
    }
}

/// Kafka: `ConfigHelper#handleDescribeConfigsRequest`, `ControllerApis#authorizeAlterResource`.
fn check_allowed(call: &Call<'_>, kind: i8, name: &str, operation: AclOperation) -> Result<(), Refusal> {
    let (is_allowed, error, text) = match kind {
        resource::TOPIC => (
            call.may_topic(operation, name),
            ErrorCode::TOPIC_AUTHORIZATION_FAILED,
            "Topic authorization failed.",
        ),
        resource::GROUP => (
            call.may_group(operation, name),
            ErrorCode::GROUP_AUTHORIZATION_FAILED,
            "Group authorization failed.",
        ),
        resource::BROKER | resource::BROKER_LOGGER | resource::CLIENT_METRICS => (
            call.may_cluster(operation),
            ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
            "Cluster authorization failed.",
        ),
        // Refused as unknown.
        _ => return Ok(()),
    };
    match is_allowed {
        true => Ok(()),
        false => Err(Refusal(error, Some(text.into()))),
    }
}

/// Kafka's text for INVALID_REQUEST. Kafka: `Errors`.
const MALFORMED: &str = "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details.";

/// The properties whose values differ between nodes.
fn of_node(call: &Call<'_>) -> Vec<ConfigEntry> {
    let node = call.peer.port.node();
    let endpoint = call.apis.endpoints.iter().find(|e| e.node == node);
    let address = endpoint.map(|e| format!("{}://{}:{}", call.apis.security.protocol(), e.host, e.port));
    let entry = |name: &'static str, value: String, config_type, documentation| ConfigEntry {
        name: name.into(),
        value: Some(value.clone()),
        source: ConfigSource::StaticBrokerConfig,
        read_only: true,
        synonyms: vec![ConfigSynonym {
            name: name.into(),
            value,
            source: ConfigSource::StaticBrokerConfig,
        }],
        config_type,
        documentation,
    };
    let id = "Number of the node that was asked.";
    let mut entries = vec![entry("node.id", node.to_string(), ConfigType::Int, id)];
    let reached = "Under which address clients reach the node that was asked.";
    entries.extend(address.map(|at| entry("advertised.listeners", at, ConfigType::List, reached)));
    entries
}

/// A node describes and alters only itself.
fn check_broker(call: &Call<'_>, what: &str, name: &str, expected: &str) -> Result<(), Refusal> {
    let id: i32 = name
        .parse()
        .map_err(|_| Refusal::request(format!("{what} id must be an integer, but it is: {name}")))?;
    let node = call.peer.port.node();
    if id == node {
        return Ok(());
    }
    let expected = expected.replace("{}", &node.to_string());
    Err(Refusal::request(format!("{expected} received {name}")))
}

fn described_entry(
    entry: ConfigEntry,
    synonyms: bool,
    documentation: bool,
) -> describe_configs_response::DescribeConfigsResourceResult {
    let is_sensitive = entry.config_type == ConfigType::Password;
    let synonym = |synonym: fletchlog_broker::ConfigSynonym| describe_configs_response::DescribeConfigsSynonym {
        name: synonym.name.as_ref().into(),
        value: (!is_sensitive).then(|| synonym.value.into()),
        source: synonym.source.id(),
    };
    describe_configs_response::DescribeConfigsResourceResult {
        name: entry.name.as_ref().into(),
        value: entry.value.filter(|_| !is_sensitive).map(Into::into),
        read_only: entry.read_only,
        config_source: entry.source.id(),
        is_sensitive,
        synonyms: entry.synonyms.into_iter().filter(|_| synonyms).map(synonym).collect(),
        config_type: entry.config_type.id(),
        documentation: documentation.then(|| entry.documentation.into()),
    }
}

pub(super) fn alter_configs(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: AlterConfigsRequest = call.message()?;
    let validate_only = request.validate_only;
    let repeated = repeated(
        request
            .resources
            .iter()
            .map(|r| (r.resource_type, Arc::clone(&r.resource_name))),
    );
    let alterations = request.resources.iter().map(|resource| {
        let names = resource.configs.iter().map(|c| Arc::clone(&c.name));
        let of = (resource.resource_type, Arc::clone(&resource.resource_name));
        check_resource(call, &of, names, &repeated).and_then(|altered| {
            let altered = altered.ok_or_else(|| unknown_type(resource.resource_type))?;
            let config: Vec<_> = resource
                .configs
                .iter()
                .map(|c| (c.name.to_string(), c.value.as_deref().map(str::to_owned)))
                .collect();
            check_gone(
                call,
                &altered,
                config.iter().map(|(name, value)| (&**name, value.as_deref())),
            )?;
            Ok(Some(Alteration {
                resource: altered,
                change: ConfigChange::All(config),
            }))
        })
    });
    let outcomes = alter(call, alterations.collect(), validate_only)?;
    let responses = request.resources.into_iter().zip(outcomes).map(|(resource, altered)| {
        let Refusal(error, error_message) = outcome(altered);
        alter_configs_response::AlterConfigsResourceResponse {
            error_code: error,
            error_message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        }
    });
    let responses = responses.collect();
    call.answer(AlterConfigsResponse {
        responses,
        ..Default::default()
    })
}

pub(super) fn incremental_alter_configs(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: IncrementalAlterConfigsRequest = call.message()?;
    let validate_only = request.validate_only;
    let repeated = repeated(
        request
            .resources
            .iter()
            .map(|r| (r.resource_type, Arc::clone(&r.resource_name))),
    );
    let alterations = request.resources.iter().map(|resource| {
        let names = resource.configs.iter().map(|c| Arc::clone(&c.name));
        let of = (resource.resource_type, Arc::clone(&resource.resource_name));
        check_resource(call, &of, names, &repeated).and_then(|altered| {
            let Some(altered) = altered else {
                return resource
                    .configs
                    .first()
                    .map_or(Ok(None), |config| Err(no_logger(config)));
            };
            let change = |config| change(&altered, config);
            let changes: Vec<_> = resource.configs.iter().map(change).collect::<Result<_, _>>()?;
            let set = changes.iter().filter(|change| change.op == AlterConfigOp::Set);
            check_gone(
                call,
                &altered,
                set.map(|change| (&*change.name, change.value.as_deref())),
            )?;
            Ok(Some(Alteration {
                resource: altered,
                change: ConfigChange::Some(changes),
            }))
        })
    });
    let outcomes = alter(call, alterations.collect(), validate_only)?;
    let responses = request.resources.into_iter().zip(outcomes).map(|(resource, altered)| {
        let Refusal(error, error_message) = outcome(altered);
        incremental_alter_configs_response::AlterConfigsResourceResponse {
            error_code: error,
            error_message,
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        }
    });
    let responses = responses.collect();
    call.answer(IncrementalAlterConfigsResponse {
        responses,
        ..Default::default()
    })
}

/// Makes the alterations that are not refused yet, in one call of the broker; `None` alters nothing. Returns the outcome of each.
fn alter(
    call: &Call<'_>,
    alterations: Vec<Result<Option<Alteration>, Refusal>>,
    validate_only: bool,
) -> Result<Vec<Result<(), Refusal>>, Unreadable> {
    let wanted: Vec<Alteration> = alterations.iter().flatten().flatten().cloned().collect();
    let mut altered = call
        .broker()
        .alter_configs(&wanted, validate_only)
        .map_err(|_| CLOSED)?
        .into_iter();
    let outcome = |alteration: Result<Option<Alteration>, Refusal>| match alteration? {
        Some(Alteration { resource, .. }) => {
            let altered = altered.next().unwrap_or(Ok(()));
            altered.map_err(|error| refused_alteration(&resource, &error))
        }
        None => Ok(()),
    };
    Ok(alterations.into_iter().map(outcome).collect())
}

/// One change. Kafka: `AlterConfigOp.OpType`; on an unknown type its handler fails, unless the resource is a broker.
fn change(
    altered: &ConfigResource,
    config: &incremental_alter_configs_request::AlterableConfig,
) -> Result<AlterConfig, Refusal> {
    let op = match config.config_operation {
        0 => AlterConfigOp::Set,
        1 => AlterConfigOp::Delete,
        2 => AlterConfigOp::Append,
        3 => AlterConfigOp::Subtract,
        other if matches!(altered, ConfigResource::AllBrokers | ConfigResource::Broker(_)) => {
            return Err(Refusal::request(format!("Unknown operations type {other}")));
        }
        _ => return Err(Refusal(ErrorCode::UNKNOWN_SERVER_ERROR, None)),
    };
    Ok(AlterConfig {
        name: config.name.to_string(),
        op,
        value: config.value.as_deref().map(str::to_owned),
    })
}

fn unknown_type(resource_type: i8) -> Refusal {
    Refusal::request(format!("Unknown resource type {resource_type}"))
}

/// No logger has its own level. Kafka: `RuntimeLoggerManager#validateLogLevelConfigs`.
fn no_logger(config: &incremental_alter_configs_request::AlterableConfig) -> Refusal {
    let op = match config.config_operation {
        2 => "APPEND",
        3 => "SUBTRACT",
        _ => {
            let text = format!("Logger {} does not exist!", config.name);
            return Refusal(ErrorCode::INVALID_CONFIG, Some(text.into()));
        }
    };
    Refusal::request(format!("{op} operation is not allowed for the BROKER_LOGGER resource"))
}

/// The resource to alter; `None`: the loggers of a node. The request must name each resource once, and each of its properties once.
fn check_resource(
    call: &Call<'_>,
    of: &(i8, Arc<str>),
    properties: impl Iterator<Item = Arc<str>>,
    repeated: &HashSet<(i8, Arc<str>)>,
) -> Result<Option<ConfigResource>, Refusal> {
    let names: Vec<Arc<str>> = properties.collect();
    let (resource_type, name) = of;
    if repeated.contains(of) {
        return Err(Refusal::request("Each resource must appear at most once."));
    }
    if names.iter().collect::<HashSet<_>>().len() < names.len() {
        return Err(Refusal::request("Error due to duplicate config keys"));
    }
    check_allowed(call, *resource_type, name, AclOperation::AlterConfigs)?;
    Ok(Some(match *resource_type {
        resource::TOPIC => ConfigResource::Topic(name.to_string()),
        resource::BROKER if name.is_empty() => ConfigResource::AllBrokers,
        resource::BROKER => {
            check_broker(call, "Node", name, "Unexpected broker id, expected {}, but")?;
            ConfigResource::Broker(call.peer.port.node())
        }
        resource::BROKER_LOGGER => {
            check_broker(call, "Node", name, "Unexpected node id. Expected {}, but")?;
            return Ok(None);
        }
        resource::GROUP => ConfigResource::Group(name.to_string()),
        resource::CLIENT_METRICS => ConfigResource::ClientMetrics(name.to_string()),
        other => return Err(unknown_type(other)),
    }))
}

fn check_gone<'a>(
    call: &Call<'_>,
    altered: &ConfigResource,
    config: impl Iterator<Item = (&'a str, Option<&'a str>)>,
) -> Result<(), Refusal> {
    let ConfigResource::Topic(_) = altered else {
        return Ok(());
    };
    match gone_in_4(config) {
        Some(text) if is_name(call, altered) => Err(Refusal(ErrorCode::INVALID_CONFIG, Some(text.into()))),
        _ => Ok(()),
    }
}

/// Whether the name of the topic is valid. An invalid name is reported before an invalid property.
fn is_name(call: &Call<'_>, topic: &ConfigResource) -> bool {
    let described = call.broker().describe_config(call.peer.port.node(), topic);
    described.map_or_else(|error| error.code() == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, |_| true)
}

fn refused_alteration(altered: &ConfigResource, error: &BrokerError) -> Refusal {
    match (error.code(), altered) {
        (code @ ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ConfigResource::Topic(name)) => {
            Refusal(code, Some(format!("The topic '{name}' does not exist.").into()))
        }
        (code, _) => Refusal(code, Some(error.kafka_message().into())),
    }
}

fn outcome(altered: Result<(), Refusal>) -> Refusal {
    altered.err().unwrap_or(Refusal(ErrorCode::NONE, None))
}

pub(super) fn list_config_resources(call: &mut Call<'_>) -> Result<Handled, Unreadable> {
    let request: ListConfigResourcesRequest = call.message()?;
    if let Err(error) = call.check_cluster(AclOperation::DescribeConfigs) {
        return call.answer(ListConfigResourcesResponse {
            error_code: error,
            ..Default::default()
        });
    }
    if !request.resource_types.iter().all(|kind| resource::ALL.contains(kind)) {
        return call.answer(ListConfigResourcesResponse {
            error_code: ErrorCode::UNSUPPORTED_VERSION,
            ..Default::default()
        });
    }
    // Version 0 lists client metrics alone.
    let asked: HashSet<i8> = request.resource_types.into_iter().collect();
    let is_asked = |kind: i8| match call.version() {
        0 => kind == resource::CLIENT_METRICS,
        _ => asked.is_empty() || asked.contains(&kind),
    };
    let mut config_resources = Vec::new();
    let mut add = |resource_type: i8, resource_name: Arc<str>| {
        config_resources.push(list_config_resources_response::ConfigResource {
            resource_name,
            resource_type,
        });
    };
    if is_asked(resource::TOPIC) {
        let topics = call.broker().topics(true).map_err(|_| CLOSED)?;
        topics.into_iter().for_each(|topic| add(resource::TOPIC, topic));
    }
    for kind in [resource::BROKER, resource::BROKER_LOGGER] {
        if is_asked(kind) {
            let nodes = call.broker().nodes().into_iter();
            nodes.for_each(|node| add(kind, node.to_string().into()));
        }
    }
    for altered in call.broker().altered_resources().map_err(|_| CLOSED)? {
        let (kind, name) = match altered {
            ConfigResource::Group(name) => (resource::GROUP, name),
            ConfigResource::ClientMetrics(name) => (resource::CLIENT_METRICS, name),
            _ => continue,
        };
        if is_asked(kind) {
            add(kind, name.into());
        }
    }
    call.answer(ListConfigResourcesResponse {
        config_resources,
        ..Default::default()
    })
}
