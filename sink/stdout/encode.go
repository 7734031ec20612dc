package stdout

import (
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/sink"
)

const timestampFormat = "2006-01-02T15:04:05.000Z07:00"

// Encode appends the message to line as one JSON object, without a line end, and returns the
// longer line. Its members:
//
//	topic
//	partition    the explicit one; absent when it follows from the key
//	key, value   a string, or null
//	headers      an array of {"key": ..., "value": ...}, in order; absent when there are none
//	timestamp    RFC 3339 with milliseconds, UTC; absent when the producer's clock decides
//
// Bytes that are not UTF-8 stand as base64 under key_base64 or value_base64 instead of key or
// value.
func Encode(line []byte, m *sink.Message) []byte {
	line = append(line, `{"topic":`...)
	line = appendString(line, m.Topic)
	if m.Partition != sink.ByKey {
		line = append(line, `,"partition":`...)
		line = strconv.AppendInt(line, int64(m.Partition), 10)
	}
	line = append(line, ',')
	line = appendBytes(line, "key", m.Key)
	line = append(line, ',')
	line = appendBytes(line, "value", m.Value)
	if len(m.Headers) > 0 {
		line = append(line, `,"headers":[`...)
		for i, h := range m.Headers {
			if i > 0 {
				line = append(line, ',')
			}
			line = append(line, `{"key":`...)
			line = appendString(line, h.Key)
			line = append(line, ',')
			line = appendBytes(line, "value", h.Value)
			line = append(line, '}')
		}
		line = append(line, ']')
	}
	if !m.Timestamp.IsZero() {
		line = append(line, `,"timestamp":"`...)
		line = m.Timestamp.In(time.UTC).AppendFormat(line, timestampFormat)
		line = append(line, '"')
	}
	return append(line, '}')
}

func appendBytes(line []byte, name string, b []byte) []byte {
	line = append(line, '"')
	line = append(line, name...)
	switch {
	case b == nil:
		return append(line, `":null`...)
	case utf8.Valid(b):
		line = append(line, `":`...)
		return appendString(line, string(b))
	default:
		line = append(line, `_base64":"`...)
		line = base64.StdEncoding.AppendEncode(line, b)
		return append(line, '"')
	}
}

// appendString quotes s. Marshalling a string cannot fail.
func appendString(line []byte, s string) []byte {
	quoted, _ := json.Marshal(s)
	return append(line, quoted...)
}
