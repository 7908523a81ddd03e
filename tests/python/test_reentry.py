"""Python code that runs in the middle of a call may use the same objects: nothing waits for its own thread, or for the GIL."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

# A script that hangs is ended after this many seconds: none of these takes three on an idle machine.
PATIENCE_S = 90


def printed(script: str, *arguments: str | Path) -> str:
    """What a script prints; one that hangs shows where its threads stand."""
    guard = f"import faulthandler, sys\nfaulthandler.dump_traceback_later({PATIENCE_S}, exit=True)\n"
    command = [sys.executable, "-c", guard + textwrap.dedent(script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_the_first_callbacks_of_several_threads_come_at_once() -> None:
    script = """
        import threading
        import fletchlog as fl

        broker = fl.Broker.in_memory()
        broker.create_topic("t")
        called = []
        for _ in range(400):
            with fl.Producer(broker) as producer:
                together = threading.Barrier(3)

                def send():
                    together.wait()
                    producer.send("t", b"v", callback=lambda metadata, error: called.append(metadata.offset)).result(30)

                threads = [threading.Thread(target=send) for _ in range(3)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
        print(sorted(called) == list(range(1200)))
    """
    assert printed(script) == "True\n"


def test_when_no_thread_can_be_started_the_next_callback_tries_again() -> None:
    script = """
        import threading
        import fletchlog as fl

        start = threading.Thread.start

        def refuse(thread):
            raise RuntimeError("can't start new thread")

        called = []
        broker = fl.Broker.in_memory()
        broker.create_topic("t")
        with fl.Producer(broker) as producer:
            threading.Thread.start = refuse
            try:
                producer.send("t", b"v", callback=lambda *outcome: called.append("first"))
            except RuntimeError as error:
                print(error)
            producer.flush()
            threading.Thread.start = start
            producer.send("t", b"v", callback=lambda *outcome: called.append("second"))
            producer.flush()
            print(called)
    """
    assert printed(script) == "can't start new thread\n['second']\n"


def test_a_log_handler_calls_the_consumer_that_logs() -> None:
    script = """
        import logging
        import fletchlog as fl

        class Owners(logging.Handler):
            def emit(self, record):
                print(record.getMessage(), consumer.owners())

        logging.getLogger("fletchlog").addHandler(Owners())
        broker = fl.Broker.in_memory()
        broker.create_topic("t")
        consumer = fl.legacy.LegacyConsumer(broker, {"group.id": "g", "consumer.id": "a"})
        consumer.create_message_streams({"t": 2})
        consumer.shutdown()
    """
    assert printed(script) == "No broker partitions consumed by consumer thread g_a-1 for topic t {'t': {0: 'g_a-0'}}\n"


def test_a_log_handler_calls_the_broker_for_what_the_producer_thread_logs(tmp_path: Path) -> None:
    script = """
        import logging, resource, signal, sys, threading
        import fletchlog as fl

        class Sizes(logging.Handler):
            def emit(self, record):
                if "append to t-0 failed" in record.getMessage() and not seen.is_set():
                    sizes.append(broker.describe_topic("t").partitions[0].size_bytes)
                    seen.set()

        seen, sizes = threading.Event(), []
        logger = logging.getLogger("fletchlog")
        logger.addHandler(Sizes())
        logger.propagate = False
        broker = fl.Broker(sys.argv[1], create=True)
        broker.create_topic("t")
        producer = fl.Producer(broker, {"delivery.timeout.ms": 300, "request.timeout.ms": 300, "enable.idempotence": False})
        producer.send("t", b"v").result(30)
        # no file may grow any more: every append fails
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
        failed = producer.send("t", bytes(100)).exception(30)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        print(seen.wait(30), len(sizes), isinstance(failed, fl.errors.KafkaError))
        producer.close()
        try:
            broker.close()
        except fl.errors.FencedLogError:
            print("fenced")
    """
    assert printed(script, tmp_path / "log") == "True 1 True\nfenced\n"


def test_a_signal_handler_ends_the_consumer_whose_stream_is_polled() -> None:
    script = """
        import signal
        import fletchlog as fl

        broker = fl.Broker.in_memory()
        broker.create_topic("t")
        consumer = fl.legacy.LegacyConsumer(broker, {"group.id": "g"})
        (stream,) = consumer.create_message_streams({"t": 1})["t"]
        signal.signal(signal.SIGALRM, lambda number, frame: consumer.shutdown())
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        print([record.value for record in stream])
    """
    assert printed(script) == "[]\n"


def test_a_signal_handler_cleans_the_topic_that_is_being_cleaned() -> None:
    script = """
        import signal
        import fletchlog as fl

        broker = fl.Broker.in_memory()
        broker.create_topic("t", config={"cleanup.policy": "compact", "segment.bytes": 1 << 20, "min.cleanable.dirty.ratio": 0.0})
        producer = fl.Producer(broker)
        is_cleaning, cleaned = False, []

        def clean(number, frame):
            # Once: the timer has an interval only until then.
            if is_cleaning and signal.setitimer(signal.ITIMER_REAL, 0)[1]:
                cleaned.append(len(broker.clean_topic("t", force=True)))

        signal.signal(signal.SIGALRM, clean)
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        while not cleaned:
            for number in range(200):
                producer.send("t", bytes(500_000), key=str(number).encode())
            producer.flush()
            is_cleaning = True
            broker.clean_topic("t")
            is_cleaning = False
        print(cleaned)
    """
    assert printed(script) == "[1]\n"


def test_a_listener_that_is_replaced_subscribes_when_it_goes() -> None:
    script = """
        import fletchlog as fl

        class Last:
            def __call__(self, partitions):
                pass

            def __del__(self):
                consumer.subscribe(["u"])

        with fl.Broker.in_memory() as broker, fl.Consumer(broker, {"group.id": "g"}) as consumer:
            consumer.subscribe(["t"], on_assigned=Last())
            consumer.subscribe(["t"])
            print(consumer.subscription())
    """
    assert printed(script) == "['u']\n"


def test_an_exception_goes_on_while_a_handle_that_goes_hands_over_log_records() -> None:
    script = """
        import logging, sys, time
        import fletchlog as fl

        handled = []
        handler = logging.Handler()
        handler.emit = lambda record: handled.append(record.getMessage())
        logging.getLogger("fletchlog").addHandler(handler)
        logging.getLogger("fletchlog").setLevel(logging.INFO)
        broker = fl.Broker.in_memory()
        broker.create_topic("t")
        other = fl.Producer(broker)

        def leave_a_transaction_open():
            producer = fl.Producer(broker, {"transactional.id": "x"})
            producer.init_transactions()
            producer.begin_transaction()
            producer.send("t", b"v").result()
            del producer
            # Its thread logs that it aborts. No other thread of Python's runs before the exception is raised.
            end = time.monotonic() + 0.05
            while time.monotonic() < end:
                pass

        def fail():
            raise ValueError("mine")

        sys.setswitchinterval(60)
        raised = []
        for _ in range(20):
            try:
                # The future goes when the exception has been raised.
                print(other.send("t", b"v"), leave_a_transaction_open(), fail())
            except ValueError as error:
                raised.append(str(error))
        other.close()
        print(raised == ["mine"] * 20, any("transaction open" in message for message in handled))
    """
    assert printed(script) == "True True\n"
