package check

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A limit is no help if pg_wal fills the volume before it is reached.
func TestKeepSizes_AdvisesNoLimitBeyondTheVolume(t *testing.T) {
	const gb = 1 << 30
	for name, c := range map[string]struct {
		sizes keepSizes
		fix   string
	}{
		"four times max_wal_size":          {keepSizes{limit: 2 * gb, wal: 4 * gb}, setKeepSize(16*gb) + " -- if the disk has room"},
		"on a large volume":                {keepSizes{limit: 2 * gb, wal: 4 * gb, volume: 100 * gb}, setKeepSize(16*gb) + " -- if the disk has room"},
		"on a volume that takes less":      {keepSizes{limit: 2 * gb, wal: 4 * gb, volume: 10 * gb}, setKeepSize(6*gb) + " -- if the disk has room"},
		"on a volume full of max_wal_size": {keepSizes{limit: 2 * gb, wal: 4 * gb, volume: 8 * gb}, "a larger disk for pg_wal, or a smaller max_wal_size"},
		"none, on a volume without a size": {keepSizes{limit: -1, wal: gb}, "SHOW data_directory; -- df -h THAT/pg_wal/. shows what is free; half of that is a good limit, here for 100 GB:\n" + setKeepSize(50*gb)},
		"more than a volume":               {keepSizes{limit: 10 * gb, wal: 2 * gb, volume: 10 * gb}, setKeepSize(4*gb) + " -- or a larger disk"},
	} {
		f := c.sizes.judge("")
		require.Equal(t, c.fix, f.Fix, name)
	}
}
