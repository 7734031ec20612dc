package check

import (
	"slices"
)

// checkGroup is a part of the output of check, and of docs/CHECK.md.
type checkGroup struct {
	name  string
	codes []string
}

// checkGroups are in the order of the output. A code in none of them belongs to Slot, as those of
// conditions do.
var checkGroups = []checkGroup{
	{"This process", []string{
		"configuration", "memory", "file_descriptors", "http_listen", "admin_listen",
		"admin_token",
		"alerts_command", "alerts_webhook",
	}},
	{"PostgreSQL", []string{
		"connection", "pooler", "tls", "server_version", "wal_level", "primary", "role",
		"role_connection_limit", "role_valid_until", "max_wal_senders", "replication_connection",
		"wal_sender_timeout", "physical_replication", "output_plugin_libraries", "clock",
	}},
	{"Publication and tables", []string{
		"publication", "publication_tables", "publication_publish", "emit_message", "table",
		"partitions", "row_filter", "column_list", "columns", "columns_nullable",
		"generated_columns", "primary_key", "replica_identity", "snapshot", "rows", "outbox_size",
		"outbox_dead_rows", "outbox_autovacuum",
	}},
	{"Slot", []string{
		"slot", "slot_position", "slot_holder", "slot_failover", "publication_before_slot",
		"max_replication_slots", "max_slot_wal_keep_size", "idle_replication_slot_timeout",
		"synchronous_standby_names", "synchronized_standby_slots", "standby_copies",
		"hot_standby_feedback", "transactions", "catalog_xmin", "monitor_rights",
	}},
	{"Kafka", []string{
		"kafka", "broker", "kafka_tls", "kafka_acl", "producer_id", "kafka_transactions", "topics",
		"topic", "topic_permission", "topic_leader", "topic_replicas", "topic_size",
		"topic_timestamp", "topic_cleanup", "topic_compression", "snapshot_topic",
		"position_topic", "message_size",
	}},
}

func groupOf(code string) string {
	for _, g := range checkGroups {
		if slices.Contains(g.codes, code) {
			return g.name
		}
	}
	return "Slot"
}

type groupedFindings struct {
	name     string
	findings []Finding
}

// groups sorts findings by group and leaves their order within one.
func groups(findings []Finding) []groupedFindings {
	var sorted []groupedFindings
	for _, g := range checkGroups {
		own := groupedFindings{name: g.name}
		for _, f := range findings {
			if groupOf(f.Code) == g.name {
				own.findings = append(own.findings, f)
			}
		}
		if len(own.findings) > 0 {
			sorted = append(sorted, own)
		}
	}
	return sorted
}
