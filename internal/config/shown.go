package config

import (
	"slices"
	"strings"
)

// shown are the keys whose text is no secret: names, addresses and words. The text of every other
// key is masked where it could be printed, so that a new key is masked by default. Keys of
// accepted are shown, too.
var shown = strings.Fields(`
	slot.name replication.publication replication.tables replication.messages

	router.table.field.event.id router.table.field.event.key router.table.field.event.type
	router.table.field.event.payload router.table.field.event.timestamp
	router.table.field.event.schema.version router.table.fields.additional.placement
	router.route.by.field router.route.topic.regex router.route.topic.replacement
	router.tracing.span.context.field router.tracing.operation.name
	router.unavailable.value.placeholder router.topic.prefix router.tables router.messages
	router.header_id router.headers_column router.topic_allow

	format.key.encoding format.value.encoding

	sink.kafka.brokers sink.kafka.client_id sink.kafka.version sink.kafka.tls.ca_file
	sink.kafka.tls.cert_file sink.kafka.tls.key_file sink.kafka.tls.server_name
	sink.kafka.sasl.username

	snapshot.mode snapshot.order_by snapshot.topic
	relay.heartbeat_topic relay.dedup relay.position_topic

	deadletter.not_routable deadletter.invalid_topic deadletter.too_large deadletter.refused
	deadletter.malformed deadletter.unknown_topic deadletter.topic

	alerts.severity alerts.external_url http.listen admin.listen`)

// Shown reports whether the value of a key may be printed. A password in a URL is masked
// nevertheless.
func Shown(key string) bool {
	key = unnumbered(key)
	return slices.Contains(shown, key) || accepted[key] != nil
}

// private reports whether the key's text must not be printed.
func (k key) private() bool {
	return k.kind == secretText || (k.kind == text || k.kind == list) && !Shown(k.name)
}

// masked is text of the key as it may be printed.
func (k key) masked(text string) string {
	at := strings.LastIndex(text, "@")
	switch {
	case k.private():
		return mask
	case k.name == "sink.kafka.brokers" && at >= 0 && !strings.Contains(text, "://"):
		// A broker has no user.
		return mask + text[at:]
	case strings.HasSuffix(k.name, fileSuffix):
		return maskPath(text)
	}
	return MaskURL(text)
}
