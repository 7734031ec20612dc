CREATE TABLE outbox_events (
    id             uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    aggregate_type varchar(100) NOT NULL,
    aggregate_id   varchar(100) NOT NULL,
    event_type     varchar(100),
    payload        jsonb        NOT NULL,
    attempts       int          NOT NULL DEFAULT 0,
    created_at     timestamptz  NOT NULL DEFAULT now(),
    processed_at   timestamptz
);

CREATE INDEX outbox_events_unprocessed ON outbox_events (created_at) WHERE processed_at IS NULL;

CREATE PUBLICATION postrider FOR TABLE outbox_events WITH (publish = 'insert');
