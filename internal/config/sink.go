package config

import (
	"fmt"

	"github.com/postrider/postrider/sink/kafka"
)

// The values of sink.kind.
const (
	SinkKafka  = "kafka"
	SinkStdout = "stdout" // JSON lines, to see what would be published
)

// Sink is the section [sink]: one kind, and a sub-section per kind.
type Sink struct {
	Kind  string       `toml:"kind"`
	Kafka kafka.Config `toml:"kafka"`
}

func defaultSink() Sink {
	return Sink{Kind: SinkKafka, Kafka: kafka.DefaultConfig()}
}

// Validate checks the sub-section of the chosen kind alone.
func (s Sink) Validate() error {
	switch s.Kind {
	case SinkKafka:
		return s.Kafka.Validate()
	case SinkStdout:
		return nil
	}
	return fmt.Errorf("sink.kind is %q: it must be %s or %s", s.Kind, SinkKafka, SinkStdout)
}
