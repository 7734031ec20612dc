package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/postrider/postrider/internal/embedded"
	"github.com/postrider/postrider/internal/embedded/child"
)

// Broker is a stand-in for Kafka in a process of its own, so that its CPU is not that of the load.
// Rates and CPU of a real broker differ.
type Broker struct {
	Address string // host:port
	PID     int

	proc  *child.Process
	stdin io.Closer
}

// StartBroker runs a command that calls ServeBroker. The caller must Close the broker.
func StartBroker(ctx context.Context, command ...string) (*Broker, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C does not reach it
	out, log := &child.Output{}, &child.Output{}
	cmd.Stdout, cmd.Stderr = out, log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	proc, err := child.Start(cmd, syscall.SIGKILL)
	if err != nil {
		return nil, err
	}
	b := &Broker{PID: proc.PID, proc: proc, stdin: stdin}
	for !strings.HasSuffix(out.String(), "\n") {
		switch {
		case !proc.Running():
			return nil, fmt.Errorf("the broker's process ended: %w\n%s", proc.End(), log.LastLines(5))
		case !pause(ctx, 2*time.Millisecond):
			b.Close()
			return nil, context.Cause(ctx)
		}
	}
	b.Address = strings.TrimSpace(out.String())
	return b, nil
}

// Close ends the broker and waits for its end. Its records are gone.
func (b *Broker) Close() {
	_ = b.stdin.Close()
	_ = b.proc.Kill()
}

// ServeBroker starts a broker, prints its address, and blocks until stdin ends.
func ServeBroker(stdin io.Reader, stdout io.Writer) error {
	broker, err := embedded.StartKafka(embedded.KafkaConfig{})
	if err != nil {
		return err
	}
	defer broker.Close()
	const produce = 0
	broker.Cluster.ControlKey(produce, func(request kmsg.Request) (kmsg.Response, error, bool) {
		stampAppendTime(request)
		return nil, nil, false
	})
	fmt.Fprintln(stdout, strings.Join(broker.Brokers(), ","))
	_, err = io.Copy(io.Discard, stdin)
	return err
}

// stampAppendTime writes the time into the batches as the largest of their records, where a reader
// finds that of a topic with message.timestamp.type = LogAppendTime. The library ignores the
// topic's setting, and writes no checksum for batches that are marked themselves.
func stampAppendTime(request kmsg.Request) {
	produce, ok := request.(*kmsg.ProduceRequest)
	if !ok {
		return
	}
	const crcAt, attributesAt, maxTimestampAt = 17, 21, 35 // of a batch in format 2
	now := uint64(time.Now().UnixMilli())                  //nolint:gosec // after 1970
	for _, t := range produce.Topics {
		for _, p := range t.Partitions {
			if batch := p.Records; len(batch) > maxTimestampAt+8 {
				binary.BigEndian.PutUint64(batch[maxTimestampAt:], now)
				binary.BigEndian.PutUint32(batch[crcAt:],
					crc32.Checksum(batch[attributesAt:], castagnoli))
			}
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
