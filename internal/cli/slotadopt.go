package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pglogrepl"
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
	cmd := &cobra.Command{
		Use:               "adopt [NAME]",
		ValidArgsFunction: a.slotArgument,
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
		RunE: a.connected((*session).adopt, "sink", "relay"),
	}
	a.yesFlag(cmd)
	return cmd
}

func (s *session) adopt() error {
	topic := s.cfg.Relay.PositionTopic
	if !s.cfg.Relay.ExactlyOnce {
		return exit.Usagef("relay.exactly_once is off: no position is stored, and to start the " +
			"relay is the consent")
	}
	found, err := s.usableSlot()
	if err != nil {
		return err
	}
	if found.Active {
		return &slot.Error{Err: slot.Held(found.Name, found.ActivePID),
			WAL: "none is lost: the slot stays as it is", Fix: "stop the relay first"}
	}
	source, err := sourceOf(s.ctx, s.cfg)
	if err != nil {
		return err
	}
	// without a commit time: it ends no transaction
	now := sink.Position{Source: source, LSN: found.ConfirmedFlushLSN}
	stored, err := producer.ReadPosition(s.ctx, s.cfg.Sink.Kafka, topic, source)
	if err != nil && !errors.Is(err, sink.ErrUnknownTopic) {
		return err
	}
	was := "no position of this system"
	if stored.LSN != 0 {
		was = fmt.Sprintf("%s of timeline %d", stored.LSN, stored.Source.Timeline)
	}
	at := fmt.Sprintf("%s of timeline %d of system %s", now.LSN, source.Timeline, source.SystemID)
	what := fmt.Sprintf("stores that all is published up to %s, where slot %s stands, in place "+
		"of: %s", at, found.Name, was)
	if err := s.confirm(found.Name, what); err != nil {
		return err
	}
	if err := s.store(now); err != nil {
		return err
	}
	return s.printf("position %s stored in topic %s\n", at, topic)
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
func (s *session) store(p sink.Position) error {
	ctx, cancel := context.WithTimeout(s.ctx, adoptTimeout)
	defer cancel()
	stored := make(chan error, 1)
	kafka, err := producer.OpenTransactional(ctx, s.cfg.Sink.Kafka, s.cfg.Relay.PositionTopic,
		s.newLogger(s.cfg.Log), func(*sink.Message, error) {},
		func(_ pglogrepl.LSN, err error) {
			select {
			case stored <- err:
			default:
			}
		})
	if err != nil {
		return err
	}
	defer func() { _ = closeSink(ctx, kafka) }()
	if _, err := kafka.Begin(ctx, p.Source); err != nil {
		return err
	}
	kafka.Boundary(p)
	select {
	case err := <-stored:
		return err
	case <-ctx.Done():
		return fmt.Errorf("store the position in topic %q: %w", s.cfg.Relay.PositionTopic,
			context.Cause(ctx))
	}
}

// closeSink closes a sink that has nothing in flight.
func closeSink(ctx context.Context, s sink.Sink) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return s.Close(ctx)
}
