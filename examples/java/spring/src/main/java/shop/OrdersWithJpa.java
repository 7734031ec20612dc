package shop;

import java.util.Map;
import jakarta.persistence.EntityManager;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;
import shop.EmitApplication.Orders;
import shop.EmitApplication.Placed;

/** Emits by persisting an entity of the outbox table. */
@Service
class OrdersWithJpa implements Orders {
    private final EntityManager entities;

    OrdersWithJpa(EntityManager entities) {
        this.entities = entities;
    }

    @Override
    @Transactional
    public Placed place(String customer, int totalCents) {
        var order = new Order(customer, totalCents);
        entities.persist(order);
        var event = new OutboxEvent("order", order.id().toString(), "OrderPlaced",
                Map.of("orderId", order.id(), "customer", customer, "totalCents", totalCents),
                Map.of("schema-version", "1"));
        entities.persist(event);
        return new Placed(order.id(), event.id());
    }
}
