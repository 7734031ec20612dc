package shop;

import java.util.List;
import java.util.UUID;
import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.transaction.support.TransactionOperations;

/** Places orders and emits their events, first with JdbcTemplate, then with JPA. */
@SpringBootApplication
public class EmitApplication {
    record Placed(UUID orderId, UUID eventId) {
        @Override
        public String toString() {
            return orderId + " event " + eventId;
        }
    }

    interface Orders {
        /** Inserts an order and its event, in the transaction around it or in one of its own. */
        Placed place(String customer, int totalCents);
    }

    static class PaymentRefused extends RuntimeException {
        final Placed order;

        PaymentRefused(Placed order) {
            this.order = order;
        }
    }

    public static void main(String[] args) {
        SpringApplication.run(EmitApplication.class, args).close();
    }

    @Bean
    CommandLineRunner emit(
            OrdersWithJdbcTemplate jdbc, OrdersWithJpa jpa, TransactionOperations transaction) {
        return args -> {
            for (var orders : List.<Orders>of(jdbc, jpa)) {
                System.out.println("placed " + orders.place("Zoë", 1250));

                try {
                    transaction.executeWithoutResult(status -> {
                        throw new PaymentRefused(orders.place("Zoë", 1250));
                    });
                } catch (PaymentRefused e) { // which has rolled back the order and the event
                    System.out.println("rolled back " + e.order);
                }
            }
        };
    }
}
