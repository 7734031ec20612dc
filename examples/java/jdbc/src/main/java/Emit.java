import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.util.UUID;

/** Places an order and emits its event in one transaction, with JDBC and outbox_emit. */
public class Emit {
    record Placed(UUID orderId, UUID eventId) {
        @Override
        public String toString() {
            return orderId + " event " + eventId;
        }
    }

    static class PaymentRefused extends Exception {
        final Placed order;

        PaymentRefused(Placed order) {
            this.order = order;
        }
    }

    /** Inserts an order and its event. The caller's transaction commits both or neither. */
    static Placed placeOrder(Connection connection, String customer, int totalCents)
            throws SQLException {
        var orderId = UUID.randomUUID();
        try (var insert = connection.prepareStatement(
                "INSERT INTO public.orders (id, customer, total_cents) VALUES (?, ?, ?)")) {
            insert.setObject(1, orderId);
            insert.setString(2, customer);
            insert.setInt(3, totalCents);
            insert.executeUpdate();
        }
        // PostgreSQL builds the JSON here. A service with a JSON library passes text as ?::jsonb.
        try (var emit = connection.prepareStatement("""
                SELECT public.outbox_emit('order', ?, 'OrderPlaced',
                    jsonb_build_object(
                        'orderId', ?::text, 'customer', ?::text, 'totalCents', ?::int),
                    ?::jsonb)""")) {
            emit.setString(1, orderId.toString());
            emit.setString(2, orderId.toString());
            emit.setString(3, customer);
            emit.setInt(4, totalCents);
            emit.setString(5, "{\"schema-version\": \"1\"}");
            try (var row = emit.executeQuery()) {
                row.next();
                return new Placed(orderId, row.getObject(1, UUID.class));
            }
        }
    }

    public static void main(String[] args) throws SQLException {
        try (var connection = DriverManager.getConnection(System.getenv("JDBC_DATABASE_URL"))) {
            connection.setAutoCommit(false);

            var placed = placeOrder(connection, "Zoë", 1250);
            connection.commit();
            System.out.println("placed " + placed);

            try {
                throw new PaymentRefused(placeOrder(connection, "Zoë", 1250));
            } catch (PaymentRefused e) {
                connection.rollback(); // the order and the event
                System.out.println("rolled back " + e.order);
            }
        }
    }
}
