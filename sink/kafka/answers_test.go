package kafka

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/sink"
)

func framed(bodies ...int) (out []byte) {
	for _, n := range bodies {
		out = append(binary.BigEndian.AppendUint32(out, uint32(n)), make([]byte, n)...)
	}
	return out
}

func TestAnswers_FollowsLengthsHoweverTheyAreDivided(t *testing.T) {
	for _, piece := range []int{1, 2, 3, 5, 7, 64, 1 << 20} {
		a := answers{most: 5000}
		for rest := framed(10, 4, 4999, 5000, 7); len(rest) > 0; {
			n := min(piece, len(rest))
			require.NoError(t, a.follow(rest[:n]))
			rest = rest[n:]
		}
		require.Zero(t, a.left)
		require.Zero(t, a.have)
	}
}

func TestAnswers_RefusesWhatIsNoLength(t *testing.T) {
	a := answers{most: 5000}
	require.ErrorIs(t, a.follow([]byte("HTTP/1.1 400 Bad Request")), sink.ErrUnreachable)
	a = answers{most: 100 << 20}
	require.ErrorIs(t, a.follow([]byte{0, 0x10, 0, 1}), sink.ErrUnreachable,
		"the first answer is about versions")
	for length := range byte(4) {
		a = answers{most: 5000}
		require.ErrorIs(t, a.follow([]byte{0, 0, 0, length}), sink.ErrUnreachable,
			"without room for the number of the request")
	}
	a = answers{most: 5000}
	require.ErrorContains(t, a.follow([]byte{0xff, 0xff, 0xff, 0xff}), "is this a listener of Kafka")
}

// The first answer has shown that it is Kafka: the user needs the size, and what limits it.
func TestAnswers_RefusesALaterOneThatIsTooLarge(t *testing.T) {
	a := answers{most: 5000}
	require.NoError(t, a.follow(framed(10)))
	require.NoError(t, a.follow([]byte{0, 0}))
	err := a.follow([]byte{0x13, 0x89})
	require.ErrorIs(t, err, sink.ErrUnreachable)
	require.EqualError(t, err, "broker unreachable: an answer of 5001 bytes is larger than the "+
		"limit of 5000; set sink.kafka.max_message_bytes to the size of the largest batch in the topics")
}

// A broker before Kafka 1.0 answers PLAIN with an empty token.
func TestAnswers_FollowsTokensWithoutANumber(t *testing.T) {
	a := answers{most: 5000}
	require.NoError(t, a.follow(framed(10, 0, 2, 3, 7)))
	require.Zero(t, a.left)
}
