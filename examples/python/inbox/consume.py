"""Makes an invoice for each order once, with psycopg 3, confluent-kafka and inbox_mark."""

import json
import os
import re
import signal
from datetime import datetime, timezone

import psycopg
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaException

CONSUMER = "billing"  # of the inbox: another name processes all events again


def event_id(message):
    found = [value.decode() for name, value in message.headers() or [] if name == "id"]
    where = f"{message.topic()}, partition {message.partition()}, offset {message.offset()}"
    if not found:
        raise ValueError(f"{where}: no header id")
    if re.fullmatch(r"-?\d+", found[0]):
        raise ValueError(f"{where}: id {found[0]} is a number, which another table has too")
    return found[0]


def event_time(message):
    kind, milliseconds = message.timestamp()
    if kind == TIMESTAMP_NOT_AVAILABLE:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc)


def process(conn, message):
    """Marks the event and makes the invoice in one transaction, or does nothing for a duplicate."""
    with conn.transaction():
        (fresh,) = conn.execute(
            "SELECT public.inbox_mark(%s::text, %s::text, %s::timestamptz)",
            (CONSUMER, event_id(message), event_time(message)),
        ).fetchone()
        if fresh:
            order = json.loads(message.value())
            conn.execute(
                "INSERT INTO public.invoices (order_id, total_cents) VALUES (%s, %s)",
                (order["orderId"], order["totalCents"]),
            )


stopping = False


def stop(*_):
    global stopping
    stopping = True


signal.signal(signal.SIGTERM, stop)
signal.signal(signal.SIGINT, stop)

consumer = Consumer(
    {
        "bootstrap.servers": os.environ["KAFKA_BROKERS"],
        "group.id": CONSUMER,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,  # offsets are committed after the transaction
        "isolation.level": "read_committed",
    }
)
consumer.subscribe(["outbox.event.order"])
try:
    # autocommit: the block of conn.transaction() is then a whole transaction.
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as conn:
        while not stopping:
            message = consumer.poll(0.5)
            if message is None:
                continue
            if message.error():
                if message.error().retriable():
                    continue
                raise KafkaException(message.error())
            process(conn, message)  # an error ends the program: the offset stays before the event
            consumer.commit(message=message)
finally:
    consumer.close()
