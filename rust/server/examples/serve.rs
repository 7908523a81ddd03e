//! A listener over a broker in memory, without Python: for judges and profiles.
//!
//! `cargo run -p fletchlog-server --example serve -- PORT [NODES] [NAME=VALUE ...]`; ends with its standard input.

use std::io::Read;
use std::sync::Arc;

use fletchlog_api::transport::SystemClock;
use fletchlog_api::{Config, Scope};
use fletchlog_broker::{Broker, OpenOptions};
use fletchlog_server::{ListenOptions, SocketServer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (properties, numbers): (Vec<&String>, Vec<&String>) = arguments.iter().partition(|a| a.contains('='));
    let port = numbers.first().map_or(Ok(0), |port| port.parse())?;
    let nodes = numbers.get(1).map_or(Ok(1), |nodes| nodes.parse())?;
    let properties = properties.iter().filter_map(|p| p.split_once('='));
    let options = OpenOptions {
        nodes: Some(nodes),
        named_nodes: Vec::new(),
        read_only: false,
        config: Config::parse(Scope::Broker, properties)?,
    };
    let broker = Broker::in_memory(options, Arc::new(SystemClock::default()))?;
    let host = "127.0.0.1".to_owned();
    let listen = ListenOptions {
        host,
        port,
        advertised: None,
        config: Vec::new(),
        record: None,
    };
    let server = SocketServer::start(&broker, &listen)?;
    for endpoint in server.endpoints() {
        log::info!("node {} at {}:{}", endpoint.node, endpoint.host, endpoint.port);
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    server.close();
    broker.close()?;
    Ok(())
}
