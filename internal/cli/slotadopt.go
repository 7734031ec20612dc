package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/config"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

// adoptTimeout bounds the wait for the broker to take the position.
const adoptTimeout = time.Minute

func newSlotAdopt(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:               "adopt [NAME]",
		ValidArgsFunction: a.slotNames,
		Short: "With relay.exactly_once, go on with a server that was restored, or " +
			"is another one",
		Long: `adopt is the consent to a server whose history does not lead through the position
that relay.exactly_once has stored: it was restored to an earlier point, or it is another cluster,
such as after pg_upgrade.

It stores where the slot stands, in place of the old position. What the slot has confirmed counts
as published from then on, and what lies behind is published: rows that the old server had behind
that point and that were published before come again if the new server has them. The relay has to
be stopped. Without relay.exactly_once nothing is stored, and to start the relay is the consent.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd, args,
				func(ctx context.Context, conn *pgx.Conn, cfg config.Config) error {
					return a.adopt(ctx, conn, cfg, yes)
				}, "sink", "relay")
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, yesHelp)
	return cmd
}

func (a *app) adopt(ctx context.Context, conn *pgx.Conn, cfg config.Config, yes bool) error {
	if !cfg.Relay.ExactlyOnce {
		return exit.Usagef("relay.exactly_once is off: no position is stored, and to start the " +
			"relay is the consent")
	}
	s, err := slot.Get(ctx, conn, cfg.Slot.Name)
	if err != nil {
		return err
	}
	if err := slot.Verify(s.Slot, conn.Config().Database); err != nil {
		return err
	}
	if s.Active {
		return &slot.Error{Err: slot.Held(s.Name, s.ActivePID),
			WAL: "none is lost: the slot stays as it is", Fix: "stop the relay first"}
	}
	source, err := sourceOf(ctx, cfg)
	if err != nil {
		return err
	}
	// without a commit time: it ends no transaction
	now := sink.Position{Source: source, LSN: s.ConfirmedFlushLSN}
	stored, err := producer.ReadPosition(ctx, cfg.Sink.Kafka, cfg.Relay.PositionTopic, source)
	if err != nil && !errors.Is(err, sink.ErrUnknownTopic) {
		return err
	}
	was := "no position of this system"
	if stored.LSN != 0 {
		was = fmt.Sprintf("%s of timeline %d", stored.LSN, stored.Source.Timeline)
	}
	what := fmt.Sprintf("stores that all is published up to %s of timeline %d of system %s, "+
		"where slot %s stands, in place of: %s",
		now.LSN, source.Timeline, source.SystemID, s.Name, was)
	if err := a.confirm(s.Name, what, yes); err != nil {
		return err
	}
	if err := a.store(ctx, cfg, now); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.Stdout, "position %s of timeline %d of system %s stored in topic %s\n",
		now.LSN, source.Timeline, source.SystemID, cfg.Relay.PositionTopic)
	return err
}

// sourceOf identifies server, database and slot.
func sourceOf(ctx context.Context, cfg config.Config) (sink.Source, error) {
	conn, err := postgres.ConnectReplication(ctx, cfg.Postgres)
	if err != nil {
		return sink.Source{}, err
	}
	defer func() { _ = conn.Close(ctx) }()
	id, err := pglogrepl.IdentifySystem(ctx, conn)
	if err != nil {
		return sink.Source{}, fmt.Errorf("identify system: %w", postgres.Error(err))
	}
	return sink.Source{SystemID: id.SystemID, Timeline: id.Timeline, Database: id.DBName,
		Slot: cfg.Slot.Name}, nil
}

// store writes a position as a relay does, which fences a producer that still publishes for the
// slot.
func (a *app) store(ctx context.Context, cfg config.Config, p sink.Position) error {
	ctx, cancel := context.WithTimeout(ctx, adoptTimeout)
	defer cancel()
	done := make(chan error, 2)
	s, err := producer.OpenTransactional(ctx, cfg.Sink.Kafka, cfg.Relay.PositionTopic,
		a.newLogger(cfg.Log), func(*sink.Message, error) {},
		func(_ pglogrepl.LSN, err error) {
			select {
			case done <- err:
			default:
			}
		})
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeSinkTimeout)
		defer cancel()
		_ = s.Close(closing)
	}()
	if _, err := s.Begin(ctx, p.Source); err != nil {
		return err
	}
	s.Boundary(p)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("store the position in topic %q: %w", cfg.Relay.PositionTopic,
			context.Cause(ctx))
	}
}
