package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"postrider/config"
	"postrider/replication"
	"postrider/router"
	"postrider/sink"
	"postrider/sink/kafka"
	"postrider/slot"
)

// sampleRows of a table are routed by check, for their topics. They are the first that the server finds, not the newest: it costs
// the database nothing.
const sampleRows = 200

// topicSet collects the topics that check asks Kafka for.
type topicSet struct{ names []string }

func (s *topicSet) add(name string) {
	if !slices.Contains(s.names, name) {
		s.names = append(s.names, name)
	}
}

// sample routes some rows of a table that the login may read, and reports one that cannot be routed.
func (s *topicSet) sample(ctx context.Context, conn *pgx.Conn, r *router.Router, rel *replication.Relation) []slot.Finding {
	var readable bool
	err := conn.QueryRow(ctx, `SELECT pg_catalog.has_table_privilege($1::oid, 'SELECT')`, rel.OID).Scan(&readable)
	if err != nil || !readable {
		return nil // the relay needs no SELECT, so this is no finding
	}
	failed := func(severity slot.Severity, err error) []slot.Finding {
		return []slot.Finding{{Severity: severity, Code: "rows", Subject: rel.String(), Observed: err.Error(),
			Required: "rows that can be routed: the first that cannot be halts the relay"}}
	}
	events, err := someRows(ctx, conn, rel)
	if err != nil {
		return failed(slot.SeverityInfo, err)
	}
	for i := range events {
		m, err := r.Route(&events[i])
		if err != nil {
			return failed(slot.SeverityWarning, err)
		}
		if m != nil {
			s.add(m.Topic)
		}
	}
	return nil
}

// someRows reads rows in text format, as the stream would bring them.
func someRows(ctx context.Context, conn *pgx.Conn, rel *replication.Relation) ([]replication.Event, error) {
	sql := fmt.Sprintf("SELECT %s FROM %s LIMIT %d", textColumns(rel), pgx.Identifier{rel.Namespace, rel.Name}.Sanitize(), sampleRows)
	rows, err := conn.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (replication.Event, error) {
		e := replication.Event{Kind: replication.Insert, Relation: rel, Values: make([][]byte, len(rel.Columns))}
		targets := make([]any, len(rel.Columns))
		for i := range targets {
			targets[i] = &e.Values[i]
		}
		return e, row.Scan(targets...)
	})
}

func textColumns(rel *replication.Relation) string {
	var list string
	for i, c := range rel.Columns {
		if i > 0 {
			list += ", "
		}
		list += pgx.Identifier{c.Name}.Sanitize() + "::text"
	}
	return list
}

func checkKafka(ctx context.Context, all config.Config, topics []string) []slot.Finding {
	cfg, heartbeats, asked := all.Sink.Kafka, "", topics
	if all.Relay.HeartbeatInterval > 0 {
		heartbeats = all.HeartbeatTopic()
		asked = append(slices.Clone(topics), heartbeats)
	}
	cluster, err := kafka.Inspect(ctx, cfg, asked)
	if err != nil {
		f := sinkFinding("kafka", "sink.kafka.brokers", err)
		var refused *kafka.OpenError
		if errors.As(err, &refused) {
			f.Observed, f.Fix = fmt.Sprintf("%v: %s", refused.Class, refused.Text), refused.Hint
		}
		return []slot.Finding{f}
	}
	findings := []slot.Finding{{Severity: slot.SeverityOK, Code: "kafka", Observed: fmt.Sprintf("version %s, %d brokers", cluster.Version, len(cluster.Brokers))}}
	for _, b := range cluster.Brokers {
		if b.Err != nil {
			f := sinkFinding("broker", fmt.Sprintf("%d at %s", b.ID, b.Address), b.Err)
			f.Required = "every broker reachable under its advertised address: it leads partitions"
			f.Fix = "correct the broker's advertised.listeners, name resolution or firewall"
			findings = append(findings, f)
		}
	}
	for _, t := range cluster.Topics {
		of := topicFindings(cfg, t)
		if t.Name == heartbeats && of[0].Severity == slot.SeverityError {
			of[0].Severity, of[0].WAL = slot.SeverityWarning, ""
			of[0].Required = "an existing topic for relay.heartbeat_interval, or sink.kafka.topics.create; rows are relayed without it"
		}
		findings = append(findings, of...)
	}
	if len(topics) == 0 {
		findings = append(findings, slot.Finding{Severity: slot.SeverityInfo, Code: "topics", Observed: "none looked at: no row was read",
			Required: "existing topics", Fix: "name them: postrider check --topic NAME"})
	}
	return findings
}

func sinkFinding(code, subject string, err error) slot.Finding {
	f := slot.Finding{Severity: slot.SeverityError, Code: code, Subject: subject, Observed: err.Error(), Class: slot.ClassUnreachable, Fix: explain(err).next}
	switch {
	case errors.Is(err, sink.ErrAuthentication), errors.Is(err, sink.ErrPermission):
		f.Class = slot.ClassPermission
	case errors.Is(err, sink.ErrTLS), errors.Is(err, sink.ErrUnknownTopic), errors.Is(err, sink.ErrInvalidTopic):
		f.Class = slot.ClassConfiguration
	}
	return f
}

func topicFindings(cfg kafka.Config, t kafka.TopicReport) []slot.Finding {
	switch {
	case errors.Is(t.Err, sink.ErrUnknownTopic) && cfg.Topics.Create:
		return []slot.Finding{{Severity: slot.SeverityInfo, Code: "topic", Subject: t.Name, Observed: "does not exist; the relay creates it"}}
	case errors.Is(t.Err, sink.ErrUnknownTopic):
		f := sinkFinding("topic", t.Name, t.Err)
		f.Observed, f.Required = "does not exist", "an existing topic, or sink.kafka.topics.create"
		f.WAL = "the first row for it stops the relay there: the slot keeps what comes after, more with every write"
		f.Fix = kafka.CreateTopicCommand(cfg, t.Name)
		return []slot.Finding{f}
	case t.Err != nil:
		return []slot.Finding{sinkFinding("topic", t.Name, t.Err)}
	}
	findings := []slot.Finding{{Severity: slot.SeverityOK, Code: "topic", Subject: t.Name,
		Observed: fmt.Sprintf("%d partitions, replication factor %d", t.Partitions, t.ReplicationFactor)}}
	warn := func(observed, required, fix string) {
		findings = append(findings, slot.Finding{Severity: slot.SeverityWarning, Code: "topic", Subject: t.Name, Observed: observed, Required: required, Fix: fix})
	}
	alter := func(setting string) string {
		return fmt.Sprintf("kafka-configs.sh --bootstrap-server %s --alter --topic %s --add-config %s", cfg.Brokers[0], t.Name, setting)
	}
	if len(t.Leaderless) > 0 {
		warn(fmt.Sprintf("partitions %v have no leader", t.Leaderless), "a leader: nobody can write to them just now", "start the missing brokers")
	}
	if t.ConfigErr != nil {
		return findings
	}
	if t.MaxMessageBytes < cfg.MaxMessageBytes {
		warn(fmt.Sprintf("max.message.bytes %d", t.MaxMessageBytes), fmt.Sprintf("at least sink.kafka.max_message_bytes, %d", cfg.MaxMessageBytes),
			alter(fmt.Sprintf("max.message.bytes=%d", cfg.MaxMessageBytes))+", or set sink.kafka.max_message_bytes lower")
	}
	if t.UncleanElection {
		warn("unclean.leader.election.enable is on", "off: an acknowledged message can be lost", alter("unclean.leader.election.enable=false"))
	}
	if t.ReplicationFactor > 1 && t.MinInsync < 2 {
		warn(fmt.Sprintf("min.insync.replicas %d", t.MinInsync), "2: with one, a message that a single broker holds counts as delivered", alter("min.insync.replicas=2"))
	}
	return findings
}
