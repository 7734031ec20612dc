package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/slot"
)

// holder is who reads from the slot. What may not be seen is zero.
type holder struct {
	PID         int32
	Application string
	User        string
	Address     string // "a socket" for a client on the server itself
	Since       time.Time
}

func (h holder) String() string {
	text := fmt.Sprintf("process %d of the database", h.PID)
	for _, part := range []struct{ name, value string }{{"application ", h.Application},
		{"role ", h.User}, {"from ", h.Address}} {
		if part.value != "" {
			text += ", " + part.name + part.value
		}
	}
	if !h.Since.IsZero() {
		text += ", since " + h.Since.UTC().Format(time.RFC3339)
	}
	return text
}

// readSlot reads the slot for the steps that follow, and who has it.
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
	var since *time.Time
	err = c.conn.QueryRow(ctx, `
		SELECT coalesce(application_name, ''), coalesce(usename::text, ''), coalesce(client_addr::text, ''), backend_start
		FROM pg_catalog.pg_stat_activity WHERE pid = $1`, h.PID).Scan(&h.Application, &h.User, &h.Address, &since)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read who has slot %q: %w", status.Name, postgres.Error(err))
	}
	if since != nil {
		h.Since = *since
	}
	own := c.conn.Config()
	c.held, c.ours = &h, h.Application == own.RuntimeParams["application_name"] && h.User == own.User
	return nil
}

func (c *serverCheck) slot(ctx context.Context) error {
	name := c.Need.Slot.Name
	if c.status == nil {
		return c.room(ctx)
	}
	status := *c.status
	if err := slot.Verify(status.Slot, c.conn.Config().Database); err != nil {
		f := ErrorFinding("slot", name, err)
		f.Required = "a logical slot of pgoutput in this database that keeps what is not delivered, " +
			"without two_phase"
		c.add(f)
		return nil
	}
	c.add(okFinding("slot", name, describe(status)))
	if problem := judgePosition(status); problem != nil {
		c.add(*problem)
	}
	if err := c.newerThanSlot(ctx, status); err != nil {
		return err
	}
	return c.freeSlots(ctx)
}

// newerThanSlot finds what may have been otherwise for rows that the slot can still send, or has
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
	f := Finding{
		Severity: SeverityWarning, Code: "publication_before_slot", Subject: strings.Join(newer.What,
			", "),
		Observed: "created or altered after the slot's position",
		Required: fmt.Sprintf("publication first, then slot, and no change later: rows inserted "+
			"between %s and %s may be missing from the topics", s.RestartLSN, p.ReadLSN()),
		Fix: "stop the relay, see which rows are missing, which changes nothing; with --publish " +
			"they are published:\n" + newer.Find(),
	}
	if newer.Unused {
		f.Severity = SeverityInfo
		f.Observed = "maybe created or altered after the slot's position: it was not streamed yet, " +
			"and its horizon is that of another slot"
	}
	c.add(f)
	return nil
}

// judgePosition: a slot cannot be ahead of its server, unless the server was put back to an
// earlier state around it, or took over without having received everything.
func judgePosition(s slot.Status) *Finding {
	if s.CurrentWALLSN == 0 || s.ConfirmedFlushLSN <= s.CurrentWALLSN {
		return nil
	}
	return &Finding{
		Severity: SeverityError, Code: "slot_position", Subject: s.Name, Class: ClassConfiguration,
		Observed: fmt.Sprintf("confirmed_flush_lsn %s is beyond the server's own position, %s",
			s.ConfirmedFlushLSN, s.CurrentWALLSN),
		Required: "a position that the server has reached: what it writes until then is taken for " +
			"delivered, and never sent",
		WAL: "none is lost, and none of what is written up to that position comes; rows that " +
			"were published before may no longer be in the table",
		Fix: fmt.Sprintf("was the server restored from a backup, or promoted before it had "+
			"everything? Find the rows written since then, and give your consent "+
			"to a new slot:\npostrider slot drop %s --yes; postrider slot create %s", s.Name, s.Name),
	}
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

// holder says who reads from the slot, if that is not a relay which connects as we do.
func (c *serverCheck) holder(context.Context) error {
	if c.held == nil || c.ours {
		return nil
	}
	f := Finding{
		Severity: SeverityWarning, Code: "slot_holder", Subject: c.Need.Slot.Name,
		Observed: "is held by " + c.held.String(),
		Required: "nobody but the relay: it stands by for as long as another has the slot, and what " +
			"the other confirms never comes to it",
		Fix: fmt.Sprintf("SELECT pg_terminate_backend(%d); -- once that process is stopped, or "+
			"it comes back; or give the relay a slot of its own (slot.name)", c.held.PID),
	}
	c.add(f)
	return nil
}

// room is for a slot that does not exist yet.
func (c *serverCheck) room(ctx context.Context) error {
	used, limit, err := c.countSlots(ctx)
	if err != nil {
		return err
	}
	usedTable, err := slot.FirstUsedTable(ctx, c.conn, c.Need.Tables)
	if err != nil {
		return err
	}
	f := Finding{Code: "slot", Subject: c.Need.Slot.Name, Observed: fmt.Sprintf("does not exist; "+
		"%d of %d slots are used", used, limit)}
	switch {
	case used >= limit:
		f.Severity, f.Class, f.Required = SeverityError, ClassConfiguration, "a free slot"
		f.Observed = fmt.Sprintf("does not exist, and there is %v: %d of %d are used",
			slot.ErrNoFreeSlot, used, limit)
		f.Fix = slot.FixSlotLimit(limit)
	case c.Need.Slot.Create && usedTable != "" && c.Snapshot:
		f.Severity, f.Required = SeverityInfo, "a slot: run creates it, and publishes the rows that "+
			"are in the tables first"
		f.Fix = "postrider run"
	case c.Need.Slot.Create && usedTable != "":
		f = ErrorFinding("slot", c.Need.Slot.Name, slot.LacksConsent(c.Need.Slot.Name, usedTable))
		f.Required = "consent to a slot that begins now"
	case c.Need.Slot.Create:
		f.Severity, f.Required = SeverityInfo, "a slot: run creates it, and then publishes what is "+
			"committed from then on"
		f.Fix = "postrider slot create " + c.Need.Slot.Name + "   # or leave it to postrider run"
	default:
		f = ErrorFinding("slot", c.Need.Slot.Name, slot.NotToBeCreated(c.Need.Slot.Name))
		f.Required = "an existing slot"
	}
	if f.Severity == SeverityError && f.WAL == "" {
		f.WAL = slot.NoSlotYet
	}
	c.add(f)
	return nil
}

// freeSlots is for a slot that exists: some commands take another for a while.
func (c *serverCheck) freeSlots(ctx context.Context) error {
	used, limit, err := c.countSlots(ctx)
	if err != nil {
		return err
	}
	f := okFinding("max_replication_slots", "max_replication_slots", fmt.Sprintf("%d of %d are used",
		used, limit))
	if used >= limit {
		f.Severity, f.Required = SeverityInfo, "a free one for postrider tail, run --dry-run and "+
			"audit compare; the relay has its own"
		f.Fix = slot.FixSlotLimit(limit)
	}
	c.add(f)
	return nil
}

func (c *serverCheck) countSlots(ctx context.Context) (used, limit int, err error) {
	err = c.conn.QueryRow(ctx,
		`SELECT pg_catalog.count(*), pg_catalog.current_setting('max_replication_slots')::int FROM pg_catalog.pg_replication_slots`).
		Scan(&used, &limit)
	if err != nil {
		return 0, 0, fmt.Errorf("count slots: %w", postgres.Error(err))
	}
	return used, limit, nil
}
