package shop;

import java.util.UUID;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;
import shop.EmitApplication.Orders;
import shop.EmitApplication.Placed;

/** Emits through the SQL function outbox_emit. */
@Service
class OrdersWithJdbcTemplate implements Orders {
    private final JdbcTemplate jdbc;

    OrdersWithJdbcTemplate(JdbcTemplate jdbc) {
        this.jdbc = jdbc;
    }

    @Override
    @Transactional
    public Placed place(String customer, int totalCents) {
        var orderId = UUID.randomUUID();
        jdbc.update("INSERT INTO public.orders (id, customer, total_cents) VALUES (?, ?, ?)",
                orderId, customer, totalCents);
        var eventId = jdbc.queryForObject("""
                SELECT public.outbox_emit('order', ?, 'OrderPlaced',
                    jsonb_build_object(
                        'orderId', ?::text, 'customer', ?::text, 'totalCents', ?::int),
                    ?::jsonb)""",
                UUID.class, orderId.toString(),
                orderId.toString(), customer, totalCents,
                "{\"schema-version\": \"1\"}");
        return new Placed(orderId, eventId);
    }
}
