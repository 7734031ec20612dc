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
	line = appendString(append(line, `{"topic":`...), m.Topic)
	if m.Partition != sink.ByKey {
		line = strconv.AppendInt(append(line, `,"partition":`...), int64(m.Partition), 10)
	}
	line = appendBytes(append(line, ','), "key", m.Key)
	line = appendBytes(append(line, ','), "value", m.Value)
	for i, h := range m.Headers {
		if i == 0 {
			line = append(line, `,"headers":[`...)
		} else {
			line = append(line, ',')
		}
		line = appendString(append(line, `{"key":`...), h.Key)
		line = appendBytes(append(line, ','), "value", h.Value)
		line = append(line, '}')
	}
	if len(m.Headers) > 0 {
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
	line = append(append(line, '"'), name...)
	switch {
	case b == nil:
		return append(line, `":null`...)
	case utf8.Valid(b):
		return appendString(append(line, `":`...), string(b))
	}
	line = base64.StdEncoding.AppendEncode(append(line, `_base64":"`...), b)
	return append(line, '"')
}

// appendString quotes s. Marshalling a string cannot fail.
func appendString(line []byte, s string) []byte {
	quoted, _ := json.Marshal(s)
	return append(line, quoted...)
}
