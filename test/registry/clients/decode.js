// Decode values with the registry client of kafkajs: one line of JSON with topic, format and value in, one out.
import readline from "node:readline";
import registry from "@kafkajs/confluent-schema-registry";

// Confluent's converters add keywords of their own, such as connect.type, which ajv refuses by default.
const client = new registry.SchemaRegistry(
  { host: process.argv[2] },
  { [registry.SchemaType.JSON]: { strict: false } },
);

function plain(value) {
  if (Buffer.isBuffer(value)) return { bytes: value.toString("base64") };
  if (Array.isArray(value)) return value.map(plain);
  if (value !== null && typeof value === "object") {
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, plain(member)]));
  }
  return value;
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  const record = JSON.parse(line);
  console.log(JSON.stringify(plain(await client.decode(Buffer.from(record.value, "base64")))));
}
