package apptainer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
)

// layers are those of an image, the lowest first, while they are pulled and
// after.
type layers struct {
	blobs   []*blob
	diffIDs []v1.Hash
	// room is how many bytes the layers may unpack to, with all that frames the
	// files in them. Nothing that fits the other limits comes near it.
	room atomic.Int64
	// report is told how much of the blobs was unpacked.
	report *reporter
	// nicely runs what pulls and unpacks.
	nicely func(func())

	verified []bool // which were once read to their end
}

// open gives a layer's tar stream, until ctx ends. Its end is an error if it is
// not what the image's configuration says.
func (l *layers) open(ctx context.Context, i int) (_ io.ReadCloser, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			stop()
		}
	}()
	file, err := l.blobs[i].follow(ctx)
	if err != nil {
		return nil, err
	}
	counted := bufio.NewReaderSize(readerFunc(func(p []byte) (int, error) {
		n, err := file.Read(p)
		l.report.convert(int64(n))
		return n, err
	}), 128<<10)
	content, err := decompress(counted)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s := &layerStream{
		blob: counted, content: content, file: file, room: &l.room,
		ctx: ctx, stop: stop, ended: make(chan struct{}), chunks: make(chan chunk, 4), free: make(chan []byte, 6),
	}
	// Others than this process may write to a file that lies elsewhere.
	if !l.verified[i] || l.blobs[i].local != nil {
		s.sum, s.diffID = sha256.New(), l.diffIDs[i]
		s.verified = func() { l.verified[i] = true }
	}
	go l.nicely(s.unpack)
	return s, nil
}

// chunk is a part of a layer, unpacked, or its end.
type chunk struct {
	data []byte
	err  error
}

// chunkSize is how much is unpacked at a time, ahead of who reads.
const chunkSize = 256 << 10

// layerStream unpacks a layer in a goroutine of its own, a little ahead of its
// reader.
type layerStream struct {
	blob     *bufio.Reader
	content  io.ReadCloser
	file     io.Closer
	room     *atomic.Int64
	sum      hash.Hash // nil where it is known to be right
	diffID   v1.Hash
	verified func()

	ctx    context.Context //nolint:containedctx // the reader's
	stop   context.CancelFunc
	ended  chan struct{}
	chunks chan chunk
	free   chan []byte // chunks that were read

	read, rest []byte // the chunk that is read, and what is left of it
	err        error  // what comes after
}

func (s *layerStream) unpack() {
	defer close(s.ended)
	for {
		var c chunk
		select {
		case c.data = <-s.free:
		default:
			c.data = make([]byte, chunkSize)
		}
		c.data, c.err = s.fill(c.data)
		select {
		case s.chunks <- c:
		case <-s.ctx.Done():
			return
		}
		if c.err != nil {
			return
		}
	}
}

// fill unpacks a chunk. io.EOF is the layer's end, when all of it is right.
func (s *layerStream) fill(buf []byte) (_ []byte, err error) {
	n := 0
	for n < len(buf) && err == nil {
		var k int
		k, err = s.content.Read(buf[n:])
		n += k
	}
	if s.sum != nil {
		_, _ = s.sum.Write(buf[:n]) // a hash has no errors
	}
	switch {
	case s.room.Add(-int64(n)) < 0:
		return nil, flatten.ErrTooLarge
	case errors.Is(err, io.EOF):
		err = s.end()
	case err != nil:
		err = unpackError(err)
	}
	return buf[:n], err
}

// unpackError words what a decompressor says. The kind of a blob's own error
// does not matter: it is that of the pull, which is told instead.
func unpackError(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return errCutShort
	}
	return fmt.Errorf("unpack: %w", err)
}

// errCutShort is the cause when a layer ends before its content does.
var errCutShort = errors.New("its content is cut short")

// end is io.EOF, when the blob and what it unpacks to are what they should be.
func (s *layerStream) end() error {
	if _, err := io.Copy(io.Discard, s.blob); err != nil {
		return err
	}
	if s.sum == nil {
		return io.EOF
	}
	if got := hex.EncodeToString(s.sum.Sum(nil)); s.diffID.Algorithm != "sha256" || got != s.diffID.Hex {
		return fmt.Errorf("it unpacks to sha256:%s, not to %s as the image's configuration says", got, s.diffID)
	}
	s.verified()
	return io.EOF
}

// Read gives what is unpacked.
func (s *layerStream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 {
		if s.read != nil {
			s.free <- s.read[:chunkSize] // has room for all there are
			s.read = nil
		}
		if s.err != nil {
			return 0, s.err
		}
		select {
		case c := <-s.chunks:
			s.read, s.rest, s.err = c.data, c.data, c.err
		case <-s.ctx.Done():
			return 0, context.Cause(s.ctx)
		}
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// Close ends the unpacking.
func (s *layerStream) Close() error {
	s.stop()
	<-s.ended
	_ = s.content.Close() // it repeats what Read has said
	return s.file.Close()
}

// decompress reads a blob by what it is, whatever its type says.
func decompress(blob *bufio.Reader) (io.ReadCloser, error) {
	magic, err := blob.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err //nolint:wrapcheck // the blob's own
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}): // RFC 1952
		content, err := gzip.NewReader(blob)
		if err != nil {
			return nil, unpackError(err)
		}
		return content, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}), len(magic) == 4 && magic[0]&0xf0 == 0x50 && bytes.Equal(magic[1:], []byte{0x2a, 0x4d, 0x18}):
		// RFC 8878; a skippable frame may come first, as zstd:chunked has it.
		content, err := zstd.NewReader(blob, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(zstdWindow), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		return content.IOReadCloser(), nil
	}
	return io.NopCloser(blob), nil
}

// zstdWindow bounds the memory that a layer asks for to be unpacked: what zstd
// itself takes without being told otherwise (zstd(1): --memory).
const zstdWindow = 128 << 20

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
