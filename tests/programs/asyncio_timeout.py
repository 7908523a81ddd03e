"""A limit for an awaited poll."""

import asyncio

import fletchlog as fl


async def main():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        async with fl.AsyncConsumer(broker) as consumer:
            consumer.assign([("t", 0)])
            try:
                async with asyncio.timeout(0.2):
                    async for record in consumer:
                        print(record)
            except TimeoutError:
                print("nothing came")


asyncio.run(main())
# -> nothing came
