"""Decode values with Confluent's Python client: one line of JSON with topic, format and value in, one out."""
import base64
import datetime
import decimal
import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


def plain(value):
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, decimal.Decimal):
        return {"decimal": str(value)}
    if isinstance(value, datetime.datetime):
        return {"timestamp": value.astimezone(datetime.timezone.utc).isoformat()}
    if isinstance(value, datetime.date):
        return {"date": value.isoformat()}
    if isinstance(value, datetime.time):
        return {"time": value.isoformat()}
    if isinstance(value, dict):
        return {name: plain(member) for name, member in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


client = SchemaRegistryClient({"url": sys.argv[1]})
decoders = {
    "avro": AvroDeserializer(client),
    "json_schema": JSONDeserializer(None, schema_registry_client=client),
}
for line in sys.stdin:
    record = json.loads(line)
    context = SerializationContext(record["topic"], MessageField.VALUE)
    value = decoders[record["format"]](base64.b64decode(record["value"]), context)
    print(json.dumps(plain(value)), flush=True)
