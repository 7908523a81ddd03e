"""kafka-python over SASL: the topics it sees, or the name of its error (KafkaTimeoutError if it reads the end before the answer).

kafka_python_sasl.py BOOTSTRAP MECHANISM USER PASSWORD
"""

import json
import sys

from kafka import KafkaAdminClient
from kafka.errors import KafkaError

bootstrap, mechanism, user, password = sys.argv[1:]
config = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}
try:
    client = KafkaAdminClient(bootstrap_servers=bootstrap, bootstrap_timeout_ms=5000, **config)
    saw = sorted(client.list_topics())
    client.close()
except KafkaError as error:
    saw = type(error).__name__
print(json.dumps(saw))
