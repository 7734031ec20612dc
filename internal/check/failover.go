package check

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/slot"
)

// standby is a server that receives the WAL, as far as the primary sees it.
type standby struct {
	Application string // of its walreceiver
	Slot        string // physical slot that it uses; empty: none
	Feedback    bool   // hot_standby_feedback: it reports which rows it still needs
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

// pg_basebackup and pg_receivewal receive WAL, too, and cannot be promoted.
const selectStandbys = `
SELECT coalesce(r.application_name, ''), coalesce(s.slot_name::text, ''), coalesce(s.xmin, r.backend_xmin) IS NOT NULL
FROM pg_catalog.pg_stat_replication r LEFT JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid
WHERE coalesce(s.slot_type, 'physical') = 'physical' AND coalesce(r.application_name, '') NOT IN ('pg_basebackup', 'pg_receivewal')
  AND coalesce(r.state, 'streaming') IN ('streaming', 'catchup')
ORDER BY 1, 2`

// failover judges what becomes of the slot when a standby is promoted.
func (c *serverCheck) failover(ctx context.Context) error {
	major, wanted := postgres.Major(c.conn), c.Need.Slot.Failover
	if wanted && major < 17 {
		c.add(found("slot_failover", c.Need.Slot.Name, fmt.Sprintf("PostgreSQL %d", major)).fail(
			"PostgreSQL 17 for slot.failover", "set slot.failover = false"))
		return nil
	}
	if c.status == nil {
		return nil
	}
	standbys, err := postgres.Collect(ctx, c.conn, pgx.RowToStructByPos[standby], selectStandbys)
	if err != nil {
		return fmt.Errorf("read standbys: %w", err)
	}
	switch {
	case c.status.Failover:
		c.add(found("slot_failover", c.status.Name, "standbys may keep a copy"))
		c.copies(standbys)
		return c.synchronized(ctx, standbys)
	case wanted || len(standbys) > 0:
		c.add(c.notFailover(standbys))
	}
	return nil
}

// notFailover is for a slot that stays behind when a standby takes over.
func (c *serverCheck) notFailover(standbys []standby) Finding {
	name := c.status.Name
	fix := fmt.Sprintf("turn it on while the relay is stopped, from 17 on:\npsql %s -c "+
		"'ALTER_REPLICATION_SLOT %q ( FAILOVER true );'\nand set slot.failover = true; how to prepare "+
		"the standbys: docs/SLOTS.md, \"Failover of the database\"", psqlWord(c.conn.Config()), name)
	if postgres.Major(c.conn) < 17 {
		fix = "before 17 the server's high-availability tool has to copy slots: Patroni's permanent " +
			"slots, the extension pg_failover_slots"
	}
	if c.Need.Slot.Failover {
		return found("slot_failover", name, "the slot was made without failover").warn(
			"failover, since slot.failover is true: it counts only when the slot is made", fix)
	}
	names := make([]string, len(standbys))
	for i, s := range standbys {
		names[i] = s.String()
	}
	return found("slot_failover", name,
		"standbys keep no copy of the slot: "+strings.Join(names, ", ")).info(
		"a copy, if the database fails over to a standby: there the slot does not exist, and rows "+
			"written until a new one is made are not sent", fix)
}

// psqlWord is the connection string that leads psql to a walsender of this server, as a word for a
// shell. Another server on the same machine may have a slot of the same name.
func psqlWord(cfg *pgx.ConnConfig) string {
	hosts, ports := []string{cfg.Host}, []string{strconv.Itoa(int(cfg.Port))}
	for _, other := range cfg.Fallbacks {
		last, port := len(hosts)-1, strconv.Itoa(int(other.Port))
		if other.Host != hosts[last] || port != ports[last] { // else the same with or without TLS
			hosts, ports = append(hosts, other.Host), append(ports, port)
		}
	}
	text := "host=" + infoValue(strings.Join(hosts, ",")) + " port=" + strings.Join(ports, ",") +
		" user=" + infoValue(cfg.User) + " dbname=" + infoValue(cfg.Database)
	if len(hosts) > 1 {
		text += " target_session_attrs=read-write"
	}
	return terminal.ShellWord(text + " replication=database")
}

// infoValue is a value in a connection string of libpq; NAME if it cannot be shown as it is.
func infoValue(value string) string {
	switch {
	case slot.Printable(value) != value:
		return "NAME"
	case value != "" && !strings.ContainsAny(value, ` '\`):
		return value
	}
	return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(value) + "'"
}

// copies reports what cannot be seen from here, and what a standby needs to keep a copy.
func (c *serverCheck) copies(standbys []standby) {
	c.add(found("standby_copies", c.status.Name,
		"whether standbys have a copy cannot be seen from the primary").info(
		"on each standby that may be promoted: synced true, temporary false",
		"look there: SELECT slot_name, synced, temporary, invalidation_reason FROM "+
			"pg_replication_slots;\n"+
			"it takes sync_replication_slots = on, hot_standby_feedback = on, primary_slot_name and a "+
			"dbname in primary_conninfo; a copy stays temporary until the slot has moved"))
	for _, s := range standbys {
		if !s.Feedback {
			c.add(found("hot_standby_feedback", s.String(),
				"the standby does not report what it still needs").warn(
				"hot_standby_feedback on the standby: without it no copy of the slot is kept there",
				"on the standby: ALTER SYSTEM SET hot_standby_feedback = on; SELECT pg_reload_conf();"))
		}
	}
}

// synchronized reports which standbys have to receive first what the relay is sent. Whether one of
// them holds the relay back is a condition.
func (c *serverCheck) synchronized(ctx context.Context, standbys []standby) error {
	const name = "synchronized_standby_slots"
	list, _, err := c.setting(ctx, name)
	if err != nil {
		return err
	}
	f := found("synchronized_standby_slots", name, list)
	if list == "" {
		var slots []string
		for _, s := range standbys {
			if s.Slot != "" {
				slots = append(slots, s.Slot)
			}
		}
		f.Observed = "empty"
		f = f.info("the slots of the standbys that may be promoted: else the relay can publish what is "+
			"lost with the primary",
			"ALTER SYSTEM SET synchronized_standby_slots = '"+
				cmp.Or(strings.Join(slots, ", "), "NAME")+"'; SELECT pg_reload_conf(); -- then a standby "+
				"that is down holds the relay back")
	}
	c.add(f)
	return nil
}
