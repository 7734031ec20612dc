package registry

import (
	"encoding/binary"

	"github.com/postrider/postrider/router/connect"
)

// The values of Config.Framing: what stands before each value.
const (
	// Confluent is byte 0 and the schema's id in 4 bytes; in Protobuf, the message's place follows.
	// It is the framing of Apicurio's serializers 3, and of those before with as-confluent, as well.
	Confluent = "confluent"
	// Apicurio is byte 0 and the schema's id in 8 bytes; in Protobuf, a message with the name of the
	// value's message follows. It is the default of Apicurio's serializers 2, and that of the later
	// ones with Legacy8ByteIdHandler.
	Apicurio = "apicurio"
	// Glue is byte 3, a byte for compression, which is 0, and the id in 16 bytes.
	Glue = "glue"
)

// Framings are all of them.
var Framings = []string{Confluent, Apicurio, Glue}

// magic is the first byte of the framings of Confluent and Apicurio.
const magic = 0

// appendHeader appends what stands before a value of the schema with an id.
func appendHeader(dst []byte, framing string, id int) []byte {
	dst = append(dst, magic)
	if framing == Apicurio {
		return binary.BigEndian.AppendUint64(dst, uint64(id)) //nolint:gosec // ids are positive
	}
	return binary.BigEndian.AppendUint32(dst, uint32(id)) //nolint:gosec // the registry's ids fit
}

// readHeader returns the id that stands before a value, and whether there is one.
func readHeader(b []byte, framing string) (id int, found bool) {
	length := 1 + binary.Size(uint32(0))
	if framing == Apicurio {
		length = 1 + binary.Size(uint64(0))
	}
	if len(b) < length || b[0] != magic {
		return 0, false
	}
	for _, digit := range b[1:length] {
		id = id<<8 | int(digit)
	}
	return id, id >= 0
}

func errNotFramed() error {
	return connect.Unwritable("have the application write what a serializer for the registry "+
		"returns", "the bytes do not begin with a schema id")
}

func errOtherSubject(id, subject string) error {
	if subject == "" {
		return connect.Unwritable("have the application register its schema",
			"its schema id %s is not in the registry", id)
	}
	return connect.Unwritable("have the application register its schema under that subject",
		"its schema id %s is none of subject %s", id, subject)
}
