package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
)

// standby is a server that receives the WAL, as far as the primary sees it.
type standby struct {
	Application string // of its walreceiver
	Slot        string // physical slot that it uses; empty: none
	Feedback    bool   // hot_standby_feedback: it says what it still needs
}

func (s standby) String() string {
	switch {
	case s.Slot == "":
		return s.Application
	case s.Application == "" || s.Application == "walreceiver" || s.Application == s.Slot:
		return s.Slot
	}
	return s.Application + " (slot " + s.Slot + ")"
}

// Tools that receive WAL, too, and cannot be promoted.
const selectStandbys = `
SELECT coalesce(r.application_name, ''), coalesce(s.slot_name::text, ''), coalesce(s.xmin, r.backend_xmin) IS NOT NULL
FROM pg_catalog.pg_stat_replication r LEFT JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid
WHERE coalesce(s.slot_type, 'physical') = 'physical' AND coalesce(r.application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal')
  AND coalesce(r.state, 'streaming') IN ('streaming', 'catchup')
ORDER BY 1, 2`

// failover looks at what becomes of the slot when a standby is promoted.
func (c *serverCheck) failover(ctx context.Context) error {
	if c.Need.Slot.Failover && postgres.Major(c.conn) < 17 {
		c.add(Finding{
			Severity: SeverityError, Code: "slot_failover", Subject: c.Need.Slot.Name,
			Class:    ClassConfiguration,
			Observed: fmt.Sprintf("PostgreSQL %d", postgres.Major(c.conn)),
			Required: "PostgreSQL 17 for slot.failover", Fix: "set slot.failover = false",
		})
		return nil
	}
	if c.status == nil {
		return nil
	}
	rows, err := c.conn.Query(ctx, selectStandbys)
	if err != nil {
		return fmt.Errorf("read standbys: %w", postgres.Error(err))
	}
	standbys, err := pgx.CollectRows(rows, pgx.RowToStructByPos[standby])
	if err != nil {
		return fmt.Errorf("read standbys: %w", postgres.Error(err))
	}
	if !c.status.Failover {
		c.notFailover(standbys)
		return nil
	}
	c.add(okFinding("slot_failover", c.status.Name, "standbys may keep a copy"))
	c.copies(standbys)
	return c.gate(ctx, standbys)
}

// notFailover: the slot stays behind when a standby takes over.
func (c *serverCheck) notFailover(standbys []standby) {
	if len(standbys) == 0 && !c.Need.Slot.Failover {
		return
	}
	f := Finding{Severity: SeverityInfo, Code: "slot_failover", Subject: c.status.Name,
		Observed: "standbys keep no copy of the slot: " + names(standbys)}
	f.Required = "a copy, if the database fails over to a standby: there the slot does not exist, " +
		"and rows written until a new one is made are not sent"
	if c.Need.Slot.Failover {
		f.Severity, f.Observed, f.Required = SeverityWarning, "the slot was made without failover",
			"failover, since slot.failover is true: it counts only when the slot is made"
	}
	f.Fix = "turn it on while the relay is stopped, from 17 on:\npsql 'dbname=" +
		c.conn.Config().Database + " replication=database' -c '" + alterFailover(c.status.Name) +
		"'\nand set slot.failover = true; how to prepare the standbys: docs/SLOTS.md, \"Failover of " +
		"the database\""
	if postgres.Major(c.conn) < 17 {
		f.Fix = "before 17 the server's high-availability tool has to copy slots: Patroni's permanent " +
			"slots, the extension pg_failover_slots"
	}
	c.add(f)
}

func alterFailover(slot string) string {
	return `ALTER_REPLICATION_SLOT "` + slot + `" ( FAILOVER true );`
}

func names(standbys []standby) string {
	list := make([]string, len(standbys))
	for i, s := range standbys {
		list[i] = s.String()
	}
	return strings.Join(list, ", ")
}

// copies: what cannot be seen from here, and what a standby needs to keep a copy.
func (c *serverCheck) copies(standbys []standby) {
	c.add(Finding{
		Severity: SeverityInfo, Code: "standby_copies", Subject: c.status.Name,
		Observed: "whether standbys have a copy cannot be seen from the primary",
		Required: "on each standby that may be promoted: synced true, temporary false",
		Fix: "look there: SELECT slot_name, synced, temporary, invalidation_reason FROM " +
			"pg_replication_slots;\n" +
			"it takes sync_replication_slots = on, hot_standby_feedback = on, primary_slot_name and a " +
			"dbname in primary_conninfo; a copy stays temporary until the slot has moved",
	})
	for _, s := range standbys {
		if s.Feedback {
			continue
		}
		c.add(Finding{
			Severity: SeverityWarning, Code: "hot_standby_feedback", Subject: s.String(),
			Observed: "the standby does not say what it still needs",
			Required: "hot_standby_feedback on the standby: without it no copy of the slot is kept there",
			Fix: "on the standby: ALTER SYSTEM SET hot_standby_feedback = on; SELECT " +
				"pg_reload_conf();",
		})
	}
}

// gate: standbys that have to have received what the relay is sent.
func (c *serverCheck) gate(ctx context.Context, standbys []standby) error {
	list, err := c.setting(ctx, "synchronized_standby_slots")
	if err != nil {
		return err
	}
	if list == "" {
		var slots []string
		for _, s := range standbys {
			if s.Slot != "" {
				slots = append(slots, s.Slot)
			}
		}
		f := Finding{Severity: SeverityInfo, Code: "synchronized_standby_slots",
			Subject: "synchronized_standby_slots", Observed: "empty"}
		f.Required = "the slots of the standbys that may be promoted: else the relay can publish what " +
			"is lost with the primary"
		if len(slots) == 0 {
			slots = []string{"NAME"}
		}
		f.Fix = "ALTER SYSTEM SET synchronized_standby_slots = '" + strings.Join(slots, ", ") +
			"'; SELECT pg_reload_conf(); -- then a standby that is down holds the relay back"
		c.add(f)
		return nil
	}
	// Whether one of them holds the relay back is a condition.
	c.add(okFinding("synchronized_standby_slots", "synchronized_standby_slots", list))
	return nil
}

// splitList cuts a setting that is a list of names.
func splitList(list string) []string {
	var items []string
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.Trim(item, ` "`); item != "" {
			items = append(items, item)
		}
	}
	return items
}
