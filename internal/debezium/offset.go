package debezium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// Offset is a connector's stored position: the place in the stream of its slot after the last
// record that Kafka has acknowledged. Everything before it was published, or was not to be
// published.
type Offset struct {
	Server string // topic.prefix of the connector; empty: not known
	LSN    uint64 // of the last message of the stream; several may share one
	TxID   uint32 // of its transaction; zero: a message outside of one
	// Type is INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE, BEGIN or COMMIT; empty before Debezium 1.9.
	Type     string
	Events   uint64 // how many rows at LSN were processed; zero: not known, as before Debezium 3.7
	Snapshot bool   // of the last row of a snapshot: nothing of the stream was published yet
}

type storedOffset struct {
	LSN    *uint64 `json:"lsn"`
	TxID   uint64  `json:"txId"`
	Type   string  `json:"messageType"`
	Events uint64  `json:"lsn_events_processed"`

	Snapshot          any    `json:"snapshot"` // a kind, once a boolean
	LastOfSnapshot    bool   `json:"last_snapshot_record"`
	SnapshotCompleted bool   `json:"snapshot_completed"`
	Incremental       string `json:"incremental_snapshot_collections"`
}

type storedOffsets struct {
	Offsets []struct {
		Partition struct {
			Server string `json:"server"`
		} `json:"partition"`
		Offset *storedOffset `json:"offset"`
	} `json:"offsets"`
}

// ParseOffset reads the answer of GET /connectors/NAME/offsets, a single offset from the topic of
// offsets, or the file that Debezium Server and standalone workers keep.
func ParseOffset(data []byte) (Offset, error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return Offset{}, errors.New("nothing in it: give what GET /connectors/NAME/offsets answers")
	}
	if bytes.HasPrefix(data, serialized) {
		var err error
		if data, err = inFile(data); err != nil {
			return Offset{}, err
		}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return Offset{}, fmt.Errorf("not the JSON of offsets: %w", err)
	}
	if members["offsets"] == nil {
		var alone storedOffset
		if err := json.Unmarshal(data, &alone); err != nil {
			return Offset{}, fmt.Errorf("not an offset of Debezium's PostgreSQL connector: %w", err)
		}
		return alone.offset("")
	}
	var all storedOffsets
	if err := json.Unmarshal(data, &all); err != nil {
		return Offset{}, fmt.Errorf("not the offsets of Debezium's PostgreSQL connector: %w", err)
	}
	switch len(all.Offsets) {
	case 0:
		return Offset{}, errNoOffset
	case 1:
	default:
		var servers []string
		for _, o := range all.Offsets {
			servers = append(servers, fmt.Sprintf("%q", o.Partition.Server))
		}
		return Offset{}, fmt.Errorf("several offsets, of the servers %s: give the one object of the "+
			"connector that used the slot", strings.Join(servers, ", "))
	}
	if all.Offsets[0].Offset == nil {
		return Offset{}, errors.New("the offset is null: it was reset")
	}
	return all.Offsets[0].Offset.offset(all.Offsets[0].Partition.Server)
}

func (s *storedOffset) offset(server string) (Offset, error) {
	switch s.Type {
	case "", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "MESSAGE", "BEGIN", "COMMIT":
	default:
		return Offset{}, fmt.Errorf("messageType %q is none that Debezium's PostgreSQL connector is "+
			"known to write", s.Type)
	}
	running := s.Snapshot != nil && s.Snapshot != false && s.Snapshot != "false"
	switch {
	case s.LSN == nil || *s.LSN == 0:
		return Offset{}, errors.New("no lsn in it: not an offset of Debezium's PostgreSQL connector")
	case running && !s.LastOfSnapshot && !s.SnapshotCompleted:
		return Offset{}, errors.New("the connector was stopped within its snapshot: let it complete, " +
			"or publish the rows with [snapshot]")
	case s.Incremental != "":
		return Offset{}, errors.New("the connector was stopped within an incremental snapshot: let it " +
			"complete, or end it with a signal, then stop the connector")
	}
	return Offset{
		Server: server, LSN: *s.LSN, TxID: uint32(s.TxID), Type: s.Type, Events: s.Events,
		Snapshot: running,
	}, nil
}

var errNoOffset = errors.New("no offset is stored: the connector has published nothing yet, or " +
	"it was deleted")

// serialized is how a Java object on disk begins.
var serialized = []byte{0xac, 0xed, 0, 5}

// inFile finds the offset among the serialized keys and values of a file: all of them are JSON,
// and only an offset has an lsn.
func inFile(data []byte) ([]byte, error) {
	var found []byte
	for rest := data; ; {
		i := bytes.IndexByte(rest, '{')
		if i < 0 {
			break
		}
		rest = rest[i:]
		var document json.RawMessage
		var o struct {
			LSN *uint64 `json:"lsn"`
		}
		if json.NewDecoder(bytes.NewReader(rest)).Decode(&document) != nil {
			rest = rest[1:]
			continue
		}
		rest = rest[len(document):]
		if json.Unmarshal(document, &o) != nil || o.LSN == nil {
			continue
		}
		if found != nil {
			return nil, errors.New("several offsets in the file: give the one JSON object of the " +
				"connector that used the slot")
		}
		found = document
	}
	if found == nil {
		return nil, errNoOffset
	}
	return found, nil
}
