"""Suites that judge the whole: real Kafka releases, kills, attacks."""
