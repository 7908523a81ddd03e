"""A user with a password who may read one topic."""

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.upsert_user_scram_credential("reader", "secret")
    print(broker.describe_user_scram_credentials())
    broker.delete_user_scram_credential("reader")
    print(broker.describe_user_scram_credentials())
# -> {'reader': {'SCRAM-SHA-256': 4096}}
# -> {}
