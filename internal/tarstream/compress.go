package tarstream

import (
	"errors"
	"io"
	"runtime"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/pgzip"
)

const (
	// blockSize is the number of bytes that one core compresses at a time. One core
	// compresses a smaller archive alone. Larger blocks would save 1 % of the size for four
	// times the memory.
	blockSize = 256 << 10
	// fewBytes are compressed by a compressor without a memory: the others need half a megabyte each.
	fewBytes = 16 << 10
	// maxCores leaves most of a login node to other users.
	maxCores = 4
)

// compressor is a gzip.Writer that uses several cores for large streams.
type compressor struct {
	w    io.Writer
	head []byte        // all that was written, while it fits in a block
	zw   *pgzip.Writer // nil while head has all
}

func (c *compressor) Write(b []byte) (int, error) {
	if c.zw == nil {
		if len(c.head)+len(b) <= blockSize {
			c.head = append(c.head, b...)
			return len(b), nil
		}
		if err := c.start(); err != nil {
			return 0, err
		}
	}
	return c.zw.Write(b)
}

// start begins with several cores. Level 1 keeps up with a fast network; results are packed
// once and read seldom.
func (c *compressor) start() error {
	zw, err := pgzip.NewWriterLevel(c.w, pgzip.BestSpeed)
	if err == nil {
		err = zw.SetConcurrency(blockSize, min(maxCores, runtime.GOMAXPROCS(0)))
	}
	if err == nil {
		c.zw = zw
		_, err = zw.Write(c.head)
		c.head = nil
	}
	return err
}

// Close ends the stream. It does not close the writer below.
func (c *compressor) Close() error {
	if c.zw != nil {
		return c.zw.Close()
	}
	level := gzip.BestSpeed
	if len(c.head) <= fewBytes {
		level = gzip.StatelessCompression
	}
	zw, err := gzip.NewWriterLevel(c.w, level)
	if err == nil {
		_, err = zw.Write(c.head)
		err = errors.Join(err, zw.Close())
	}
	return err
}

// abandon breaks the stream off. Once it returns, nothing is written.
func (c *compressor) abandon() {
	if c.zw != nil {
		c.zw.Reset(io.Discard) // ends its goroutines, which Close does not after an error
	}
}
