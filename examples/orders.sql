-- The business table of the examples. Run with psql as its owner:
--
--   psql -v ON_ERROR_STOP=1 -f examples/orders.sql

CREATE TABLE IF NOT EXISTS public.orders (
    id          uuid    PRIMARY KEY,
    customer    text    NOT NULL,
    total_cents integer NOT NULL
);
