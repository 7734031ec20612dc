package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/postrider/postrider/sink"
)

// leastAnswer is the size of the request's number, with which the first answer of a connection
// begins. Later ones may be empty: the tokens of a login before Kafka 1.0 come without a number.
const leastAnswer = 4

// firstAnswer bounds the first answer of a connection: which versions of which requests the broker
// has, or the result of a login.
const firstAnswer = 1 << 20

// errNoAnswer is for bytes of another protocol.
var errNoAnswer = errors.New("no answer of Kafka")

// answers checks the length in front of each answer: clients allocate what it promises before
// they read. franz-go does up to the largest answer, also when it is not known who answers;
// sarama any.
type answers struct {
	most  int // bytes of one answer
	begun bool

	length [4]byte
	have   int   // bytes of it
	left   int64 // bytes of the answer that are still to come
}

// follow takes all that is read, in order. The error ends the connection.
func (a *answers) follow(p []byte) error {
	for len(p) > 0 {
		if a.left > 0 {
			n := min(a.left, int64(len(p)))
			a.left -= n
			p = p[n:]
			continue
		}
		n := copy(a.length[a.have:], p)
		a.have += n
		p = p[n:]
		if a.have < len(a.length) {
			return nil
		}
		least, most := 0, a.most
		if !a.begun {
			least, most = leastAnswer, firstAnswer
		}
		length := int(int32(binary.BigEndian.Uint32(a.length[:]))) //nolint:gosec // of the protocol
		if a.begun && length > most {
			return Advise(fmt.Errorf("%w: an answer of %d bytes is larger than the limit of %d",
				sink.ErrUnreachable, length, most),
				"set sink.kafka.max_message_bytes to the size of the largest batch in the topics")
		}
		if length < least || length > most {
			return fmt.Errorf("%w: %w: it begins with the bytes %q, which is no length: is this a "+
				"listener of Kafka, without TLS?", sink.ErrUnreachable, errNoAnswer, a.length[:])
		}
		a.begun, a.have, a.left = true, 0, int64(length)
	}
	return nil
}
