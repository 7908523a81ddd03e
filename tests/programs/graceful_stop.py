"""Stop a polling thread from another one."""

import threading

import fletchlog as fl

with fl.Broker.in_memory() as broker:
    broker.create_topic("t")
    consumer = fl.Consumer(broker)
    consumer.assign([("t", 0)])

    def work():
        try:
            while True:
                consumer.poll(timeout_ms=60_000)
        except fl.errors.WakeupError:
            consumer.close()
            print("stopped")

    thread = threading.Thread(target=work)
    thread.start()
    consumer.wakeup()
    thread.join()
# -> stopped
