package apptainer

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"sync/atomic"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/cl-slurm/cl-slurm/apptainer/flatten"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/readahead"
)

// layers are the layers of one image, the lowest first. They can be read during and after their
// pull.
type layers struct {
	blobs    []*blob // a blob of two layers is in it twice
	diffIDs  []v1.Hash
	verified []bool       // layers that were once read to their end
	most     int64        // bytes that the layers may unpack to
	room     atomic.Int64 // what is left of most
	report   *reporter
	nicely   func(func()) // calls functions that pull or unpack
}

// newLayers returns the layers of an image, which are pulled into dir, or read in place if they are
// local.
func (c Converter) newLayers(dir string, opened *source.Opened, progress func(Progress)) *layers {
	l := &layers{nicely: c.nicely, diffIDs: opened.Config.RootFS.DiffIDs, verified: make([]bool, len(opened.Manifest.Layers)), report: &reporter{fn: progress}}
	l.most = c.maxLayerBytes()
	l.room.Store(l.most)
	known := map[v1.Hash]*blob{}
	for _, desc := range opened.Manifest.Layers {
		b := known[desc.Digest]
		if b == nil {
			b = newBlob(dir, desc)
			known[desc.Digest] = b
			if opened.IsLocal() { // the diffID is checked instead of its digest
				b.local = func(ctx context.Context) (io.ReadCloser, error) { return opened.Blob(ctx, desc, 0) }
			} else {
				l.report.toPull += desc.Size
			}
		}
		l.report.toConvert += desc.Size
		l.blobs = append(l.blobs, b)
	}
	return l
}

// open returns a layer's tar stream, until ctx ends. The stream ends with io.EOF only if it matches
// the diffID in the image's configuration.
func (l *layers) open(ctx context.Context, i int) (_ io.ReadCloser, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer func() {
		if err != nil {
			cancel()
		}
	}()
	file, err := l.blobs[i].open(ctx)
	if err != nil {
		return nil, err
	}
	counted := bufio.NewReaderSize(readerFunc(func(p []byte) (int, error) {
		n, err := file.Read(p)
		l.report.addConverted(int64(n))
		return n, err
	}), 128<<10)
	content, err := l.decompress(ctx, counted)
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	s := &layerStream{blob: counted, content: content, file: file, most: l.most, room: &l.room, ctx: ctx, cancel: cancel}
	s.Reader = readahead.New(readerFunc(s.unpack), l.nicely)
	// Another process may change a local file between two readings.
	if !l.verified[i] || l.blobs[i].local != nil {
		s.sum, s.diffID = sha256.New(), l.diffIDs[i]
		s.verified = func() { l.verified[i] = true }
	}
	return s, nil
}

// layerStream reads a layer. Another goroutine unpacks it, a few chunks ahead of the reader.
type layerStream struct {
	*readahead.Reader // of unpack

	blob     *bufio.Reader
	content  io.ReadCloser
	file     io.Closer
	most     int64 // of layers
	room     *atomic.Int64
	sum      hash.Hash // nil for a layer that was verified before
	diffID   v1.Hash
	verified func()

	ctx    context.Context //nolint:containedctx // a Reader has no argument for it
	cancel context.CancelFunc
}

// unpack reads the unpacked layer. io.EOF means that the whole layer is verified.
func (s *layerStream) unpack(p []byte) (int, error) {
	n, err := s.content.Read(p)
	if s.sum != nil {
		_, _ = s.sum.Write(p[:n]) // a hash has no errors
	}
	switch {
	case s.room.Add(-int64(n)) < 0:
		return 0, fmt.Errorf("%w: layers of more than %s", flatten.ErrTooLarge, flatten.Size(s.most))
	case errors.Is(err, io.EOF):
		err = s.verify()
	case err != nil && s.ctx.Err() != nil: // the decompressor may describe it otherwise
		err = context.Cause(s.ctx)
	case err != nil:
		err = unpackError(err)
	}
	return n, err
}

// verify returns io.EOF if the unpacked layer matches its diffID.
func (s *layerStream) verify() error {
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

// Close stops the unpacking.
func (s *layerStream) Close() error {
	s.cancel()
	s.Stop()
	_ = s.content.Close() // Read has returned its error
	return s.file.Close()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
