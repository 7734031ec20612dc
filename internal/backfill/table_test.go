package backfill

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/test/parts/testdb"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/rs/zerolog"
	"github.com/stretchr/testify/require"

	"github.com/postrider/postrider/internal/postgres"
	"github.com/postrider/postrider/replication"
	"github.com/postrider/postrider/slot"
	"github.com/postrider/postrider/test/parts"
)

func (p *place) describe(table string, roles KeyColumns) (*TableReader, error) {
	p.T.Helper()
	publication, err := slot.VerifyPublication(p.T.Context(), p.Conn, "postrider", []string{table})
	require.NoError(p.T, err)
	return NewTableReader(p.T.Context(), p.Rows(), publication.Tables[0], []string{table}, roles)
}

// read returns the ids of all rows after a position, and the position of the last.
func read(t *testing.T, conn *pgx.Conn, c *TableReader, after *Position, limit int) (ids []string, last *Position) {
	t.Helper()
	rows, err := c.Rows(t.Context(), conn, after)
	require.NoError(t, err)
	at := slices.IndexFunc(c.Relation.Columns, func(c replication.Column) bool { return c.Name == "id" })
	for limit < 0 || len(ids) < limit {
		row, err := rows.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		ids, last = append(ids, string(row.Values[at])), &row.Position
	}
	require.NoError(t, rows.Close(t.Context()))
	return ids, last
}

func (p *place) inserted(table *TableReader, upTo pglogrepl.LSN) (map[rowID]struct{}, error) {
	p.T.Helper()
	return readInserted(p.T.Context(), p.Postgres, p.Conn, replication.DefaultConfig(), p.Name, []*TableReader{table}, upTo, zerolog.Nop())
}

func TestCreateExported_DividesRowsAtTheBoundary(t *testing.T) {
	testdb.Versions(t, testdb.All, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Outbox()
		ctx := t.Context()
		// Writers that never stop: some of their rows commit before the boundary, some after it, some in the middle.
		writing, stop := context.WithCancel(ctx)
		var writers sync.WaitGroup
		var mu sync.Mutex
		written := map[string]bool{}
		started := make(chan struct{}, 4)
		for w := range 4 {
			conn := parts.Connect(t, p.DSN)
			writers.Go(func() {
				for n := 0; writing.Err() == nil; n++ {
					id := n*4 + w
					if _, err := conn.Exec(context.WithoutCancel(ctx), `INSERT INTO outbox VALUES ($1, 'x')`, id); err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					written[strconv.Itoa(id)] = true
					mu.Unlock()
					if n == 20 {
						started <- struct{}{}
					}
				}
			})
		}
		for range 4 {
			<-started
		}
		table, err := p.describe("public.outbox", KeyColumns{ID: "id"})
		require.NoError(t, err)
		exported, err := createExported(ctx, p.Postgres, p.Conn, p.Config())
		require.NoError(t, err)
		conn := p.Rows()
		require.NoError(t, exported.begin(ctx, conn))
		exported.Close()
		before, _ := read(t, conn, table, nil, -1)
		stop()
		writers.Wait()
		require.NotEmpty(t, before)
		require.True(t, slices.IsSortedFunc(before, func(a, b string) int {
			x, _ := strconv.Atoi(a)
			y, _ := strconv.Atoi(b)
			return x - y
		}))

		s, err := slot.Get(ctx, p.Conn, p.Name)
		require.NoError(t, err)
		require.Equal(t, exported.ConsistentPoint, s.ConfirmedFlushLSN)
		require.False(t, s.Temporary)

		// What comes by the slot is exactly what is not in the snapshot.
		now := p.Rows()
		end, err := beginNow(ctx, now)
		require.NoError(t, err)
		inserted, err := p.inserted(table, end)
		require.NoError(t, err)
		require.Len(t, inserted, len(written)-len(before))
		rows, err := table.Rows(ctx, now, nil)
		require.NoError(t, err)
		seen := 0
		for {
			row, err := rows.Next(ctx)
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			_, comes := inserted[row.id]
			require.NotEqual(t, comes, slices.Contains(before, string(row.Values[0])), "row %s", row.Values[0])
			seen++
		}
		require.Equal(t, len(written), seen)
		s, err = slot.Get(ctx, p.Conn, p.Name)
		require.NoError(t, err)
		require.Equal(t, exported.ConsistentPoint, s.ConfirmedFlushLSN, "looking confirms nothing")
		require.False(t, s.Active)
	})
}

func TestInserted_EndsOnAServerThatIsIdle(t *testing.T) {
	t.Parallel()
	testdb.Versions(t, testdb.OldAndNew, func(t *testing.T, version string) {
		p, _ := onOwn(t, version, nil)
		p.Outbox()
		ctx := t.Context()
		table, err := p.describe("public.outbox", KeyColumns{ID: "id"})
		require.NoError(t, err)
		_, err = slot.CreateWithin(ctx, p.Conn, p.Config(), patience)
		require.NoError(t, err)
		for i := range 3 {
			if i == 1 { // the next record stands at the beginning of a segment, behind its header
				p.Exec(`SELECT pg_switch_wal()`)
			}
			if i == 2 {
				p.Exec(`INSERT INTO outbox VALUES (1)`)
			}
			conn := p.Rows()
			end, err := beginNow(ctx, conn)
			require.NoError(t, err)
			inserted, err := p.inserted(table, end)
			require.NoError(t, err)
			require.Len(t, inserted, i/2)
		}
	})
}

func TestBeginNow_IsBehindCommitsThatAreNotFlushed(t *testing.T) {
	t.Parallel()
	p := onShared(t, "")
	p.Outbox()
	ctx := t.Context()
	table, err := p.describe("public.outbox", KeyColumns{ID: "id"})
	require.NoError(t, err)
	_, err = slot.CreateWithin(ctx, p.Conn, p.Config(), patience)
	require.NoError(t, err)
	p.Exec(`SET synchronous_commit = off`)
	for i := range 20 {
		p.Exec(`INSERT INTO outbox VALUES ($1)`, i)
		conn := p.Rows()
		end, err := beginNow(ctx, conn)
		require.NoError(t, err)
		inserted, err := p.inserted(table, end)
		require.NoError(t, err)
		require.Len(t, inserted, i+1)
	}
}

func TestCreateExported_SaysWhomItWaitsFor(t *testing.T) {
	t.Parallel()
	p, _ := onOwn(t, "", nil) // slots of other tests would wait for its transaction
	p.Outbox()
	p.Exec(`BEGIN`)
	p.Exec(`INSERT INTO outbox VALUES (1)`)
	asked := p.Rows()
	_, err := createExported(t.Context(), p.Postgres, asked, p.Config())
	require.ErrorIs(t, err, slot.ErrBlocked)
	require.ErrorContains(t, err, fmt.Sprintf("pid %d", p.Conn.PgConn().PID()))
	p.Exec(`ROLLBACK`)
	e, err := createExported(t.Context(), p.Postgres, asked, p.Config())
	require.NoError(t, err)
	e.Close()
}

func TestCreateExported_CanFailOver(t *testing.T) {
	p := onShared(t, "18")
	cfg := p.Config()
	cfg.Failover = true
	e, err := createExported(t.Context(), p.Postgres, p.Conn, cfg)
	require.NoError(t, err)
	e.Close()
	s, err := slot.Get(t.Context(), p.Conn, p.Name)
	require.NoError(t, err)
	require.True(t, s.Failover)
}

func TestRows_GoesOnBehindAPosition(t *testing.T) {
	t.Parallel()
	const ids = `'00000000-0000-0000-0000-00000000000'||n`
	for _, c := range []struct {
		name, table string
		roles       KeyColumns
		order       string
		want        string
	}{
		{"integers", `id bigint PRIMARY KEY`, KeyColumns{}, "id", "1 2 3 4 5 6 7 8 9"},
		{"a time with NULLs and ties", `id int PRIMARY KEY, at timestamptz`, KeyColumns{OrderBy: "at"}, "at", "7 8 9 1 4 3 6 2 5"},
		{"a time that is not NULL", `id int PRIMARY KEY, at date NOT NULL DEFAULT now()`, KeyColumns{Timestamp: "at"}, "at", "1 2 3 4 5 6 7 8 9"},
		{"numbers that are no integers", `id int PRIMARY KEY, at float8`, KeyColumns{OrderBy: "at"}, "at", "7 8 9 3 6 1 4 2 5"},
		{"the order given is the id", `id int PRIMARY KEY, at int`, KeyColumns{OrderBy: "id", Timestamp: "at"}, "id", "1 2 3 4 5 6 7 8 9"},
		{"random ids", `id uuid PRIMARY KEY`, KeyColumns{}, "id", "1 2 3 4 5 6 7 8 9"},
		{"text with quotes", `id text PRIMARY KEY`, KeyColumns{}, "id", "1 2 3 4 5 6 7 8 9"},
		{"char with a length", `id char(40) PRIMARY KEY`, KeyColumns{}, "id", "1 2 3 4 5 6 7 8 9"},
		{"an order of bits", `id int PRIMARY KEY, at bit(4)`, KeyColumns{OrderBy: "at"}, "at", "7 8 9 1 2 3 4 5 6"},
		{"a type of one's own", `id text PRIMARY KEY, at mood`, KeyColumns{OrderBy: "at"}, "at", "7 8 9 2 5 1 4 3 6"}, // as text
		{"a unique index with another column", `id int NOT NULL, day int NOT NULL DEFAULT 5, UNIQUE (day, id)`, KeyColumns{}, "id", "1 2 3 4 5 6 7 8 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := onShared(t, "")
			p.Exec(`CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy')`)
			p.Exec(`CREATE TABLE outbox (` + c.table + `)`)
			p.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
			id := "n"
			switch {
			case strings.Contains(c.table, "uuid"):
				id = "(" + ids + ")::uuid"
			case strings.Contains(c.table, "id char"):
				id = ids
			case strings.Contains(c.table, "id text"):
				id = `'it''s \ ' || n`
			}
			at := map[string]string{
				"a time with NULLs and ties":   `CASE WHEN n < 7 THEN '2020-01-01 00:00:00.123456+00'::timestamptz + (ARRAY[2, 0, 1])[1 + n % 3] * interval '1 microsecond' END`,
				"numbers that are no integers": `CASE WHEN n < 7 THEN (ARRAY[0.1, 0.2, 1e10/3])[1 + n % 3] END`,
				"the order given is the id":    `-n`,
				"an order of bits":             `CASE WHEN n < 7 THEN n::bit(4) END`,
				"a type of one's own":          `CASE WHEN n < 7 THEN (ARRAY['sad', 'ok', 'happy'])[1 + n % 3]::mood END`,
			}[c.name]
			columns, values := "id", id
			if at != "" {
				columns, values = "id, at", id+", "+at
			}
			p.Exec(`INSERT INTO outbox (` + columns + `) SELECT ` + values + ` FROM generate_series(1, 9) n`)
			roles := c.roles
			roles.ID = "id"
			table, err := p.describe("public.outbox", roles)
			require.NoError(t, err)
			require.Equal(t, c.order, table.Order.String())
			require.Equal(t, c.name == "random ids" || c.name == "char with a length" || strings.Contains(c.name, "text"), table.Order.Random)

			conn := p.Rows()
			_, err = beginNow(t.Context(), conn)
			require.NoError(t, err)
			whole, _ := read(t, conn, table, nil, -1)
			last := make([]string, len(whole))
			for i, id := range whole {
				id = strings.TrimSpace(id)
				last[i] = id[len(id)-1:]
			}
			if c.name == "a time with NULLs and ties" || c.name == "numbers that are no integers" || c.name == "a type of one's own" {
				require.Equal(t, []string{"7", "8", "9"}, last[:3], "NULLs come first")
			} else {
				require.Equal(t, c.want, strings.Join(last, " "))
			}
			for n := range len(whole) + 1 {
				head, at := read(t, conn, table, nil, n)
				tail, _ := read(t, conn, table, at, -1)
				require.Equal(t, whole, append(head, tail...), "interrupted behind %d rows", n)
			}
		})
	}
}

func TestRows_ReadsByCommitTime(t *testing.T) {
	t.Parallel()
	p, _ := onOwn(t, "", map[string]string{"track_commit_timestamp": "on"})
	p.Exec(`CREATE TABLE outbox (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), n int)`)
	p.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
	for n := range 20 {
		p.Exec(`INSERT INTO outbox (n) VALUES ($1)`, n)
	}
	table, err := p.describe("public.outbox", KeyColumns{ID: "id"})
	require.NoError(t, err)
	require.True(t, table.Order.Commit)
	conn := p.Rows()
	_, err = beginNow(t.Context(), conn)
	require.NoError(t, err)
	rows, err := table.Rows(t.Context(), conn, nil)
	require.NoError(t, err)
	for n := range 20 {
		row, err := rows.Next(t.Context())
		require.NoError(t, err)
		require.Equal(t, strconv.Itoa(n), string(row.Values[1]))
	}
}

func TestRows_ReadsWhatThePublicationSends(t *testing.T) {
	testdb.Versions(t, []string{"15", "18"}, func(t *testing.T, version string) {
		p := onShared(t, version)
		p.Exec(`CREATE TABLE outbox (id int PRIMARY KEY, a text, b text, c int GENERATED ALWAYS AS (id + 1) STORED)`)
		p.Exec(`CREATE TABLE child (more text) INHERITS (outbox)`)
		p.Exec(`INSERT INTO outbox SELECT n, 'a'||n, 'b' FROM generate_series(1, 10) n`)
		p.Exec(`INSERT INTO child VALUES (100, 'comes as a row of child')`)
		p.Exec(`CREATE PUBLICATION postrider FOR TABLE ONLY outbox (id, a) WHERE (id > 4) WITH (publish = 'insert')`)
		table, err := p.describe("public.outbox", KeyColumns{ID: "id"})
		require.NoError(t, err)
		require.Len(t, table.Relation.Columns, 2)
		conn := p.Rows()
		_, err = beginNow(t.Context(), conn)
		require.NoError(t, err)
		ids, at := read(t, conn, table, nil, 2)
		require.Equal(t, []string{"5", "6"}, ids)
		ids, _ = read(t, conn, table, at, -1)
		require.Equal(t, []string{"7", "8", "9", "10"}, ids)
	})
}

func TestRows_ReadsAllPartitionsUnderTheRoot(t *testing.T) {
	t.Run("whose rows come under its name", func(t *testing.T) {
		readPartitions(t, slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
	})
	t.Run("whose rows come under their names", func(t *testing.T) {
		readPartitions(t, `CREATE PUBLICATION postrider FOR ALL TABLES`)
	})
}

// A partition that is configured itself is another table, whose rows are read there.
func TestRows_LeavesOutPartitionsThatAreTablesThemselves(t *testing.T) {
	p := onShared(t, "17")
	p.Exec(`CREATE TABLE outbox (id int NOT NULL, day int NOT NULL, PRIMARY KEY (id, day)) PARTITION BY LIST (day);
		CREATE TABLE outbox_1 PARTITION OF outbox FOR VALUES IN (1);
		CREATE TABLE outbox_2 PARTITION OF outbox FOR VALUES IN (2, 3) PARTITION BY LIST (day); CREATE TABLE outbox_2_2 PARTITION OF outbox_2 FOR VALUES IN (2, 3);
		CREATE PUBLICATION postrider FOR TABLE outbox WHERE (id > 1) WITH (publish_via_partition_root = true); INSERT INTO outbox VALUES (1, 1), (2, 1), (3, 2), (4, 3)`)
	tables := []string{"public.outbox", "public.outbox_2"}
	publication, err := slot.VerifyPublication(t.Context(), p.Conn, "postrider", tables[:1])
	require.NoError(t, err)
	conn := p.Rows()
	whole, err := NewTableReader(t.Context(), conn, publication.Tables[0], tables[:1], KeyColumns{ID: "id"})
	require.NoError(t, err)
	part, err := NewTableReader(t.Context(), conn, publication.Tables[0], tables, KeyColumns{ID: "id"})
	require.NoError(t, err)
	_, err = beginNow(t.Context(), conn)
	require.NoError(t, err)
	ids, _ := read(t, conn, whole, nil, -1)
	require.Equal(t, []string{"2", "3", "4"}, ids)
	ids, _ = read(t, conn, part, nil, -1)
	require.Equal(t, []string{"2"}, ids)
}

func readPartitions(t *testing.T, publication string) {
	p := onShared(t, "14")
	p.Exec(`CREATE TABLE outbox (id uuid NOT NULL DEFAULT gen_random_uuid(), day int NOT NULL, PRIMARY KEY (id, day)) PARTITION BY LIST (day)`)
	for day := range 3 {
		p.Exec(fmt.Sprintf(`CREATE TABLE outbox_%d PARTITION OF outbox FOR VALUES IN (%d)`, day, day))
	}
	p.Exec(publication)
	p.Exec(`INSERT INTO outbox (day) SELECT n % 3 FROM generate_series(1, 30) n`)
	table, err := p.describe("public.outbox", KeyColumns{ID: "id"})
	require.NoError(t, err)
	_, err = slot.CreateWithin(t.Context(), p.Conn, p.Config(), patience)
	require.NoError(t, err)
	p.Exec(`INSERT INTO outbox (day) SELECT n % 3 FROM generate_series(1, 3) n`)
	conn := p.Rows()
	end, err := beginNow(t.Context(), conn)
	require.NoError(t, err)
	inserted, err := p.inserted(table, end)
	require.NoError(t, err)
	require.Len(t, inserted, 3)
	rows, err := table.Rows(t.Context(), conn, nil)
	require.NoError(t, err)
	found := 0
	for range 33 {
		row, err := rows.Next(t.Context())
		require.NoError(t, err)
		if _, comes := inserted[row.id]; comes {
			found++
		}
	}
	require.Equal(t, 3, found)
}

func TestNewTableReader_Refuses(t *testing.T) {
	p := onShared(t, "")
	for _, c := range []struct{ table, want string }{
		{`id int NOT NULL, a int NOT NULL); CREATE UNIQUE INDEX ON outbox (id) WHERE (a > 3`, "has no unique index on \"id\""},
		{`id int`, "has no unique index on \"id\""},
		{`id int UNIQUE`, "has no unique index on \"id\" without NULLs"},
		{`id int NOT NULL, a int, UNIQUE (id, a)`, "has no unique index on \"id\""},
		{`id int NOT NULL, a int NOT NULL, EXCLUDE (id WITH =) WHERE (a > 3)`, "has no unique index on \"id\""},
		{`key int PRIMARY KEY`, "has no column \"id\""},
	} {
		p.Exec(`DROP TABLE IF EXISTS outbox`)
		p.Exec(`DROP PUBLICATION IF EXISTS postrider`)
		p.Exec(`CREATE TABLE outbox (` + c.table + `)`)
		p.Exec(slot.CreatePublicationSQL("postrider", []string{"public.outbox"}))
		_, err := p.describe("public.outbox", KeyColumns{ID: "id"})
		require.ErrorIs(t, err, slot.ErrNoSnapshot, c.table)
		require.ErrorContains(t, err, c.want)
		requireFix(t, err)
	}
}

// requireFix wants to be told what to type next.
func requireFix(t *testing.T, err error) {
	t.Helper()
	var advised *slot.Error
	require.ErrorAs(t, err, &advised)
	require.NotEmpty(t, advised.Fix)
}

func TestNewTableReader_SaysWhichRightIsMissing(t *testing.T) {
	p := onShared(t, "")
	p.Outbox()
	p.Exec(`INSERT INTO outbox VALUES (1)`)
	p.Postgres = p.Role(p.Name)
	_, err := p.describe("public.outbox", KeyColumns{ID: "id"})
	require.ErrorIs(t, err, postgres.ErrPermission)
	var advised *slot.Error
	require.ErrorAs(t, err, &advised)
	require.Contains(t, advised.Fix, `GRANT SELECT ON "public"."outbox" TO "`+p.Name+`"`)
	p.Exec(`GRANT SELECT ON outbox TO ` + p.Name)
	_, err = p.describe("public.outbox", KeyColumns{ID: "id"})
	require.NoError(t, err)
	p.Exec(`ALTER TABLE outbox ENABLE ROW LEVEL SECURITY`) // which would hide rows
	_, err = p.describe("public.outbox", KeyColumns{ID: "id"})
	require.ErrorIs(t, err, postgres.ErrPermission)
}

func TestEstimateRows_KnowsATableThatWasNeverAnalyzed(t *testing.T) {
	p := onShared(t, "")
	p.Outbox()
	p.Exec(`INSERT INTO outbox SELECT n, repeat('x', 200) FROM generate_series(1, 10000) n`)
	table, err := p.describe("public.outbox", KeyColumns{ID: "id"})
	require.NoError(t, err)
	n, err := table.estimateRows(t.Context(), p.Conn)
	require.NoError(t, err)
	require.Positive(t, n)
	p.Exec(`ANALYZE outbox`)
	n, err = table.estimateRows(t.Context(), p.Conn)
	require.NoError(t, err)
	require.InDelta(t, 10_000, n, 100)
}

// Rows are selected by the time of their insert, or not at all; one that is only shown may be any.
func TestTimeColumn_IsThatOfTheInsertWhereRowsAreSelectedByIt(t *testing.T) {
	since, until := Selection{Since: time.Unix(1, 0)}, Selection{Until: time.Unix(1, 0)}
	const unknown = "name the column that says when a row was inserted"
	for name, c := range map[string]struct {
		columns string // those with a time; besides, there is n, an integer
		keys    KeyColumns
		sel     Selection
		named   string // by --time-column
		want    string // the column, or a part of the error
	}{
		"created_at":                        {"occurred_at created_at", KeyColumns{Timestamp: "occurred_at"}, since, "", "created_at"},
		"createdAt":                         {"occurredAt createdAt", KeyColumns{Timestamp: "occurredAt"}, since, "", "createdAt"},
		"created_at, until":                 {"occurred_at created_at", KeyColumns{Timestamp: "occurred_at"}, until, "", "created_at"},
		"named":                             {"occurred_at created_at", KeyColumns{}, since, "occurred_at", "occurred_at"},
		"named, a date":                     {"created_on created_at", KeyColumns{}, since, "created_on", "is not a timestamptz or timestamp"},
		"named, a date that is shown":       {"created_on created_at", KeyColumns{}, Selection{}, "created_on", "created_on"},
		"named, a number that is shown":     {"created_at", KeyColumns{}, Selection{}, "n", "is not a timestamptz, timestamp or date"},
		"named, none":                       {"created_at", KeyColumns{}, since, "inserted", "publishes no column"},
		"the order that is configured":      {"inserted created_at", KeyColumns{OrderBy: "inserted"}, since, "", "inserted"},
		"the order is a number":             {"created_at", KeyColumns{OrderBy: "n"}, since, "", "created_at"},
		"the order is a date":               {"created_on created_at", KeyColumns{OrderBy: "created_on"}, since, "", "created_at"},
		"the time of the record":            {"occurred_at", KeyColumns{Timestamp: "occurred_at"}, since, "", unknown},
		"the time of the record is shown":   {"occurred_at created_at", KeyColumns{Timestamp: "occurred_at"}, Selection{}, "", "occurred_at"},
		"the only one":                      {"inserted", KeyColumns{}, since, "", unknown},
		"the only one is shown":             {"inserted", KeyColumns{}, Selection{}, "", "inserted"},
		"of several none is shown":          {"inserted processed", KeyColumns{}, Selection{}, "", ""},
		"none":                              {"", KeyColumns{}, until, "", unknown},
		"ids are selected, and it is shown": {"inserted", KeyColumns{}, Selection{IDs: []string{"1"}}, "", "inserted"},
	} {
		t.Run(name, func(t *testing.T) {
			rel := &replication.Relation{Columns: []replication.Column{{Name: "n", TypeOID: pgtype.Int8OID}}}
			for _, column := range strings.Fields(c.columns) {
				typ := uint32(pgtype.TimestamptzOID)
				if strings.HasSuffix(column, "_on") {
					typ = pgtype.DateOID
				}
				rel.Columns = append(rel.Columns, replication.Column{Name: column, TypeOID: typ})
			}
			c.sel.TimeColumn = c.named
			r := &TableReader{Name: "public.outbox", Relation: rel, columns: c.keys, Order: Order{Column: cmp.Or(c.keys.OrderBy, c.keys.Timestamp)}}
			got, err := r.timeColumn(c.sel)
			if err != nil {
				require.ErrorContains(t, err, c.want)
				require.NotEmpty(t, c.want)
				return
			}
			require.Equal(t, c.want, got)
		})
	}
}
