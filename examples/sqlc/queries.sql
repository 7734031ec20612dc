-- name: InsertOrder :one
INSERT INTO public.orders (id, customer, total_cents)
VALUES (gen_random_uuid(), $1, $2)
RETURNING id;

-- name: EmitEvent :one
SELECT public.outbox_emit(@aggregate_type, @aggregate_id, @event_type, @payload, @headers);
