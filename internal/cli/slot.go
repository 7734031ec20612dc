package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/health"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/terminal"
	"github.com/postrider/postrider/slot"
)

func newSlot(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "slot",
		Short: "List, show, create, drop, advance and adopt replication slots",
	}
	cmd.AddCommand(newSlotList(a), newSlotShow(a), newSlotCreate(a), newSlotDrop(a),
		newSlotAdvance(a), newSlotAdopt(a))
	return cmd
}

// databaseFunc is what a command does with a connection.
type databaseFunc func(ctx context.Context, conn *pgx.Conn, cfg config.Config) error

// withDatabase is connected, and explains the error.
func (a *app) withDatabase(
	cmd *cobra.Command, args []string, f databaseFunc, sections ...string,
) error {
	return explained(a.connected(cmd, args, f, sections...))
}

// connected runs f with a connection and the configuration, of which the command uses postgres and
// the given sections. slot.name is the argument of the command, if it has one.
func (a *app) connected(
	cmd *cobra.Command, args []string, f databaseFunc, sections ...string,
) error {
	l, err := a.load(cmd, append(sections, "postgres")...)
	if err != nil {
		return err
	}
	a.warn(l)
	if len(args) > 0 {
		l.Config.Slot.Name = args[0]
	}
	if err := slot.ValidateName(l.Config.Slot.Name); err != nil {
		return exit.Usagef("%v", err)
	}
	ctx := cmd.Context()
	conn, err := postgres.Connect(ctx, l.Config.Postgres)
	if err != nil {
		return exit.Explain(err)
	}
	defer postgres.Close(conn)
	return f(ctx, conn, l.Config)
}

func newSlotList(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List all replication slots of the server",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd, args,
				func(ctx context.Context, conn *pgx.Conn, _ config.Config) error {
					slots, err := slot.List(ctx, conn)
					if err != nil {
						return err
					}
					if asJSON {
						if slots == nil {
							slots = []slot.Status{}
						}
						return a.printJSON(slots)
					}
					return writeSlots(a.Stdout, slots)
				})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON array")
	return cmd
}

func writeSlots(w io.Writer, slots []slot.Status) error {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "NAME\tDATABASE\tPLUGIN\tACTIVE\tWAL STATUS\tLAG\tRETAINED")
	for _, s := range slots {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", s.Name, terminal.OrDash(s.Database),
			terminal.OrDash(s.Plugin), activeText(s),
			terminal.OrDash(s.WALStatus), optionalBytes(s.LagBytes),
			optionalBytes(s.RetainedBytes))
	}
	return t.Flush()
}

func activeText(s slot.Status) string {
	if s.Active {
		return fmt.Sprintf("pid %d", s.ActivePID)
	}
	return "no"
}

func optionalBytes(n *int64) string {
	if n == nil {
		return "-"
	}
	return health.Bytes(*n)
}

func newSlotShow(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [NAME]",
		Short: "Show one slot, the configured one without a name",
		Args:  cobra.MaximumNArgs(1), ValidArgsFunction: a.slotNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd, args,
				func(ctx context.Context, conn *pgx.Conn, cfg config.Config) error {
					s, err := slot.Get(ctx, conn, cfg.Slot.Name)
					// a named one may be another relay's
					if errors.Is(err, slot.ErrNotFound) && len(args) == 0 {
						err = slot.Absent(ctx, conn, cfg.Requirements(), err)
					}
					if err != nil {
						return err
					}
					if asJSON {
						return a.printJSON(s)
					}
					return writeSlot(a.Stdout, s)
				})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, jsonHelp)
	return cmd
}

// writeSlot prints a slot under the names that PostgreSQL has for its columns.
func writeSlot(w io.Writer, s slot.Status) error {
	return printMembers(w, s, func(t io.Writer, name string, value any) {
		if n, ok := value.(json.Number); ok && strings.HasSuffix(name, "_bytes") {
			if bytes, err := n.Int64(); err == nil {
				value = fmt.Sprintf("%s (%s)", n, health.Bytes(bytes))
			}
		}
		fmt.Fprintf(t, "%s\t%v\n", name, value)
	})
}

func newSlotCreate(a *app) *cobra.Command {
	var failover, asJSON bool
	cmd := &cobra.Command{
		Use:   "create [NAME]",
		Short: "Create a slot: from then on rows are kept until they are published",
		Long: `create makes a logical slot in the database of postgres.url. It waits for
transactions that were writing before, and says which. Rows committed before it are not published.

The publication and its tables are checked first: a slot never sends what was committed before
its publication existed.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd, args,
				func(ctx context.Context, conn *pgx.Conn, cfg config.Config) error {
					cfg.Slot.Failover = cfg.Slot.Failover || failover
					if _, err := slot.Diagnose(ctx, conn, cfg.Requirements()); err != nil {
						return err
					}
					s, err := a.createSlot(ctx, conn, cfg.Slot)
					if err != nil {
						return err
					}
					if asJSON {
						status, err := slot.Get(ctx, conn, s.Name)
						if err != nil {
							return err
						}
						return a.printJSON(status)
					}
					_, err = fmt.Fprintf(a.Stdout,
						"slot %s created; what is committed after %s is published\n", s.Name,
						s.ConfirmedFlushLSN)
					return err
				})
		},
	}
	cmd.Flags().BoolVar(&failover, "failover", false,
		"let standbys keep a copy of it (PostgreSQL 17)")
	cmd.Flags().BoolVar(&asJSON, "json", false, jsonHelp)
	return cmd
}

// createSlot waits for older transactions without a limit: it names them, and can be interrupted.
func (a *app) createSlot(ctx context.Context, conn *pgx.Conn, cfg slot.Config) (slot.Slot, error) {
	for {
		s, err := slot.Create(ctx, conn, cfg)
		if !errors.Is(err, slot.ErrBlocked) || ctx.Err() != nil {
			return s, err
		}
		a.progress("%v; still waiting", err)
	}
}

func newSlotDrop(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "drop NAME",
		Short: "Drop a slot: what it keeps is never published",
		Args:  cobra.ExactArgs(1), ValidArgsFunction: a.slotNames,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd, args,
				func(ctx context.Context, conn *pgx.Conn, cfg config.Config) error {
					s, err := slot.Get(ctx, conn, cfg.Slot.Name)
					if err != nil {
						return err
					}
					what := fmt.Sprintf("drops slot %s (%s): rows committed after %s and not "+
						"published yet are never published by a slot",
						s.Name, slotText(s), lsnOrNone(s.ConfirmedFlushLSN))
					if err := a.confirm(s.Name, what, yes); err != nil {
						return err
					}
					if err := slot.Drop(ctx, conn, s.Name); err != nil {
						return err
					}
					_, err = fmt.Fprintf(a.Stdout, "slot %s dropped\n", s.Name)
					return err
				})
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, yesHelp)
	return cmd
}

func slotText(s slot.Status) string {
	text := "no WAL kept"
	if s.RetainedBytes != nil {
		text = health.Bytes(*s.RetainedBytes) + " of WAL kept"
	}
	if s.Active {
		text += fmt.Sprintf(", in use by pid %d", s.ActivePID)
	}
	return text
}

func lsnOrNone(lsn pglogrepl.LSN) string {
	if lsn == 0 {
		return "its creation"
	}
	return lsn.String()
}
