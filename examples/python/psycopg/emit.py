"""Places an order and emits its event in one transaction, with psycopg 3 and outbox_emit."""

import os
import uuid

import psycopg
from psycopg.types.json import Jsonb


class PaymentRefused(Exception):
    pass


def place_order(conn, customer, total_cents):
    """Inserts an order and its event. The caller's transaction commits both or neither."""
    order_id = uuid.uuid4()
    conn.execute(
        "INSERT INTO public.orders (id, customer, total_cents) VALUES (%s, %s, %s)",
        (order_id, customer, total_cents),
    )
    event = {"orderId": str(order_id), "customer": customer, "totalCents": total_cents}
    row = conn.execute(
        "SELECT public.outbox_emit('order', %s, 'OrderPlaced', %s, %s)",
        (str(order_id), Jsonb(event), Jsonb({"schema-version": "1"})),
    ).fetchone()
    return order_id, row[0]


with psycopg.connect(os.environ["DATABASE_URL"]) as conn:
    with conn.transaction():
        order_id, event_id = place_order(conn, "Zoë", 1250)
    print("placed", order_id, "event", event_id)

    try:
        with conn.transaction():
            order_id, event_id = place_order(conn, "Zoë", 1250)
            raise PaymentRefused  # rolls back the order and the event
    except PaymentRefused:
        print("rolled back", order_id, "event", event_id)
