package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/slot"
)

func newSlot(a *app) *cobra.Command {
	return group("slot", "List, show, create, drop, advance and adopt replication slots",
		newSlotList(a), newSlotShow(a), newSlotCreate(a), newSlotDrop(a), newSlotAdvance(a),
		newSlotAdopt(a))
}

func newSlotList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all replication slots of the server",
		RunE: a.connected(func(s *session) error {
			slots, err := slot.List(s.ctx, s.conn)
			if err != nil {
				return err
			}
			return s.print(append([]slot.Status{}, slots...), func(w io.Writer) error {
				return writeSlots(w, slots)
			})
		}),
	}
	a.jsonFlag(cmd, "print one JSON array")
	return cmd
}

func writeSlots(w io.Writer, slots []slot.Status) error {
	lines := [][]string{
		{"NAME", "DATABASE", "PLUGIN", "ACTIVE", "WAL STATUS", "LAG", "RETAINED"}}
	for _, s := range slots {
		active := "no"
		if s.Active {
			active = fmt.Sprintf("pid %d", s.ActivePID)
		}
		lines = append(lines, []string{s.Name, terminal.OrDash(s.Database),
			terminal.OrDash(s.Plugin), active, terminal.OrDash(s.WALStatus),
			optionalBytes(s.LagBytes), optionalBytes(s.RetainedBytes)})
	}
	return writeTable(w, lines...)
}

func optionalBytes(n *int64) string {
	if n == nil {
		return "-"
	}
	return health.Bytes(*n)
}

func newSlotShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show one slot, the configured one without a name",
		Args:  cobra.MaximumNArgs(1), ValidArgsFunction: a.slotArgument,
	}
	cmd.RunE = a.connected(func(s *session) error {
		found, err := s.slot()
		// a named one may be another relay's
		if errors.Is(err, slot.ErrNotFound) && cmd.Flags().NArg() == 0 {
			err = slot.Absent(s.ctx, s.conn, s.cfg.Requirements(), err)
		}
		if err != nil {
			return err
		}
		return s.print(found, func(w io.Writer) error { return writeSlot(w, found) })
	})
	a.jsonFlag(cmd, "")
	return cmd
}

// writeSlot prints a slot under the names that PostgreSQL has for its columns.
func writeSlot(w io.Writer, s slot.Status) error {
	return writeMembers(w, s, func(name string, value any) [][]string {
		text := fmt.Sprint(value)
		if n, ok := value.(json.Number); ok && strings.HasSuffix(name, "_bytes") {
			if bytes, err := n.Int64(); err == nil {
				text = fmt.Sprintf("%s (%s)", n, health.Bytes(bytes))
			}
		}
		return [][]string{{name, text}}
	})
}

func newSlotCreate(a *app) *cobra.Command {
	failover := false
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create a slot: from then on rows are kept until they are published",
		Long: `create makes a logical slot in the database of postgres.url. It waits for
transactions that were writing before, and says which. Rows committed before it are not published.

The publication and its tables are checked first: a slot never sends what was committed before
its publication existed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.connected(func(s *session) error {
			s.cfg.Slot.Failover = s.cfg.Slot.Failover || failover
			if _, err := slot.Diagnose(s.ctx, s.conn, s.cfg.Requirements()); err != nil {
				return err
			}
			created, err := slot.CreateWaiting(s.ctx, s.conn, s.cfg.Slot, func(err error) {
				s.progress("%v; still waiting", err)
			})
			if err != nil {
				return err
			}
			if s.json {
				status, err := s.slot()
				if err != nil {
					return err
				}
				return s.printJSON(status)
			}
			return s.printf("slot %s created; what is committed after %s is published\n",
				created.Name, created.ConfirmedFlushLSN)
		}),
	}
	cmd.Flags().BoolVar(&failover, "failover", false,
		"let standbys keep a copy of it (PostgreSQL 17)")
	a.jsonFlag(cmd, "")
	return cmd
}

func newSlotDrop(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "drop NAME",
		Short: "Drop a slot: what it keeps is never published",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.slotArgument,
		RunE: a.connected(func(s *session) error {
			found, err := s.slot()
			if err != nil {
				return err
			}
			kept, after := "no WAL kept", "its creation"
			if found.RetainedBytes != nil {
				kept = health.Bytes(*found.RetainedBytes) + " of WAL kept"
			}
			if found.Active {
				kept += fmt.Sprintf(", in use by pid %d", found.ActivePID)
			}
			if found.ConfirmedFlushLSN != 0 {
				after = found.ConfirmedFlushLSN.String()
			}
			what := fmt.Sprintf("drops slot %s (%s): rows committed after %s and not published "+
				"yet are never published by a slot", found.Name, kept, after)
			if err := s.confirm(found.Name, what); err != nil {
				return err
			}
			if err := slot.Drop(s.ctx, s.conn, found.Name); err != nil {
				return err
			}
			if found.Plugin != slot.Plugin || found.CatalogXmin == 0 {
				return s.printf("slot %s dropped\n", found.Name)
			}
			return s.printf("slot %s dropped\nnext: %s\n", found.Name, s.typed(fmt.Sprintf(
				"postrider recover --from-xmin %d   # if a relay read it: the rows that it had not "+
					"delivered", found.CatalogXmin)))
		}),
	}
	a.yesFlag(cmd)
	return cmd
}
