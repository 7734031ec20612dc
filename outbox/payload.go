package outbox

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
)

// payloadBytes returns the payload as it is stored in a column of that type; nil is NULL.
func payloadBytes(columnType string, payload any) ([]byte, error) {
	var raw []byte
	switch p := payload.(type) {
	case nil:
		return nil, nil
	case []byte:
		raw = p
	case json.RawMessage:
		raw = p
	case string:
		raw = []byte(p)
	case proto.Message:
		return protoBytes(columnType, p)
	default:
		return marshalJSON(payload)
	}
	switch {
	case raw == nil:
		return nil, nil
	case columnType == Bytea:
	case columnType == Text:
		if !utf8.Valid(raw) {
			return nil, errors.New("the payload is not UTF-8, and the column is of type text: " +
				"write it to a column of type bytea, with Config.PayloadType set to Bytea")
		}
	default:
		if err := validJSON(raw); err != nil {
			return nil, err
		}
	}
	return raw, nil
}

func protoBytes(columnType string, message proto.Message) ([]byte, error) {
	if columnType == Bytea {
		b, err := proto.Marshal(message)
		if b == nil && err == nil {
			b = []byte{} // a message whose fields are all unset, not NULL
		}
		return b, err
	}
	return protojson.Marshal(message)
}

func validJSON(raw []byte) error {
	if !utf8.Valid(raw) {
		return errors.New("the payload is not UTF-8: write bytes to a column of type bytea, with " +
			"Config.PayloadType set to Bytea")
	}
	var document json.RawMessage
	if err := json.Unmarshal(raw, &document); err != nil {
		return fmt.Errorf("the payload is not JSON: %w: strings and bytes are taken as JSON, so "+
			"pass a Go value to have it encoded, or set Config.PayloadType to Text or Bytea", err)
	}
	return nil
}

// marshalJSON is json.Marshal without the escapes for HTML.
func marshalJSON(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// appendPayload appends the payload as JSON, as statement.go reads it.
func appendPayload(dst []byte, columnType string, stored []byte) []byte {
	switch columnType {
	case Bytea:
		dst = append(dst, '"')
		return append(base64.StdEncoding.AppendEncode(dst, stored), '"')
	case Text:
		return appendString(dst, string(stored))
	}
	return append(dst, stored...)
}
