//! The protocols of groups (spec 8.7, 8.10, 11.14), with a clock that does not move.

mod brokers;
mod commits;
mod consumer_groups;
mod coordinators;
mod cuts;
mod joining;
mod leaving;
mod member;
mod offsets;
mod rebalances;
mod restart;
mod share_groups;
mod share_partitions;
mod static_members;
mod wire;
