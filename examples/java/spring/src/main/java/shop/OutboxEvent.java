package shop;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.util.Map;
import java.util.UUID;
import org.hibernate.annotations.Immutable;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.type.SqlTypes;

/**
 * A row to publish. It is immutable: the relay publishes inserts and nothing else. created_at is
 * not mapped: its default applies.
 */
@Entity
@Immutable
@Table(name = "outbox", schema = "public")
class OutboxEvent {
    @Id
    private UUID id = UUID.randomUUID();

    @Column(name = "aggregate_type")
    private String aggregateType;

    @Column(name = "aggregate_id")
    private String aggregateId;

    @Column(name = "event_type")
    private String eventType;

    @JdbcTypeCode(SqlTypes.JSON)
    private Map<String, Object> payload;

    @JdbcTypeCode(SqlTypes.JSON)
    private Map<String, String> headers;

    protected OutboxEvent() {} // for JPA

    OutboxEvent(String aggregateType, String aggregateId, String eventType,
            Map<String, Object> payload, Map<String, String> headers) {
        this.aggregateType = aggregateType;
        this.aggregateId = aggregateId;
        this.eventType = eventType;
        this.payload = payload;
        this.headers = headers;
    }

    UUID id() {
        return id;
    }
}
