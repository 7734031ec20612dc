package replication

import (
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
)

func TestIdentity_Continues(t *testing.T) {
	const promoted = "no recovery target specified"
	at := func(system string, timeline int32, lsn pglogrepl.LSN) Place { return Place{system, timeline, lsn} }
	server := func(timeline int32, written pglogrepl.LSN, history ...Switch) Identity {
		return Identity{SystemID: "7", Timeline: timeline, WrittenLSN: written, History: history}
	}
	for name, c := range map[string]struct {
		server Identity
		place  Place
		want   Descent
		fork   pglogrepl.LSN
	}{
		"the same server, further on":                          {server(1, 200), at("7", 1, 150), Continued, 0},
		"the same server, no further":                          {server(1, 200), at("7", 1, 200), Continued, 0},
		"put back without a new timeline":                      {server(1, 200), at("7", 1, 201), Rewound, 200},
		"another cluster":                                      {server(1, 200), at("8", 1, 100), OtherCluster, 0},
		"another cluster, further on":                          {server(2, 900, Switch{1, 100, promoted}), at("8", 1, 100), OtherCluster, 0},
		"promoted with everything":                             {server(2, 900, Switch{1, 150, promoted}), at("7", 1, 150), Continued, 0},
		"promoted without the end":                             {server(2, 900, Switch{1, 149, promoted}), at("7", 1, 150), Forked, 149},
		"promoted twice since, with everything":                {server(3, 900, Switch{1, 150, promoted}, Switch{2, 300, promoted}), at("7", 1, 140), Continued, 0},
		"promoted twice since, the first time without the end": {server(3, 900, Switch{1, 150, promoted}, Switch{2, 300, promoted}), at("7", 1, 160), Forked, 150},
		"promoted twice since, the last time without the end":  {server(3, 900, Switch{1, 150, promoted}, Switch{2, 300, promoted}), at("7", 2, 301), Forked, 300},
		"of the middle one, with everything":                   {server(3, 900, Switch{1, 150, promoted}, Switch{2, 300, promoted}), at("7", 2, 300), Continued, 0},
		"the place is of a branch that ended":                  {server(3, 900, Switch{1, 150, promoted}), at("7", 2, 140), Forked, 0},
		"back on an earlier timeline":                          {server(1, 900), at("7", 2, 100), OlderBranch, 0},
		"restored to a time before":                            {server(2, 900, Switch{1, 100, "before 2026-01-02 03:04:05+00"}), at("7", 1, 150), Restored, 100},
		"restored behind a transaction":                        {server(2, 900, Switch{1, 100, "after transaction 731"}), at("7", 1, 150), Restored, 100},
		"restored to a name":                                   {server(2, 900, Switch{1, 100, `at restore point "before the migration"`}), at("7", 1, 150), Restored, 100},
		"restored to the end of the backup":                    {server(2, 900, Switch{1, 100, "reached consistency"}), at("7", 1, 150), Restored, 100},
		"restored to a point behind the place":                 {server(2, 900, Switch{1, 150, "before 2026-01-02 03:04:05+00"}), at("7", 1, 150), Continued, 0},
		"promoted, in words of a fork of PostgreSQL":           {server(2, 900, Switch{1, 100, ""}), at("7", 1, 150), Forked, 100},
		"no history, further on":                               {server(2, 900), at("7", 1, 150), NotKnown, 0},
		"no history, and not so far":                           {server(2, 140), at("7", 1, 150), Forked, 140},
	} {
		t.Run(name, func(t *testing.T) {
			d, fork := c.server.Continues(c.place)
			require.Equal(t, c.want.String(), d.String())
			require.Equal(t, c.fork, fork)
		})
	}
}

func TestParseHistory(t *testing.T) {
	history, err := parseHistory([]byte("# a comment\n\n1\t0/3000148\tno recovery target specified\n2\t1/A0\tbefore 2026-01-02 03:04:05+00\n3\t2/0\n"))
	require.NoError(t, err)
	require.Equal(t, []Switch{
		{1, 0x3000148, "no recovery target specified"}, {2, 1<<32 + 0xA0, "before 2026-01-02 03:04:05+00"}, {3, 2 << 32, ""},
	}, history)
	for _, wrong := range []string{"1", "x\t0/1\t", "1\tzero\t", "99999999999\t0/1"} {
		_, err := parseHistory([]byte(wrong))
		require.ErrorIs(t, err, ErrProtocol, wrong)
	}
}
