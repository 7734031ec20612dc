package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/debezium"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
)

// advance is one call of slot advance.
type advance struct {
	app     *app
	yes     bool
	dryRun  bool
	to      string
	offsets string // file with a Debezium offset, or -
	past    string // commit LSN of a transaction
}

func newSlotAdvance(a *app) *cobra.Command {
	c := advance{app: a}
	cmd := &cobra.Command{
		Use:               "advance NAME (--to LSN | --past LSN | --debezium-offsets FILE)",
		ValidArgsFunction: a.slotNames,
		Short:             "Move a slot forward: what lies between is never published",
		Long: `advance moves the confirmed position of a slot that is not in use.

--past steps over one transaction that holds up the slot, because the server cannot send a row of
it or the relay cannot take one. LSN is where the transaction commits, as the relay's error says.
The slot is read, without moving it, up to that transaction; the command says what would not be
published, then moves the slot behind it. Run it with --dry-run first.

--debezium-offsets is for taking over the slot of a Debezium connector, whose position always
lags behind what the connector has published. FILE, or - for standard input, is what Kafka
Connect answers to GET /connectors/NAME/offsets after the connector was stopped, one offset as a
JSON object, or the offset file of Debezium Server or of a standalone worker. The slot is read,
without moving it, to find the transaction of the last event published. It then moves behind that
transaction, or, if not all of its rows were published, behind the one before; and the command
says how many rows are published again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.offsets != "" {
				return c.behindDebezium(cmd, args)
			}
			if c.past != "" {
				return c.pastTransaction(cmd, args)
			}
			target, err := advanceTarget(c.to)
			if err != nil {
				return err
			}
			return a.withDatabase(cmd, args,
				func(ctx context.Context, conn *pgx.Conn, cfg config.Config) error {
					s, err := slot.Get(ctx, conn, cfg.Slot.Name)
					if err != nil {
						return err
					}
					if target == 0 {
						target = s.CurrentWALLSN
					}
					switch {
					case target > s.CurrentWALLSN:
						return exit.Usagef("--to %s: the server has written only up to %s", target,
							s.CurrentWALLSN)
					case target < s.ConfirmedFlushLSN:
						return exit.Usagef("--to %s: slot %s stands at %s already, and does not "+
							"move back", target, s.Name, s.ConfirmedFlushLSN)
					}
					return c.move(ctx, conn, s, target,
						"rows committed in between are never published")
				})
		},
	}
	cmd.Flags().StringVar(&c.to, "to", "", "position to move to, as `LSN` or \"current\"")
	cmd.Flags().StringVar(&c.past, "past", "", "step over the transaction that commits at `LSN`")
	cmd.Flags().StringVar(&c.offsets, "debezium-offsets", "",
		"move behind what Debezium has published, as its stored offset in `FILE` says; - reads "+
			"standard input")
	cmd.Flags().BoolVar(&c.dryRun, "dry-run", false,
		"say where the slot would move, and change nothing")
	cmd.Flags().BoolVar(&c.yes, "yes", false, yesHelp)
	cmd.MarkFlagsMutuallyExclusive("to", "past", "debezium-offsets")
	cmd.MarkFlagsOneRequired("to", "past", "debezium-offsets")
	return cmd
}

// move moves the slot after a confirmation. why is what becomes of the rows in between.
func (c *advance) move(ctx context.Context, conn *pgx.Conn, s slot.Status, target pglogrepl.LSN,
	why string) error {
	if target == s.ConfirmedFlushLSN {
		_, err := fmt.Fprintf(c.app.Stdout, "slot %s stands at %s\n", s.Name, target)
		return err
	}
	if c.dryRun {
		_, err := fmt.Fprintf(c.app.Stdout, "slot %s would move from %s to %s: %s\n", s.Name,
			s.ConfirmedFlushLSN, target, why)
		return err
	}
	what := fmt.Sprintf("moves slot %s from %s to %s: %s", s.Name, s.ConfirmedFlushLSN, target,
		why)
	if err := c.app.confirm(s.Name, what, c.yes); err != nil {
		return err
	}
	end, err := slot.Advance(ctx, conn, s.Name, target)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(c.app.Stdout, "slot %s stands at %s\n", s.Name, end)
	return err
}

// advanceTarget is zero for the server's own position.
func advanceTarget(text string) (pglogrepl.LSN, error) {
	switch text {
	case "":
		return 0, exit.Usagef("--to is required: an LSN as 16/B374D848, or current")
	case "current":
		return 0, nil
	}
	lsn, err := postgres.ParseLSN(text)
	if err != nil || lsn == 0 {
		return 0, exit.Usagef("--to %s: not an LSN as 16/B374D848, and not current", text)
	}
	return lsn, nil
}

// behindDebezium moves the slot behind what a stopped connector has published.
func (c *advance) behindDebezium(cmd *cobra.Command, args []string) error {
	if c.offsets == "-" && !c.yes && !c.dryRun {
		return exit.Usagef("--debezium-offsets - takes standard input, where the slot's name " +
			"would be typed: add --yes or --dry-run")
	}
	last, err := c.lastEvent()
	if err != nil {
		return err
	}
	err = c.app.connected(cmd, args,
		func(ctx context.Context, conn *pgx.Conn, cfg config.Config) error {
			return c.handOver(ctx, conn, cfg, last)
		}, streamSections...)
	if errors.Is(err, replication.ErrEventNotFound) {
		return &exit.Error{Code: exit.Config, Err: err, WAL: slotStays, Next: fixOffset}
	}
	return explained(err)
}

// streamSections are those that reading the slot as run does needs.
var streamSections = []string{"replication", "router", "format"}

const slotStays = "none is lost: the slot stays where it is"

// lastEvent reads the offset.
func (c *advance) lastEvent() (replication.LastEvent, error) {
	data, err := c.read()
	if err != nil {
		return replication.LastEvent{}, exit.Usagef("--debezium-offsets %s: %v", c.offsets, err)
	}
	o, err := debezium.ParseOffset(data)
	if err != nil {
		return replication.LastEvent{}, c.useless(err.Error())
	}
	letters := map[string]byte{"INSERT": 'I', "UPDATE": 'U', "DELETE": 'D', "TRUNCATE": 'T',
		"MESSAGE": 'M', "BEGIN": 'B', "COMMIT": 'C'}
	letter, known := letters[o.Type]
	switch {
	case o.Snapshot:
		return replication.LastEvent{},
			c.useless("it is of the end of a snapshot: nothing of the slot's stream was " +
				"published yet")
	case !known:
		return replication.LastEvent{},
			c.useless("it does not say what the last event was: none of the stream came yet, or " +
				"the connector is older than Debezium 1.9")
	}
	return replication.LastEvent{Type: letter, XID: o.TxID, LSN: pglogrepl.LSN(o.LSN),
		Count: int64(o.Events), BeginCounts: true}, nil
}

// useless is the error of an offset without an event of the stream.
func (c *advance) useless(why string) error {
	err := fmt.Errorf("--debezium-offsets %s: %s", c.offsets, why)
	return &exit.Error{Code: exit.Config, Err: err, WAL: slotStays, Next: fixOffset}
}

const fixOffset = "take the offset of the connector that used this slot, after it was stopped. " +
	"Without one, postrider starts where the slot stands: nothing is lost, " +
	"and what Debezium published since then is published again"

func (c *advance) read() ([]byte, error) {
	if c.offsets == "-" {
		return io.ReadAll(c.app.Stdin)
	}
	return os.ReadFile(c.offsets)
}

// handOver finds the position and moves the slot.
func (c *advance) handOver(ctx context.Context, conn *pgx.Conn, cfg config.Config,
	last replication.LastEvent) error {
	s, err := slot.Get(ctx, conn, cfg.Slot.Name)
	if err != nil {
		return err
	}
	if err := slot.Verify(s.Slot, conn.Config().Database); err != nil {
		return err
	}
	found, err := daemon.FindHandover(ctx, c.app.environment(), cfg, last)
	if errors.Is(err, replication.ErrEventBehind) {
		_, err = fmt.Fprintf(c.app.Stdout,
			"slot %s stands at %s, which covers what Debezium has stored: nothing to move\n",
			s.Name, s.ConfirmedFlushLSN)
		return err
	}
	if err != nil {
		return err
	}
	of := strings.Join(cfg.Replication.Tables, ", ")
	why := fmt.Sprintf("%d rows of %s in between were published by Debezium, and are not "+
		"published again", found.Published, of)
	if err := c.move(ctx, conn, s, found.LSN, why); err != nil {
		return err
	}
	again := "none of them is published again"
	if found.Again > 0 {
		again = fmt.Sprintf("the last %d are published again: "+
			"their transaction has more rows, which the offset does not cover", found.Again)
	}
	_, err = fmt.Fprintf(c.app.Stdout, "the offset covers %d rows published since %s; %s\n",
		found.Published+found.Again, found.Confirmed, again)
	return err
}
