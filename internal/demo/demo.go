// Package demo is a small shop that uses an outbox: it writes orders with their events, reads the
// events back from Kafka, and has package audit compare the two.
//
//	demo.go    Run: the whole demonstration
//	write.go   orders and their events
//	topics.go  the topics of the events, and reading them back
//	wait.go    waiting for a time, or for a count that grows
//	report.go  the result, with the latencies from commit to consumer
package demo

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/internal/audit"
	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/internal/secret"
	"github.com/postrider/postrider/sink/kafka"
)

// Names of everything that the demo makes, in a database of its own or in yours.
const (
	Schema      = "postrider_demo"
	Table       = Schema + ".outbox"
	Publication = "postrider_demo"
	Slot        = "postrider_demo"
	TopicPrefix = "postrider.demo."

	partitions = 4
)

// aggregates are the kinds of things that have events; each has a topic.
var aggregates = []string{"order", "payment"}

// Topics are those the events go to.
func Topics() []string {
	var topics []string
	for _, a := range aggregates {
		topics = append(topics, TopicPrefix+a)
	}
	return topics
}

// Config is how much the shop sells.
type Config struct {
	Rows     int64         // stop after so many; 0: no limit
	Duration time.Duration // stop after so long; 0: no limit
	Rate     float64       // transactions a second, each with one event
}

// Progress is the state of a running demo.
type Progress struct {
	Elapsed            time.Duration
	Written, Delivered int64
	P50, P99           time.Duration // of the latencies since the last Progress
}

// Demo is one run. Set it up, Run it, tear it down.
type Demo struct {
	cfg     Config
	dsn     string
	brokers []string
	tally   *audit.Tally
	meter   *meter
}

// New makes a demo against a server and a cluster that are there.
func New(cfg Config, dsn string, brokers []string) *Demo {
	return &Demo{cfg: cfg, dsn: dsn, brokers: brokers, tally: audit.New(), meter: newMeter()}
}

const createSQL = `
CREATE SCHEMA ` + Schema + `;
CREATE TABLE ` + Schema + `.orders (
	id         text PRIMARY KEY,
	changes    bigint NOT NULL,
	changed_at timestamptz NOT NULL DEFAULT pg_catalog.now()
);
CREATE TABLE ` + Table + ` (
	id             uuid PRIMARY KEY DEFAULT pg_catalog.gen_random_uuid(),
	aggregate_type text NOT NULL,
	aggregate_id   text NOT NULL,
	event_type     text NOT NULL,
	payload        jsonb NOT NULL
);
CREATE PUBLICATION ` + Publication + ` FOR TABLE ` + Table + ` WITH (publish = 'insert');`

const createSlotSQL = `
SELECT pg_catalog.pg_create_logical_replication_slot('` + Slot + `', 'pgoutput')`

const dropSQL = `
DROP PUBLICATION IF EXISTS ` + Publication + `;
DROP SCHEMA IF EXISTS ` + Schema + ` CASCADE;`

const dropSlotSQL = `SELECT pg_catalog.pg_drop_replication_slot(slot_name)
FROM pg_catalog.pg_replication_slots WHERE slot_name = '` + Slot + `' AND NOT active`

// SetUp makes tables, publication, slot and topics, after removing what an earlier demo may have
// left.
func (d *Demo) SetUp(ctx context.Context) error {
	if err := d.exec(ctx, dropSlotSQL, dropSQL, createSQL, createSlotSQL); err != nil {
		return fmt.Errorf("set up the demo's tables: %w", err)
	}
	return d.withKafka(func(client *kafka.Client) error { return createTopics(ctx, client) })
}

// TearDown removes everything that SetUp and the relay made.
func (d *Demo) TearDown(ctx context.Context) error {
	return errors.Join(d.exec(ctx, dropSlotSQL, dropSQL), d.withKafka(func(c *kafka.Client) error {
		return DeleteTopics(ctx, c, Topics()...)
	}))
}

func (d *Demo) connect(ctx context.Context) (*pgx.Conn, error) {
	cfg := postgres.DefaultConfig()
	cfg.URL = secret.Of(d.dsn)
	return postgres.Connect(ctx, cfg)
}

func (d *Demo) exec(ctx context.Context, statements ...string) error {
	conn, err := d.connect(ctx)
	if err != nil {
		return err
	}
	defer postgres.Close(conn)
	for _, s := range statements {
		// Simple protocol: several statements in one string.
		if _, err := conn.Exec(ctx, s, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return nil
}

// Run writes, runs relay and reads back, until the configured end or until stop ends; then it
// waits for everything written, as long as something still arrives. It calls relay once, with the
// contexts of relay.Relay.Run, and writes nothing before ready reports that the relay streams, so
// that the latencies are those of a relay at work. report is called once a second.
func (d *Demo) Run(ctx, stop context.Context, relay func(kill, stop context.Context) error,
	ready func() bool, report func(Progress)) (Report, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	relayStop, stopRelay := context.WithCancel(context.WithoutCancel(ctx))
	defer stopRelay()

	var background sync.WaitGroup
	relayEnded := make(chan struct{})
	var relayErr error
	background.Go(func() {
		defer close(relayEnded)
		if relayErr = relay(ctx, relayStop); relayErr != nil {
			cancel(relayErr)
		}
	})
	consumer, err := Follow(ctx, d.brokers, Topics())
	if err != nil {
		stopRelay()
		background.Wait()
		return Report{}, err
	}
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	background.Go(func() {
		if err := consumer.Run(reading, d.received); err != nil {
			cancel(err)
		}
	})
	defer func() {
		stopRelay()
		stopReading()
		background.Wait()
		consumer.Close()
	}()

	for stop.Err() == nil && !ready() {
		if !WaitUntil(ctx, time.Now().Add(10*time.Millisecond)) {
			return Report{}, context.Cause(ctx)
		}
	}
	start := time.Now()
	background.Go(func() { d.reportProgress(reading, start, report) })
	if err := d.write(ctx, stop); err != nil {
		return Report{}, err
	}
	written, _ := d.tally.Counts()
	_ = AwaitProgress(ctx, Often, written, func() (int64, error) {
		_, delivered := d.tally.Counts()
		return delivered, nil
	}) // the relay's error, which ends ctx, is returned below
	seconds := time.Since(start).Seconds()
	stopRelay()
	<-relayEnded // drained and confirmed: all that it had in flight is in the topics now
	if relayErr != nil {
		return Report{}, relayErr
	}
	if err := d.readToTheEnd(ctx); err != nil {
		return Report{}, err
	}
	return d.report(seconds), nil
}

// reportProgress reports once a second until ctx ends.
func (d *Demo) reportProgress(ctx context.Context, start time.Time, report func(Progress)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p := Progress{Elapsed: time.Since(start)}
			p.Written, p.Delivered = d.tally.Counts()
			p.P50, p.P99 = d.meter.recent()
			report(p)
		case <-ctx.Done():
			return
		}
	}
}
