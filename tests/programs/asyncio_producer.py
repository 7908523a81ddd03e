"""Send from a coroutine."""

import asyncio

import fletchlog as fl


async def main():
    with fl.Broker.in_memory() as broker:
        broker.create_topic("t")
        async with fl.AsyncProducer(broker) as producer:
            metadata = await producer.send_and_wait("t", b"hello")
            print(metadata.offset)
            futures = [await producer.send("t", b"%d" % number) for number in range(100)]
            print((await futures[-1]).offset)


asyncio.run(main())
# -> 0
# -> 100
