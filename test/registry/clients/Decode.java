import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import io.apicurio.registry.serde.avro.AvroKafkaDeserializer;
import io.apicurio.registry.serde.jsonschema.JsonSchemaKafkaDeserializer;
import io.apicurio.registry.serde.protobuf.ProtobufKafkaDeserializer;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;
import java.util.Map;
import org.apache.avro.generic.GenericRecord;
import org.apache.kafka.common.serialization.Deserializer;

/** Decodes values with Apicurio's deserializers: one line of JSON with topic, format and value in, one out. */
public class Decode {
    private static final ObjectMapper json = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("apicurio.registry.url", args[1] + "/apis/registry/v2");
        config.put("apicurio.registry.headers.enabled", false);
        if (args[0].equals("confluent")) {
            config.put("apicurio.registry.as-confluent", true);
            config.put("apicurio.registry.use-id", "contentId");
        }
        Map<String, Deserializer<?>> decoders = Map.of(
                "avro", new AvroKafkaDeserializer<>(),
                "json_schema", new JsonSchemaKafkaDeserializer<JsonNode>(),
                "protobuf", new ProtobufKafkaDeserializer<Message>());
        decoders.values().forEach(d -> d.configure(config, false));
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode record = json.readTree(line);
            byte[] value = Base64.getDecoder().decode(record.get("value").asText());
            Object decoded;
            try {
                decoded = decoders.get(record.get("format").asText()).deserialize(record.get("topic").asText(), value);
            } catch (RuntimeException e) {
                decoded = Map.of("error", e.toString());
            }
            String text = decoded instanceof Message message
                    ? JsonFormat.printer().preservingProtoFieldNames().print(message)
                    : json.writeValueAsString(plain(decoded));
            System.out.write((text.replace("\n", "") + "\n").getBytes(StandardCharsets.UTF_8));
        }
        System.out.flush();
    }

    private static JsonNode plain(Object value) {
        if (value instanceof GenericRecord record) {
            ObjectNode members = JsonNodeFactory.instance.objectNode();
            record.getSchema().getFields().forEach(f -> members.set(f.name(), plain(record.get(f.pos()))));
            return members;
        }
        if (value instanceof ByteBuffer bytes) {
            byte[] all = new byte[bytes.remaining()];
            bytes.get(all);
            return JsonNodeFactory.instance.objectNode().put("bytes", Base64.getEncoder().encodeToString(all));
        }
        if (value instanceof Iterable<?> items && !(value instanceof JsonNode)) {
            ArrayNode array = JsonNodeFactory.instance.arrayNode();
            items.forEach(item -> array.add(plain(item)));
            return array;
        }
        if (value instanceof Map<?, ?> entries) {
            ObjectNode members = JsonNodeFactory.instance.objectNode();
            entries.forEach((key, member) -> members.set(key.toString(), plain(member)));
            return members;
        }
        return value instanceof CharSequence text ? json.valueToTree(text.toString()) : json.valueToTree(value);
    }
}
