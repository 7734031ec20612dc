package kafka

import (
	"bytes"
	"sync"

	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// Compressor returns what compresses batches; nil: they are not compressed. It is for any number
// of goroutines.
func (c *Config) Compressor() (kgo.Compressor, error) {
	if c.Compression == "lz4" {
		return &lz4Compressor{}, nil
	}
	return kgo.DefaultCompressor(codecs[c.Compression])
}

// lz4Compressor compresses in blocks of 64 KiB, as Kafka's Java client does. Those of the client's
// own compressor take 4 MiB for each batch that is compressed at a time, and a batch of 1 MB three
// times as long.
type lz4Compressor struct{ writers sync.Pool }

// Compress implements kgo.Compressor.
func (c *lz4Compressor) Compress(dst *bytes.Buffer, src []byte,
	_ ...kgo.CompressFlag) ([]byte, kgo.CompressionCodecType) {
	w, pooled := c.writers.Get().(*lz4.Writer)
	if !pooled {
		w = lz4.NewWriter(nil)
		if err := w.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil {
			return nil, kgo.CodecError
		}
	}
	defer c.writers.Put(w)
	w.Reset(dst)
	if _, err := w.Write(src); err != nil {
		return nil, kgo.CodecError
	}
	if err := w.Close(); err != nil {
		return nil, kgo.CodecError
	}
	return dst.Bytes(), kgo.CodecLz4
}
