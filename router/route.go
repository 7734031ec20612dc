package router

import (
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/router/connect"
	"github.com/postrider/postrider/sink"
)

// route makes the message of a row. Its order decides which of several faults is reported: that of
// Debezium.
func (r *rule) route(m *sink.Message, p *plan, ev *replication.Event,
	values [][]byte) (err error) {
	if ev.Kind == replication.Update {
		if values, err = r.available(p, values); err != nil {
			return err
		}
	}
	if m.Timestamp, err = recordTime(p.timestamp, values, ev.Time, r.cfg.StrictTypes); err != nil {
		return err
	}
	headers := m.Headers[:0]
	if cap(headers) < p.headerCount {
		headers = make([]sink.Header, 0, p.headerCount)
	}
	if m.Headers, err = r.makeHeaders(headers, p, ev, values); err != nil {
		return err
	}
	if m.Partition, err = partitionOf(p.partition, values); err != nil {
		return err
	}
	if r.keys.Registered != nil || r.values.Registered != nil { // subjects are named after the topic
		if m.Topic, err = p.topic(values); err != nil {
			return err
		}
		r.keys.Topic, r.values.Topic = m.Topic, m.Topic
	}
	if m.Value, err = r.makeValue(p, values); err != nil {
		return err
	}
	if m.Key, err = r.makeKey(p, values, m.Partition); err != nil {
		return err
	}
	if m.Topic, err = p.topic(values); err != nil {
		return err
	}
	if r.events != nil {
		if err = r.events.write(m, p, values); err != nil {
			return err
		}
	}
	if r.cfg.PositionHeaders {
		lsn, index := r.positions.of(ev)
		m.Headers = append(m.Headers, sink.Header{Key: HeaderLSN, Value: lsn},
			sink.Header{Key: HeaderIndex, Value: index})
	}
	m.Origin = sink.Origin{LSN: ev.LSN, Index: ev.Index, CommitTime: ev.Time, Relation: p.relation,
		// good for as long as the bytes of the event: until its message is delivered
		EventID: connect.Alias(values[p.id.Index])}
	if ev.Relation != nil {
		m.Origin.OID = ev.Relation.OID
	}
	return nil
}

// topic is where a row goes.
func (p *plan) topic(values [][]byte) (string, error) {
	routed, err := p.route.Text(values[p.route.Index])
	if err != nil {
		return "", err
	}
	if routed == nil {
		return "", fault(ReasonNullRoute,
			"have the application write it, and make the column NOT NULL",
			"column %s, which decides the topic, is NULL", p.route.Name)
	}
	return p.rule.topics.of(routed)
}

// makeKey encodes the key. With neither a key nor a partition the rows of one aggregate would go
// anywhere and lose their order.
func (r *rule) makeKey(p *plan, values [][]byte, partition int32) ([]byte, error) {
	raw := values[p.key.Index]
	if raw == nil && p.key.Def == nil && r.cfg.NullKey == "refuse" && partition == sink.ByKey {
		return nil, fault(ReasonNullKey, "have the application write it, or set router.null_key "+
			"to \"publish\" to give up the order of such rows",
			"column %s, which is the key, is NULL", p.key.Name)
	}
	return r.keys.Cell(p.key, raw)
}

func partitionOf(c *connect.Column, values [][]byte) (int32, error) {
	if c == nil || values[c.Index] == nil {
		return sink.ByKey, nil
	}
	raw := values[c.Index]
	v, err := c.Value(raw)
	if err != nil && !c.Number { // a number that is too large is no partition either
		return 0, err
	}
	if n, ok := v.(int64); ok && err == nil && n >= 0 && n <= 1<<31-1 {
		return int32(n), nil
	}
	return 0, fault(ReasonInvalidPartition,
		"write a partition that the topic has, or NULL to have the key decide",
		"column %s: %s is no partition", c.Name, raw)
}
