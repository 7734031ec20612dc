package router

import (
	"postrider/replication"
)

// messagePlan reads a logical message as a row.
func (r *Router) messagePlan(ev *replication.Event) (*plan, [][]byte, error) {
	return nil, nil, fault(ReasonInvalidMessage, "", "not yet")
}
