package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/postrider/postrider/internal/daemon"
	"github.com/postrider/postrider/internal/exit"
	"github.com/postrider/postrider/sink"
	"github.com/postrider/postrider/sink/kafka/producer"
	"github.com/postrider/postrider/slot"
)

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
	source, err := daemon.Source(s.ctx, s.cfg)
	if err != nil {
		return err
	}
	// without a commit time: it ends no transaction
	now := sink.Position{Source: source, LSN: found.ConfirmedFlushLSN}
	stored, err := producer.ReadPosition(s.ctx, s.cfg.Sink.Kafka, topic, source)
	if err != nil && !errors.Is(err, sink.ErrUnknownTopic) {
		return err
	}
	was := "no position for this system identifier"
	if stored.LSN != 0 {
		was = fmt.Sprintf("%s of timeline %d", stored.LSN, stored.Source.Timeline)
	}
	at := fmt.Sprintf("%s of timeline %d of system %s", now.LSN, source.Timeline, source.SystemID)
	what := fmt.Sprintf("stores that all is published up to %s, where slot %s stands, in place "+
		"of: %s", at, found.Name, was)
	if err := s.confirm(found.Name, what); err != nil {
		return err
	}
	log := s.newLogger(s.cfg.Log)
	if err := producer.StorePosition(s.ctx, s.cfg.Sink.Kafka, topic, now, log); err != nil {
		return err
	}
	return s.printf("position %s stored in topic %s\n", at, topic)
}
