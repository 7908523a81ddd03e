"""The live judge: Apache Kafka itself, its tools, brokers and clients, against what fletchlog does. Run by `make test-interop`."""
