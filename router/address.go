package router

import (
	"github.com/postrider/postrider/replication"
)

// Address returns the topic and key of an event that Route has refused. False: one of them is what
// is wrong, or the event has no key.
func (r *Router) Address(ev *replication.Event) (topic string, key []byte, ok bool) {
	var p *plan
	values := ev.Values
	switch ev.Kind {
	case replication.Insert, replication.Update:
		p = r.planOf(ev)
		if p.err != nil || p.rule == nil || len(values) != len(p.rel.Columns) {
			return "", nil, false
		}
	case replication.Message:
		one := r.prefixes[ev.Prefix]
		if one == nil {
			one = r.prefixes[AnyPrefix]
		}
		if one == nil {
			return "", nil, false
		}
		var err error
		if p, values, err = one.messagePlan(ev); err != nil {
			return "", nil, false
		}
		p.rule = one
	default:
		return "", nil, false
	}
	if topic, err := p.topic(values); err == nil {
		key, err := p.rule.makeKey(p, values, 0)
		return topic, key, err == nil && key != nil
	}
	return "", nil, false
}
