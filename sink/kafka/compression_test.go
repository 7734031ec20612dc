package kafka

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestCompressor_WritesWhatTheClientReads(t *testing.T) {
	var plain bytes.Buffer
	for n := range 30_000 {
		fmt.Fprintf(&plain, `{"number":%d,"aggregate_id":"key %d"}`, n, n%7)
	}
	for name, want := range map[string]kgo.CompressionCodecType{
		"gzip": kgo.CodecGzip, "snappy": kgo.CodecSnappy, "lz4": kgo.CodecLz4, "zstd": kgo.CodecZstd,
	} {
		cfg := DefaultConfig()
		cfg.Compression = name
		c, err := cfg.Compressor()
		require.NoError(t, err)
		for _, n := range []int{0, 1, 64 << 10, plain.Len()} { // one after the other with the same writer
			src := plain.Bytes()[:n]
			compressed, codec := c.Compress(new(bytes.Buffer), src)
			require.Equal(t, want, codec, name)
			got, err := kgo.DefaultDecompressor().Decompress(compressed, codec)
			require.NoError(t, err, "%s, %d bytes", name, n)
			require.True(t, bytes.Equal(src, got), "%s, %d bytes", name, n)
			if n == plain.Len() {
				require.Less(t, len(compressed), n/2, name)
			}
			if name == "lz4" {
				require.Equal(t, byte(4), compressed[5]>>4&7, "the size of a block: 4 is 64 KiB, and 7 is 4 MiB")
			}
		}
	}
	cfg := DefaultConfig()
	c, err := cfg.Compressor()
	require.NoError(t, err)
	require.Nil(t, c, "not compressed")
}
