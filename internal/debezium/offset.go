package debezium

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pglogrepl"

	"github.com/postrider/postrider/replication"
)

// Offset is a connector's stored position: the place in the stream of its slot after the last
// record that Kafka has acknowledged. Everything before it was published, or was not to be
// published.
type Offset struct {
	LSN  uint64 // of the last message of the stream; several may share one
	TxID uint32 // of its transaction; zero: a message outside of one
	// Type is INSERT, UPDATE, DELETE, TRUNCATE, MESSAGE, BEGIN or COMMIT; empty before Debezium 1.9.
	Type     string
	Events   uint64 // how many rows at LSN were processed; zero: not known, as before Debezium 3.7
	Snapshot bool   // of the last row of a snapshot: nothing of the stream was published yet
}

// storedOffset is an offset as Debezium writes it.
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

// ParseOffset reads the answer of GET /connectors/NAME/offsets, a single offset from the topic of
// offsets, or the file that Debezium Server and standalone workers keep.
func ParseOffset(data []byte) (none Offset, err error) {
	data = bytes.TrimSpace(data)
	if len(data) == 0 {
		return none, errors.New("nothing in it: give what GET /connectors/NAME/offsets answers")
	}
	if bytes.HasPrefix(data, serialized) {
		if data, err = inFile(data); err != nil {
			return none, err
		}
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(data, &members); err != nil {
		return none, fmt.Errorf("not the JSON of offsets: %w", err)
	}
	if members["offsets"] == nil {
		var alone storedOffset
		if err := json.Unmarshal(data, &alone); err != nil {
			return none, fmt.Errorf("not an offset of Debezium's PostgreSQL connector: %w", err)
		}
		return alone.offset()
	}
	var all []struct {
		Partition struct {
			Server string `json:"server"`
		} `json:"partition"`
		Offset *storedOffset `json:"offset"`
	}
	if err := json.Unmarshal(members["offsets"], &all); err != nil {
		return none, fmt.Errorf("not the offsets of Debezium's PostgreSQL connector: %w", err)
	}
	switch {
	case len(all) == 0:
		return none, errNoOffset
	case len(all) > 1:
		var servers []string
		for _, o := range all {
			servers = append(servers, fmt.Sprintf("%q", o.Partition.Server))
		}
		return none, fmt.Errorf("several offsets, of the servers %s: give the one object of the "+
			"connector that used the slot", strings.Join(servers, ", "))
	case all[0].Offset == nil:
		return none, errors.New("the offset is null: it was reset")
	}
	return all[0].Offset.offset()
}

// messageTypes has pgoutput's letter for each messageType.
var messageTypes = map[string]byte{"INSERT": 'I', "UPDATE": 'U', "DELETE": 'D', "TRUNCATE": 'T',
	"MESSAGE": 'M', "BEGIN": 'B', "COMMIT": 'C'}

func (s *storedOffset) offset() (none Offset, err error) {
	running := s.Snapshot != nil && s.Snapshot != false && s.Snapshot != "false"
	switch {
	case s.Type != "" && messageTypes[s.Type] == 0:
		return none, fmt.Errorf("messageType %q is none that Debezium's PostgreSQL connector is known "+
			"to write", s.Type)
	case s.LSN == nil || *s.LSN == 0:
		return none, errors.New("no lsn in it: not an offset of Debezium's PostgreSQL connector")
	case running && !s.LastOfSnapshot && !s.SnapshotCompleted:
		return none, errors.New("the connector was stopped within its snapshot: let it complete, or " +
			"publish the rows with [snapshot]")
	case s.Incremental != "":
		return none, errors.New("the connector was stopped within an incremental snapshot: let it " +
			"complete, or end it with a signal, then stop the connector")
	}
	return Offset{LSN: *s.LSN, TxID: uint32(s.TxID), Type: s.Type, Events: s.Events,
		Snapshot: running}, nil
}

// LastEvent returns the last event of the slot's stream that was published.
func (o Offset) LastEvent() (none replication.LastEvent, err error) {
	letter, known := messageTypes[o.Type]
	switch {
	case o.Snapshot:
		return none, errors.New("it is of the end of a snapshot: nothing of the slot's stream was " +
			"published yet")
	case !known:
		return none, errors.New("it does not say what the last event was: none of the stream came " +
			"yet, or the connector is older than Debezium 1.9")
	}
	return replication.LastEvent{Type: letter, XID: o.TxID, LSN: pglogrepl.LSN(o.LSN),
		Count: int64(o.Events), BeginCounts: true}, nil
}

var errNoOffset = errors.New("no offset is stored: the connector has published nothing yet, or " +
	"it was deleted")

// serialized is how a Java object on disk begins.
var serialized = []byte{0xac, 0xed, 0, 5}

// inFile finds the offset among the serialized keys and values of a file: all of them are JSON,
// and only an offset has an lsn.
func inFile(rest []byte) (found []byte, err error) {
	for i := bytes.IndexByte(rest, '{'); i >= 0; i = bytes.IndexByte(rest, '{') {
		rest = rest[i:]
		var document json.RawMessage
		if json.NewDecoder(bytes.NewReader(rest)).Decode(&document) != nil {
			rest = rest[1:]
			continue
		}
		rest = rest[len(document):]
		var o storedOffset
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
