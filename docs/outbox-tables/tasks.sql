CREATE TYPE task_type AS ENUM ('SEND_EMAIL', 'BOOK_COURIER');
CREATE TYPE task_state AS ENUM ('WAITING', 'RUNNING', 'DONE', 'FAILED');

CREATE TABLE tasks (
    id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    task_type     task_type   NOT NULL,
    state         task_state  NOT NULL DEFAULT 'WAITING',
    payload       jsonb,
    retry_count   int         NOT NULL DEFAULT 0,
    error_message text,
    execute_at    timestamptz,
    heartbeat_at  timestamptz,
    created_at    timestamptz NOT NULL DEFAULT now(),
    updated_at    timestamptz NOT NULL DEFAULT now()
);

CREATE PUBLICATION postrider FOR TABLE tasks WITH (publish = 'insert');
