"""Decode values with Confluent's Python client: one line of JSON with topic, format and value in, one out."""
import base64
import datetime
import decimal
import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory


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


def protobuf(record):
    """The deserializer reads with a class, which is made of the registered file."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(record["files"])).file:
        pool.Add(file)
    message = message_factory.GetMessageClass(pool.FindMessageTypeByName(record["message"]))
    return ProtobufDeserializer(message, {"use.deprecated.format": False})


client = SchemaRegistryClient({"url": sys.argv[1]})
decoders = {
    "avro": AvroDeserializer(client),
    "json_schema": JSONDeserializer(None, schema_registry_client=client),
}
for line in sys.stdin:
    record = json.loads(line)
    context = SerializationContext(record["topic"], MessageField.VALUE)
    if record["format"] == "protobuf":
        message = protobuf(record)(base64.b64decode(record["value"]), context)
        print(json.dumps(json_format.MessageToDict(message, preserving_proto_field_name=True)), flush=True)
        continue
    value = decoders[record["format"]](base64.b64decode(record["value"]), context)
    print(json.dumps(plain(value)), flush=True)
