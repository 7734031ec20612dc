package postgres

import (
	"regexp"
	"testing"

	"github.com/jackc/pglogrepl"
	"github.com/stretchr/testify/require"
)

func TestParseLSN_TakesWhatPostgreSQLPrintsAndNothingElse(t *testing.T) {
	for text, want := range map[string]pglogrepl.LSN{
		"0/0": 0, "16/B374D848": 0x16_B374D848, "16/b374d848": 0x16_B374D848,
		"FFFFFFFF/FFFFFFFF": 1<<64 - 1, "0/00000001": 1,
	} {
		got, err := ParseLSN(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "/", "16", "16/", "/16", "16/B374D848x", "16/B374D848 ",
		" 16/1", "16/B374D8480", "16/000000001", "100000000/0", "-1/0", "+1/0", "0x1/0", "1_0/0",
		"1/2/3", "16\n/1"} {
		_, err := ParseLSN(text)
		require.Error(t, err, "%q", text)
	}
}

func TestEndOfRecord_IsWhatCanBeConfirmed(t *testing.T) {
	const segment, page = 16 << 20, 8192
	for insert, end := range map[pglogrepl.LSN]pglogrepl.LSN{
		5*segment + 40:          5 * segment,
		segment + page + 24:     segment + page,
		segment + page + 40:     segment + page + 40,
		segment + page + 104:    segment + page + 104,
		segment + 24:            segment + 24,
		segment + 100:           segment + 100,
		segment + 2*page:        segment + 2*page,
		5*segment + 3*page + 24: 5*segment + 3*page,
	} {
		require.Equal(t, end, EndOfRecord(insert, segment, page), insert)
	}
}

func FuzzParseLSN(f *testing.F) {
	for _, seed := range []string{"16/B374D848", "0/0", "FFFFFFFF/FFFFFFFF", "16/B374D848x", "-1/0"} {
		f.Add(seed)
	}
	form := regexp.MustCompile(`^[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8}$`)
	f.Fuzz(func(t *testing.T, text string) {
		lsn, err := ParseLSN(text)
		if (err == nil) != form.MatchString(text) {
			t.Fatalf("%q: %v", text, err)
		}
		if err != nil {
			return
		}
		if again, err := ParseLSN(lsn.String()); err != nil || again != lsn {
			t.Fatalf("%q is %s, read again %s, %v", text, lsn, again, err)
		}
		if theirs, err := pglogrepl.ParseLSN(text); err != nil || theirs != lsn {
			t.Fatalf("%q is %s, for pglogrepl %s, %v", text, lsn, theirs, err)
		}
	})
}
