package kafka

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/jackc/pglogrepl"
	"github.com/rs/zerolog"

	"github.com/postrider/postrider/sink"
)

// storedPosition is the value of a record in relay.position_topic; its key is positionKey.
type storedPosition struct {
	LSN        string    `json:"lsn"`         // commit end, in PostgreSQL's text form
	CommitTime time.Time `json:"commit_time"` // of the newest transaction
	Timeline   int32     `json:"timeline"`
	SystemID   string    `json:"system_id"`
	Database   string    `json:"database"`
	Slot       string    `json:"slot"`
	Events     string    `json:"events,omitempty"` // which ones the server sent
}

// positionKey names a source whatever its timeline: a failover goes on with the record of the old primary, whose timeline says so.
func positionKey(s sink.Source) string { return s.SystemID + "/" + s.Database + "/" + s.Slot }

func encodePosition(p sink.Position) []byte {
	value, err := json.Marshal(storedPosition{
		LSN: p.LSN.String(), CommitTime: p.CommitTime.UTC(), Timeline: p.Source.Timeline,
		SystemID: p.Source.SystemID, Database: p.Source.Database, Slot: p.Source.Slot, Events: p.Source.Events,
	})
	if err != nil {
		panic(err) // strings and numbers only; the year of a commit is PostgreSQL's
	}
	return value
}

func decodePosition(value []byte) (sink.Position, error) {
	var v storedPosition
	if err := json.Unmarshal(value, &v); err != nil {
		return sink.Position{}, err
	}
	lsn, err := pglogrepl.ParseLSN(v.LSN)
	if err != nil {
		return sink.Position{}, err
	}
	return sink.Position{
		Source: sink.Source{SystemID: v.SystemID, Timeline: v.Timeline, Database: v.Database, Slot: v.Slot, Events: v.Events},
		LSN:    lsn, CommitTime: v.CommitTime,
	}, nil
}

// ReadPosition returns what exactly_once has stored for a source, the zero Position if nothing. It shuts out nobody. Errors are those of Open;
// sink.ErrUnknownTopic: there is no such topic yet.
func ReadPosition(ctx context.Context, cfg Config, topic string, source sink.Source) (sink.Position, error) {
	if err := cfg.Validate(); err != nil {
		return sink.Position{}, err
	}
	if _, err := cfg.reach(ctx); err != nil {
		return sink.Position{}, err
	}
	silence()
	p := &Progress{cfg: cfg, topic: topic, dialer: newDialer(&cfg)}
	defer p.Close()
	var found positions
	err := p.within(ctx, func() error {
		if err := p.connect(); err != nil {
			return err
		}
		_, err := p.topics.count(topic)
		return errors.Join(err, p.administer())
	})
	if err == nil {
		found, err = p.positions(ctx)
	}
	if err != nil {
		return sink.Position{}, fmt.Errorf("read relay.position_topic %q at %s: %w", topic, cfg.bootstrap(), err)
	}
	return found.of(topic, source)
}

// openPositions connects, and creates the topic if there is none.
func openPositions(ctx context.Context, cfg Config, topic string, log zerolog.Logger) (*Progress, error) {
	silence()
	p := &Progress{cfg: cfg, topic: topic, dialer: newDialer(&cfg)}
	err := p.within(ctx, func() error {
		if err := p.connect(); err != nil {
			return err
		}
		return p.ensure(log)
	})
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("open relay.position_topic %q at %s: %w", topic, cfg.bootstrap(), err)
	}
	return p, nil
}

// positions are the newest values of each key in a topic.
type positions struct {
	committed map[string][]byte
	// open holds by producer id what stands in transactions that were neither committed nor aborted when the topic was read.
	open map[int64]map[string][]byte
}

// positions reads the topic to its end. It does not stop, as a reader of committed records does, in front of the transaction of another relay
// that was killed: that one may stay open until sink.kafka.transaction_timeout. Instead it reads on, and judges each transaction by its own marker.
func (p *Progress) positions(ctx context.Context) (positions, error) {
	found := positions{committed: map[string][]byte{}, open: map[int64]map[string][]byte{}}
	ends, err := p.Ends(ctx, []string{p.topic})
	if err != nil || len(ends[p.topic]) == 0 {
		return found, err
	}
	end := ends[p.topic][progressPartition]
	err = p.readBatches(ctx, p.topic, progressPartition, 0, end, found.add)
	if err != nil {
		return found, fmt.Errorf("read partition %d of topic %q: %w", progressPartition, p.topic, err)
	}
	return found, nil
}

// The types of markers, as Kafka numbers them.
const (
	markerAbort  = 0
	markerCommit = 1
)

func (f positions) add(b *sarama.RecordBatch) {
	for _, r := range b.Records {
		switch {
		case b.Control && len(r.Key) >= 4: // version and type
			switch binary.BigEndian.Uint16(r.Key[2:]) {
			case markerCommit:
				for key, value := range f.open[b.ProducerID] {
					f.committed[key] = value
				}
				delete(f.open, b.ProducerID)
			case markerAbort:
				delete(f.open, b.ProducerID)
			}
		case b.Control:
		case b.IsTransactional:
			if f.open[b.ProducerID] == nil {
				f.open[b.ProducerID] = map[string][]byte{}
			}
			f.open[b.ProducerID][string(r.Key)] = r.Value
		default: // nobody of ours writes so, but an operator may with the tools of Kafka
			f.committed[string(r.Key)] = r.Value
		}
	}
}

func (f positions) of(topic string, source sink.Source) (sink.Position, error) {
	value := f.committed[positionKey(source)]
	if value == nil {
		return sink.Position{}, nil // or a tombstone
	}
	p, err := decodePosition(value)
	if err != nil {
		return sink.Position{}, advise(fmt.Errorf("position of %s in topic %q cannot be read: %w", positionKey(source), topic, err),
			"see what stands there: kafka-console-consumer.sh --topic %s --from-beginning --property print.key=true", topic)
	}
	return p, nil
}

var errOpenTransaction = errors.New("a transaction of this relay is still open in it, though its producer has been shut out")

// settled is of, when no other producer of the source can be there any more.
func (f positions) settled(topic string, source sink.Source) (sink.Position, error) {
	for _, unsettled := range f.open {
		if _, ours := unsettled[positionKey(source)]; ours {
			return sink.Position{}, fmt.Errorf("topic %q: %w", topic, errOpenTransaction)
		}
	}
	return f.of(topic, source)
}

// relatives are the keys of the same database and slot on other systems.
func (f positions) relatives(source sink.Source) []string {
	var keys []string
	for key := range f.committed {
		if strings.HasSuffix(key, "/"+source.Database+"/"+source.Slot) && key != positionKey(source) {
			keys = append(keys, key)
		}
	}
	return keys
}
