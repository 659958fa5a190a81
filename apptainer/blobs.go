package apptainer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// blob is a compressed layer on its way to the local disk. It is written by one
// goroutine and read by others meanwhile, who wait for what is not there yet.
//
// Its file is named for its digest and holds a first part of it, so that what an
// earlier conversion left is gone on with.
type blob struct {
	v1.Descriptor

	path string
	// local opens it where it lies on a local disk already; nil where it has to
	// be pulled.
	local func(ctx context.Context) (io.ReadCloser, error)

	mu      sync.Mutex
	changed sync.Cond
	have    int64 // bytes that may be read
	ended   bool
	err     error
}

// newBlob is a blob whose file is where an OCI layout in dir has it (image-spec,
// image-layout.md).
func newBlob(dir string, desc v1.Descriptor) *blob {
	b := &blob{Descriptor: desc, path: filepath.Join(dir, "blobs", "sha256", desc.Digest.Hex)}
	b.changed.L = &b.mu
	return b
}

// opener opens a blob at an offset.
type opener func(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error)

// pull brings the blob, and ends what its readers wait for. progress is told
// of every byte that is there, once.
func (b *blob) pull(ctx context.Context, open opener, progress func(int64)) error {
	err := b.bring(ctx, open, progress)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended, b.err = true, err
	b.changed.Broadcast()
	return err
}

func (b *blob) bring(ctx context.Context, open opener, progress func(int64)) error {
	f, err := os.OpenFile(b.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	defer func() { _ = f.Close() }() // its errors would be those of writing, which are seen
	sum := sha256.New()
	left, err := io.Copy(sum, io.LimitReader(f, b.Size))
	if err != nil {
		return fmt.Errorf("read what was pulled before: %w", err)
	}
	progress(left)
	if left > 0 && left < b.Size {
		err = b.receive(ctx, f, sum, left, open, progress)
	}
	if left > 0 && err == nil && checkDigest(sum, b.Digest) == nil {
		b.grow(b.Size)
		return nil
	}
	if err != nil && !errors.Is(err, errWrongDigest) {
		return err
	}
	// What was left is none of it, or there was nothing. What comes now may be
	// read as it comes.
	progress(-b.Size * min(left, 1))
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	sum.Reset()
	err = b.receive(ctx, f, sum, 0, open, func(n int64) {
		progress(n)
		b.grow(n)
	})
	if errors.Is(err, errWrongDigest) {
		return errors.Join(err, os.Remove(b.path))
	}
	return err
}

// receive writes what follows offset, and checks the digest of the whole.
func (b *blob) receive(ctx context.Context, f *os.File, sum hash.Hash, offset int64, open opener, progress func(int64)) error {
	body, err := open(ctx, b.Descriptor, offset)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	n, err := io.CopyBuffer(writerFunc(func(p []byte) (int, error) {
		n, err := f.Write(p)
		_, _ = sum.Write(p[:n]) // a hash has no errors
		progress(int64(n))
		return n, err
	}), onlyReader{io.LimitReader(body, b.Size-offset)}, make([]byte, 256<<10))
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	if offset+n < b.Size {
		return fmt.Errorf("pull: %w", io.ErrUnexpectedEOF)
	}
	return checkDigest(sum, b.Digest)
}

// errWrongDigest is the cause when a registry sends something else than was
// asked for.
var errWrongDigest = errors.New("it is not what its digest says")

func checkDigest(sum hash.Hash, want v1.Hash) error {
	if got := hex.EncodeToString(sum.Sum(nil)); want.Algorithm != "sha256" || got != want.Hex {
		return fmt.Errorf("%w: sha256:%s instead of %s", errWrongDigest, got, want)
	}
	return nil
}

// grow says that n more bytes may be read.
func (b *blob) grow(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.have += n
	b.changed.Broadcast()
}

// await waits until there is more than offset, the blob has ended, or ctx has.
func (b *blob) await(ctx context.Context, offset int64) (have int64, err error) {
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed.Broadcast()
	})()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.have <= offset && !b.ended && ctx.Err() == nil {
		b.changed.Wait()
	}
	switch {
	case b.have > offset:
		return b.have, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case b.err != nil:
		return 0, b.err
	}
	return 0, io.EOF
}

// follow reads the blob while it comes. At its end it has the digest that was
// asked for; but one that is local is what its file holds.
func (b *blob) follow(ctx context.Context) (io.ReadCloser, error) {
	if b.local != nil {
		return b.local(ctx)
	}
	if _, err := b.await(ctx, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	f, err := os.Open(b.path)
	if err != nil {
		return nil, fmt.Errorf("open a pulled layer: %w", err)
	}
	return &follower{blob: b, File: f, ctx: ctx}, nil
}

// follower reads a blob's file.
type follower struct {
	*os.File

	blob     *blob
	ctx      context.Context //nolint:containedctx // a Reader has no argument for it
	at, have int64
}

func (f *follower) Read(p []byte) (int, error) {
	if f.at >= f.have {
		have, err := f.blob.await(f.ctx, f.at)
		if err != nil {
			return 0, err
		}
		f.have = have
	}
	n, err := f.File.Read(p[:min(int64(len(p)), f.have-f.at)])
	f.at += int64(n)
	return n, err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// onlyReader hides what else a reader can do.
type onlyReader struct{ io.Reader }
