-- What the consumers of the examples write: an invoice for each order.
CREATE TABLE public.invoices (
    order_id    text    NOT NULL,
    total_cents integer NOT NULL
);
