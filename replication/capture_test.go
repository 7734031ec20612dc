package replication_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/test/parts"
)

var capture = flag.Bool("capture", false, "write what each version of PostgreSQL sends to testdata/fuzz/FuzzDecode")

// TestCapture_Seeds makes the seeds of FuzzDecode: one file for each kind of message of each version.
func TestCapture_Seeds(t *testing.T) {
	for _, version := range versions {
		t.Run(version, func(t *testing.T) {
			x := newTable(t, version)
			conn, err := pgconn.ConnectConfig(t.Context(), x.pg())
			require.NoError(t, err)
			defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
			require.NoError(t, pglogrepl.StartReplication(t.Context(), conn, x.slot, 0, pglogrepl.StartReplicationOptions{
				Mode: pglogrepl.LogicalReplication, PluginArgs: []string{"proto_version '2'", "publication_names 'postrider'", "messages 'true'"},
			}))
			x.exec(`ALTER PUBLICATION postrider SET (publish = 'insert, update, delete, truncate')`)
			x.exec(`ALTER TABLE outbox REPLICA IDENTITY FULL`)
			x.exec(`SELECT pg_logical_emit_message(false, 'outbox', 'alone')`)
			x.exec(`DO $$ BEGIN
				INSERT INTO outbox VALUES (1, NULL), (2, 'text');
				UPDATE outbox SET payload = 'changed' WHERE n = 2;
				DELETE FROM outbox WHERE n = 1;
				PERFORM pg_logical_emit_message(true, 'outbox', 'within');
				TRUNCATE outbox;
			END $$`)
			ctx, cancel := context.WithTimeout(t.Context(), parts.Patience)
			defer cancel()
			seen := map[byte]bool{}
			for !seen['C'] || !seen['T'] {
				m, err := conn.ReceiveMessage(ctx)
				require.NoError(t, err)
				data, ok := m.(*pgproto3.CopyData)
				if !ok || data.Data[0] != pglogrepl.XLogDataByteID {
					continue
				}
				msg := data.Data[25:]
				if typ := msg[0]; !seen[typ] && (typ != 'C' || seen['T']) {
					seen[typ] = true
					if *capture {
						dir := filepath.Join("testdata", "fuzz", "FuzzDecode")
						require.NoError(t, os.MkdirAll(dir, 0o750))
						require.NoError(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("postgres-%s-%c", version, typ)),
							fmt.Appendf(nil, "go test fuzz v1\n[]byte(%q)\n", msg), 0o600))
					}
				}
			}
			for _, typ := range []byte("BRIUDTMC") {
				require.True(t, seen[typ], "no message %c", typ)
			}
		})
	}
}
