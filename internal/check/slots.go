package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/slot"
)

// holder is the session that reads from the slot. What may not be seen is zero.
type holder struct {
	PID         int32
	Application string
	User        string
	Address     string // empty: a client on the server itself, too
	Since       *time.Time
}

func (h holder) String() string {
	text := fmt.Sprintf("process %d of the database", h.PID)
	for _, part := range []struct{ name, value string }{
		{"application ", h.Application}, {"role ", h.User}, {"from ", h.Address},
	} {
		if part.value != "" {
			text += ", " + part.name + slot.Printable(part.value)
		}
	}
	if h.Since != nil {
		text += ", since " + h.Since.UTC().Format(time.RFC3339)
	}
	return text
}

// readSlot reads the slot for the steps that follow, and its reader.
func (c *serverCheck) readSlot(ctx context.Context) error {
	status, err := slot.Get(ctx, c.conn, c.Need.Slot.Name)
	if slot.IsMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	c.status = &status
	if !status.Active {
		return nil
	}
	h := holder{PID: status.ActivePID}
	err = c.row(ctx, fmt.Sprintf("read which session has slot %q", status.Name), `
		SELECT coalesce(application_name, ''), coalesce(usename::text, ''), coalesce(client_addr::text, ''), backend_start
		FROM pg_catalog.pg_stat_activity WHERE pid = $1`, h.PID).
		Scan(&h.Application, &h.User, &h.Address, &h.Since)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return err
	}
	own := c.conn.Config()
	c.held = &h
	c.ours = h.Application == own.RuntimeParams["application_name"] && h.User == own.User
	return nil
}

func (c *serverCheck) slot(ctx context.Context) error {
	if c.status == nil {
		return c.missingSlot(ctx)
	}
	s := *c.status
	if err := slot.Verify(s.Slot, c.conn.Config().Database); err != nil {
		f := errorFinding("slot", s.Name, err)
		f.Required = "a logical slot of pgoutput in this database that keeps what is not delivered, " +
			"without two_phase"
		c.add(f)
		return nil
	}
	c.add(found("slot", s.Name, describe(s)))
	if s.CurrentWALLSN != 0 && s.ConfirmedFlushLSN > s.CurrentWALLSN {
		c.add(aheadOfServer(s))
	}
	if err := c.newerThanSlot(ctx, s); err != nil {
		return err
	}
	return c.freeSlots(ctx)
}

// newerThanSlot finds what may have been different for rows that the slot can still send, or has
// just passed.
func (c *serverCheck) newerThanSlot(ctx context.Context, s slot.Status) error {
	p, err := slot.ReadPublication(ctx, c.conn, c.Need.Publication, c.Need.Tables)
	if err != nil {
		return err
	}
	newer, err := p.NewerThan(ctx, c.conn, s.Slot)
	if err != nil || len(newer.What) == 0 {
		return err
	}
	f := found("publication_before_slot", strings.Join(newer.What, ", "),
		"created or altered after the slot's position").warn(
		fmt.Sprintf("publication first, then slot, and no change later: rows inserted between %s and "+
			"%s may be missing from the topics", s.RestartLSN, p.ReadLSN()),
		"stop the relay, see which rows are missing, which changes nothing; with --publish they are "+
			"published:\n"+newer.Find())
	if newer.Unused {
		f.Severity = SeverityInfo
		f.Observed = "maybe created or altered after the slot's position: it was not streamed yet, " +
			"and its horizon is that of another slot"
	}
	c.add(f)
	return nil
}

// aheadOfServer is for a slot whose server was put back to an earlier state around it, or took
// over without having received everything.
func aheadOfServer(s slot.Status) Finding {
	f := found("slot_position", s.Name, fmt.Sprintf("confirmed_flush_lsn %s is beyond the server's "+
		"own position, %s", s.ConfirmedFlushLSN, s.CurrentWALLSN)).fail(
		"a position that the server has reached: what it writes until then is taken for delivered, "+
			"and never sent",
		fmt.Sprintf("was the server restored from a backup, or promoted before it had everything? "+
			"Find the rows written since then, and give your consent to a new slot:\n"+
			"postrider slot drop %s --yes; postrider slot create %s\n"+
			"then publish what was committed before, and the topics lack:\npostrider recover --publish",
			s.Name, s.Name))
	f.WAL = "none is lost, and none of what is written up to that position comes; rows that were " +
		"published before may no longer be in the table"
	return f
}

func describe(s slot.Status) string {
	text := "inactive"
	if s.Active {
		text = fmt.Sprintf("active, pid %d", s.ActivePID)
	}
	text += ", wal_status " + s.WALStatus
	if s.LagBytes != nil {
		text += fmt.Sprintf(", %d bytes behind", *s.LagBytes)
	}
	return text
}

// holder reports the reader of the slot, if it is not a relay which connects as this one does.
func (c *serverCheck) holder(context.Context) error {
	if c.held == nil || c.ours {
		return nil
	}
	c.add(found("slot_holder", c.Need.Slot.Name, "is held by "+c.held.String()).warn(
		"the relay alone: it stands by for as long as another has the slot, and what the other "+
			"confirms never comes to it",
		fmt.Sprintf("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE "+
			"slot_name = '%s' AND active_pid = %d; -- once that process is stopped, or it comes back; "+
			"or give the relay a slot of its own (slot.name)", c.status.Name, c.held.PID)))
	return nil
}

// missingSlot judges what run would do about a slot that does not exist.
func (c *serverCheck) missingSlot(ctx context.Context) error {
	_, used, limit, err := c.used(ctx, "max_replication_slots", "pg_replication_slots")
	if err != nil {
		return err
	}
	usedTable, err := slot.FirstUsedTable(ctx, c.conn, c.Need.Tables)
	if err != nil {
		return err
	}
	name := c.Need.Slot.Name
	f := found("slot", name, fmt.Sprintf("does not exist; %d of %d slots are used", used, limit))
	switch {
	case used >= limit:
		f.Observed = fmt.Sprintf("does not exist, and there is %v: %d of %d are used",
			slot.ErrNoFreeSlot, used, limit)
		f = f.fail("a free slot", slot.FixSlotLimit(limit))
	case !c.Need.Slot.Create:
		f = errorFinding("slot", name, slot.NotToBeCreated(name))
		f.Required = "an existing slot"
	case usedTable == "":
		f = f.info("a slot: run creates it, and then publishes what is committed from then on",
			"postrider slot create "+name+"   # or leave it to postrider run")
	case c.Snapshot:
		f = f.info("a slot: run creates it, and publishes the rows that are in the tables first",
			"postrider run")
	default:
		f = errorFinding("slot", name, slot.LacksConsent(name, usedTable))
		f.Required = "consent to a slot that begins now"
	}
	if f.Severity == SeverityError {
		f.WAL = cmp.Or(f.WAL, slot.NoSlotYet)
	}
	c.add(f)
	return nil
}

// freeSlots is for a slot that exists: some commands take another for a while.
func (c *serverCheck) freeSlots(ctx context.Context) error {
	f, used, limit, err := c.used(ctx, "max_replication_slots", "pg_replication_slots")
	if err != nil {
		return err
	}
	if used >= limit {
		f = f.info("a free one for postrider tail, run --dry-run and audit compare; the relay has its "+
			"own", slot.FixSlotLimit(limit))
	}
	c.add(f)
	return nil
}
