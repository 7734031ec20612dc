package shop;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.util.UUID;

@Entity
@Table(name = "orders", schema = "public")
class Order {
    @Id
    private UUID id = UUID.randomUUID();

    private String customer;

    @Column(name = "total_cents")
    private int totalCents;

    protected Order() {} // for JPA

    Order(String customer, int totalCents) {
        this.customer = customer;
        this.totalCents = totalCents;
    }

    UUID id() {
        return id;
    }
}
