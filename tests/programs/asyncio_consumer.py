"""Read in a coroutine, record by record."""

import asyncio

import fletchlog as fl


async def main():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        async with fl.AsyncProducer(broker) as producer:
            for word in (b"a", b"b", b"c"):
                await producer.send("t", word)
        async with fl.AsyncConsumer(broker, {"group.id": "g", "auto.offset.reset": "earliest"}) as consumer:
            consumer.subscribe(["t"])
            async for record in consumer:
                print(record.value)
                if record.value == b"c":
                    break
            await consumer.commit()
        print(broker.group_offsets("g")["t", 0].offset)


asyncio.run(main())
# -> b'a'
# -> b'b'
# -> b'c'
# -> 3
