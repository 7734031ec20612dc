CREATE TABLE "OutboxEvent" (
    "id"            text         PRIMARY KEY,
    "aggregateType" text         NOT NULL,
    "aggregateId"   text         NOT NULL,
    "eventType"     text         NOT NULL,
    "payload"       jsonb        NOT NULL,
    "status"        text         NOT NULL DEFAULT 'PENDING',
    "createdAt"     timestamp(3) NOT NULL DEFAULT CURRENT_TIMESTAMP
);

CREATE PUBLICATION postrider FOR TABLE "OutboxEvent" WITH (publish = 'insert');
