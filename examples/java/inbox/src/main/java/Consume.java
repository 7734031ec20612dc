import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.SQLException;
import java.time.Duration;
import java.time.Instant;
import java.time.ZoneOffset;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Makes an invoice for each order once, with JDBC, kafka-clients and inbox_mark. */
public class Consume {
    /** Of the inbox: another name processes all events again. */
    static final String CONSUMER = "billing";

    static final ObjectMapper JSON = new ObjectMapper();

    /** Marks the event and makes the invoice in one transaction, or does nothing for a duplicate. */
    static void process(Connection connection, ConsumerRecord<byte[], byte[]> record)
            throws SQLException, IOException {
        var id = eventId(record);
        try (var mark = connection.prepareStatement(
                "SELECT public.inbox_mark(?::text, ?::text, ?::timestamptz)")) {
            mark.setString(1, CONSUMER);
            mark.setString(2, id);
            mark.setObject(3, Instant.ofEpochMilli(record.timestamp()).atOffset(ZoneOffset.UTC));
            try (var row = mark.executeQuery()) {
                row.next();
                if (row.getBoolean(1)) {
                    makeInvoice(connection, record.value());
                }
            }
        }
        connection.commit();
    }

    static String eventId(ConsumerRecord<byte[], byte[]> record) {
        var where = record.topic() + ", partition " + record.partition() + ", offset " + record.offset();
        var headers = record.headers().headers("id").iterator();
        if (!headers.hasNext()) {
            throw new IllegalStateException(where + ": no header id");
        }
        var id = new String(headers.next().value(), StandardCharsets.UTF_8);
        if (id.matches("-?\\d+")) {
            throw new IllegalStateException(where + ": id " + id + " is a number, which another table has too");
        }
        return id;
    }

    static void makeInvoice(Connection connection, byte[] value) throws SQLException, IOException {
        var order = JSON.readTree(value);
        try (var insert = connection.prepareStatement(
                "INSERT INTO public.invoices (order_id, total_cents) VALUES (?, ?)")) {
            insert.setString(1, order.required("orderId").asText());
            insert.setInt(2, order.required("totalCents").asInt());
            insert.executeUpdate();
        }
    }

    public static void main(String[] args) throws Exception {
        var consumer = new KafkaConsumer<>(Map.of(
                "bootstrap.servers", System.getenv("KAFKA_BROKERS"),
                "group.id", CONSUMER,
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", // offsets are committed after the transactions
                "isolation.level", "read_committed"),
                new ByteArrayDeserializer(), new ByteArrayDeserializer());
        var main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            consumer.wakeup(); // has poll and commitSync throw
            try {
                main.join();
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }));
        // An error ends the program, and close rolls back: the offset stays before the event.
        try (consumer; var connection = DriverManager.getConnection(System.getenv("JDBC_DATABASE_URL"))) {
            connection.setAutoCommit(false);
            consumer.subscribe(List.of("outbox.event.order"));
            while (true) {
                for (var record : consumer.poll(Duration.ofMillis(500))) {
                    process(connection, record);
                    consumer.commitSync(Map.of(new TopicPartition(record.topic(), record.partition()),
                            new OffsetAndMetadata(record.offset() + 1)));
                }
            }
        } catch (WakeupException stopped) {
            // The inbox recognises what is delivered again.
        }
    }
}
