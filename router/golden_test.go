package router

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/sink"
)

// testdata/rows.json holds records of Debezium beside the rows they came from, as the server sends them: the columns with type OID,
// modifier and key flag, what the catalog has about the table, and the values in text form. The whole way through
// PostgreSQL and a broker is the conformance suite's; here the mapping alone is checked, without either.
type goldenFile struct {
	Relations []struct {
		OID     uint32
		Name    string
		Columns []string
		Table   *Table
	}
	Cases []goldenCase
}

type goldenCase struct {
	ID        string
	Options   map[string]string
	Format    [3]string
	Decode    bool // logical messages carry rows
	Relations []int
	Rows      []struct {
		Of              int
		Values          []*string
		Prefix, Content string
	}
	Fails   bool
	Records []struct {
		Topic     string
		Key       goldenBytes
		Value     goldenBytes
		Headers   [][2]goldenBytes
		Time      any
		Partition *int32
	}
}

type goldenBytes []byte

func (g *goldenBytes) UnmarshalJSON(b []byte) error {
	var s *string
	if err := json.Unmarshal(b, &s); err == nil {
		*g = nil
		if s != nil {
			*g = goldenBytes(*s)
			if *g == nil {
				*g = goldenBytes{}
			}
		}
		return nil
	}
	var o struct{ Base64 string }
	if err := json.Unmarshal(b, &o); err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(o.Base64)
	*g = raw
	return err
}

// setOptions sets options by their names, as a configuration file does.
func setOptions(t *testing.T, c *Config, options map[string]string) {
	t.Helper()
	v := reflect.ValueOf(c).Elem()
	for name, value := range options {
		found := false
		for i := range v.NumField() {
			if v.Type().Field(i).Tag.Get("toml") != name {
				continue
			}
			found = true
			if f := v.Field(i); f.Kind() == reflect.Bool {
				b, err := strconv.ParseBool(strings.ToLower(value))
				require.NoError(t, err, name)
				f.SetBool(b)
			} else {
				f.SetString(value)
			}
		}
		require.True(t, found, "option %s", name)
	}
}

func TestRoute_EqualsTheRecordsOfDebezium(t *testing.T) {
	raw, err := os.ReadFile("testdata/rows.json")
	require.NoError(t, err)
	var file goldenFile
	require.NoError(t, json.Unmarshal(raw, &file))
	require.NotEmpty(t, file.Cases)
	for i := range file.Cases {
		c := &file.Cases[i]
		t.Run(c.ID, func(t *testing.T) { checkGolden(t, &file, c) })
	}
}

func checkGolden(t *testing.T, file *goldenFile, c *goldenCase) {
	cfg := DefaultConfig()
	// Everything that postrider does differently on purpose is switched to Debezium's way.
	cfg.TopicPrefix = "pg"
	cfg.NullKey, cfg.NullDefaults, cfg.JavaText, cfg.StrictTypes, cfg.FirstSchemaName = "publish", true, true, true, true

	setOptions(t, &cfg, c.Options)
	opts := Options{Tables: []string{"public.outbox"}}
	if c.Decode {
		opts.MessagePrefixes = []string{"foo", "other"}
	}
	relations := make([]*replication.Relation, len(c.Relations))
	tables := map[uint32]*Table{}
	for i, at := range c.Relations {
		r := file.Relations[at]
		schema, name, _ := strings.Cut(r.Name, ".")
		rel := &replication.Relation{OID: 16400 + uint32(i), Namespace: schema, Name: name}
		for _, column := range r.Columns {
			part := strings.Split(column, ":")
			oid, err := strconv.ParseUint(part[1], 10, 32)
			require.NoError(t, err)
			mod, err := strconv.ParseInt(part[2], 10, 32)
			require.NoError(t, err)
			rel.Columns = append(rel.Columns, replication.Column{Name: part[0], TypeOID: uint32(oid), TypeMod: int32(mod), Key: part[3] == "true"})
		}
		relations[i] = rel
		tables[rel.OID] = r.Table
	}
	opts.Describe = func(oid, _ uint32) (*Table, error) { return tables[oid], nil }

	r, err := New([]Config{cfg}, Format{Key: c.Format[0], Value: c.Format[1], Headers: c.Format[2]}, opts)
	if err != nil {
		require.True(t, c.Fails, "refused: %v", err)
		return
	}
	var got []*sink.Message
	var failure error
	for _, row := range c.Rows {
		ev := &replication.Event{Kind: replication.Message, Time: committed, Prefix: row.Prefix, Content: []byte(row.Content)}
		if row.Prefix == "" {
			ev.Kind, ev.Relation = replication.Insert, relations[row.Of]
			for _, v := range row.Values {
				if v == nil {
					ev.Values = append(ev.Values, nil)
				} else {
					ev.Values = append(ev.Values, []byte(*v))
				}
			}
		}
		m, err := r.Route(ev)
		if failure = err; err != nil {
			break
		}
		if m != nil {
			got = append(got, m)
		}
	}
	require.Equal(t, c.Fails, failure != nil, "failure: %v", failure)
	require.Len(t, got, len(c.Records))
	for i, want := range c.Records {
		m := got[i]
		require.Equal(t, want.Topic, m.Topic)
		requireBytes(t, want.Key, m.Key, "key")
		requireBytes(t, want.Value, m.Value, "value")
		require.Len(t, m.Headers, len(want.Headers))
		for j, h := range want.Headers {
			require.Equal(t, string(h[0]), m.Headers[j].Key)
			requireBytes(t, h[1], m.Headers[j].Value, "header "+string(h[0]))
		}
		switch when := want.Time.(type) {
		case nil:
			require.Equal(t, committed, m.Timestamp)
		case string:
			require.Zero(t, m.Timestamp)
		case float64:
			require.Equal(t, int64(when), m.Timestamp.UnixMilli())
		}
		if want.Partition == nil {
			require.Equal(t, sink.ByKey, m.Partition)
		} else {
			require.Equal(t, *want.Partition, m.Partition)
		}
	}
}

func requireBytes(t *testing.T, want goldenBytes, got []byte, what string) {
	t.Helper()
	require.Equal(t, want == nil, got == nil, "%s: null or not", what)
	require.Equal(t, string(want), string(got), what)
}
