"""Send the rows of a DataFrame."""

import pandas as pd
import pyarrow as pa

import fletchlog as fl

frame = pd.DataFrame({"key": [b"a", b"b"], "value": [b"1", b"2"]})
with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    with fl.Producer(broker) as producer:
        print(producer.send_arrow("t", pa.Table.from_pandas(frame)))
    print([(record.key, record.value) for record in fl.scan(broker, "t").records()])
# -> 2
# -> [(b'a', b'1'), (b'b', b'2')]
