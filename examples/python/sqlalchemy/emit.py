"""Places an order and emits its event in one transaction, with a SQLAlchemy model of the table."""

import os
import uuid
from typing import Any

from sqlalchemy import create_engine, make_url
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column


class PaymentRefused(Exception):
    pass


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    __table_args__ = {"schema": "public"}

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    customer: Mapped[str]
    total_cents: Mapped[int]


class OutboxEvent(Base):
    """A row to publish. Rows are only added: the relay publishes inserts and nothing else.

    created_at is not mapped: its default applies, and no statement has to read it back.
    """

    __tablename__ = "outbox"
    __table_args__ = {"schema": "public"}

    id: Mapped[uuid.UUID] = mapped_column(primary_key=True, default=uuid.uuid4)
    aggregate_type: Mapped[str]
    aggregate_id: Mapped[str]
    event_type: Mapped[str]
    # none_as_null: None is NULL, which is a tombstone, and not the JSON value null.
    payload: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))
    headers: Mapped[dict[str, Any] | None] = mapped_column(JSONB(none_as_null=True))


def place_order(session, customer, total_cents):
    """Adds an order and its event. The caller's transaction commits both or neither."""
    order = Order(id=uuid.uuid4(), customer=customer, total_cents=total_cents)
    event = OutboxEvent(
        id=uuid.uuid4(),
        aggregate_type="order",
        aggregate_id=str(order.id),
        event_type="OrderPlaced",
        payload={"orderId": str(order.id), "customer": customer, "totalCents": total_cents},
        headers={"schema-version": "1"},
    )
    session.add_all([order, event])
    session.flush()
    return order.id, event.id


url = make_url(os.environ["DATABASE_URL"]).set(drivername="postgresql+psycopg")
engine = create_engine(url)

with Session(engine) as session:
    with session.begin():
        order_id, event_id = place_order(session, "Zoë", 1250)
    print("placed", order_id, "event", event_id)

    try:
        with session.begin():
            order_id, event_id = place_order(session, "Zoë", 1250)
            raise PaymentRefused  # rolls back the order and the event
    except PaymentRefused:
        print("rolled back", order_id, "event", event_id)
