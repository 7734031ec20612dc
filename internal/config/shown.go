package config

import (
	"slices"
	"strings"
)

// shown are the keys whose text is no secret: names, addresses and words. Text of any other key is masked wherever it could be printed, so that a new
// key is covered before anybody has thought of it. Those with a few accepted words need not be here.
var shown = map[string]bool{
	"slot.name": true, "replication.publication": true, "replication.tables": true, "replication.messages": true,

	"router.table.field.event.id": true, "router.table.field.event.key": true, "router.table.field.event.type": true, "router.table.field.event.payload": true,
	"router.table.field.event.timestamp": true, "router.table.field.event.schema.version": true, "router.table.fields.additional.placement": true,
	"router.route.by.field": true, "router.route.topic.regex": true, "router.route.topic.replacement": true, "router.tracing.span.context.field": true,
	"router.tracing.operation.name": true, "router.unavailable.value.placeholder": true, "router.topic.prefix": true, "router.tables": true,
	"router.messages": true, "router.header_id": true, "router.headers_column": true, "router.topic_allow": true,

	"format.key.encoding": true, "format.value.encoding": true,

	"sink.kafka.brokers": true, "sink.kafka.client_id": true, "sink.kafka.version": true, "sink.kafka.tls.ca_file": true, "sink.kafka.tls.cert_file": true,
	"sink.kafka.tls.key_file": true, "sink.kafka.tls.server_name": true, "sink.kafka.sasl.username": true,

	"snapshot.mode": true, "snapshot.order_by": true, "snapshot.topic": true, "relay.heartbeat_topic": true, "relay.dedup": true, "relay.position_topic": true,

	"deadletter.not_routable": true, "deadletter.invalid_topic": true, "deadletter.too_large": true, "deadletter.refused": true,
	"deadletter.malformed": true, "deadletter.unknown_topic": true, "deadletter.topic": true,

	"alerts.severity": true, "alerts.external_url": true, "http.listen": true, "admin.listen": true,
}

// Shown tells whether the value of a key may be printed. Of a URL in it, what may be a password is masked all the same.
func Shown(key string) bool {
	key = unnumbered(key)
	return shown[key] || slices.Contains(withWords, key)
}

// withWords are the keys of accepted.
var withWords = func() (keys []string) {
	for key := range accepted {
		keys = append(keys, key)
	}
	return keys
}()

// private tells whether the key's text must not be printed.
func (k key) private() bool {
	return k.kind == secretText || (k.kind == text || k.kind == list) && !Shown(k.name)
}

// masked is text of the key as it may be printed.
func (k key) masked(text string) string {
	if k.private() {
		return mask
	}
	if at := strings.LastIndex(text, "@"); k.name == "sink.kafka.brokers" && at >= 0 && !strings.Contains(text, "://") { // a broker has no user
		return mask + text[at:]
	}
	if strings.HasSuffix(k.name, fileSuffix) {
		return maskPath(text)
	}
	return MaskURL(text)
}
