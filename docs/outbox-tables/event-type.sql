CREATE TABLE outbox_messages (
    id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_type text        NOT NULL,
    aggregate_id   text        NOT NULL,
    event_type     text        NOT NULL,
    payload        jsonb       NOT NULL,
    headers        jsonb,
    status         text        NOT NULL DEFAULT 'PENDING',
    retry_count    int         NOT NULL DEFAULT 0,
    next_retry_at  timestamptz,
    created_at     timestamptz NOT NULL DEFAULT now(),
    published_at   timestamptz,
    last_error     text
);

CREATE PUBLICATION postrider FOR TABLE outbox_messages WITH (publish = 'insert');
