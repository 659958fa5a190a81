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

// blob is a compressed layer that is pulled to the local disk. One goroutine writes it while others
// read it; readers wait for missing bytes.
//
// Its file is named for its digest and has its first bytes, so that a later pull can continue from
// the end of an earlier one.
type blob struct {
	v1.Descriptor

	path string
	// local opens a blob on a local disk. It is nil for a blob that has to be pulled.
	local func(ctx context.Context) (io.ReadCloser, error)

	mu       sync.Mutex
	changed  sync.Cond
	readable int64 // bytes that readers may have
	ended    bool
	err      error
}

// newBlob returns a blob whose file has the path of an OCI layout in dir (image-spec,
// image-layout.md).
func newBlob(dir string, desc v1.Descriptor) *blob {
	b := &blob{Descriptor: desc, path: filepath.Join(dir, "blobs", "sha256", desc.Digest.Hex)}
	b.changed.L = &b.mu
	return b
}

// opener opens a blob at an offset.
type opener func(ctx context.Context, blob v1.Descriptor, offset int64) (io.ReadCloser, error)

// pull pulls the blob and then wakes its readers. It calls progress with the number of bytes
// written to the disk, and with a negative number for bytes thrown away.
func (b *blob) pull(ctx context.Context, open opener, progress func(int64)) error {
	err := b.pullFile(ctx, open, progress)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended, b.err = true, err
	b.changed.Broadcast()
	return err
}

func (b *blob) pullFile(ctx context.Context, open opener, progress func(int64)) (err error) {
	f, err := os.OpenFile(b.path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }() // a network disk may report a failed write only now
	sum := sha256.New()
	earlier, err := io.Copy(sum, io.LimitReader(f, b.Size))
	if err != nil {
		return fmt.Errorf("read the earlier part of a layer: %w", err)
	}
	progress(earlier)
	if earlier > 0 {
		if earlier < b.Size {
			err = b.receive(ctx, f, sum, earlier, open, progress)
		} else {
			err = checkDigest(sum, b.Digest)
		}
		if err == nil {
			b.addReadable(b.Size)
		}
		if !errors.Is(err, errWrongDigest) {
			return err
		}
		progress(-b.Size) // the earlier bytes are wrong
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("pull: %w", err)
	}
	sum.Reset()
	// Readers may have these bytes immediately, because no earlier bytes can be wrong.
	err = b.receive(ctx, f, sum, 0, open, func(n int64) {
		progress(n)
		b.addReadable(n)
	})
	if errors.Is(err, errWrongDigest) {
		return errors.Join(err, os.Remove(b.path))
	}
	return err
}

// receive writes the bytes from offset on, and checks the digest of the whole blob.
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

// errWrongDigest is the cause when a registry sends wrong content.
var errWrongDigest = errors.New("its content does not match its digest")

func checkDigest(sum hash.Hash, want v1.Hash) error {
	if got := hex.EncodeToString(sum.Sum(nil)); want.Algorithm != "sha256" || got != want.Hex {
		return fmt.Errorf("%w: sha256:%s instead of %s", errWrongDigest, got, want)
	}
	return nil
}

// addReadable lets readers have n more bytes.
func (b *blob) addReadable(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readable += n
	b.changed.Broadcast()
}

// waitBeyond waits until there are bytes beyond offset. It returns the number of bytes that readers
// may have, or io.EOF at the blob's end.
func (b *blob) waitBeyond(ctx context.Context, offset int64) (readable int64, err error) {
	defer context.AfterFunc(ctx, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.changed.Broadcast()
	})()
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.readable <= offset && !b.ended && ctx.Err() == nil {
		b.changed.Wait()
	}
	switch {
	case b.readable > offset:
		return b.readable, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case b.err != nil:
		return 0, b.err
	}
	return 0, io.EOF
}

// open opens the blob, even during its pull. A pulled blob's digest has been checked when the
// reader returns io.EOF; a local blob's is not checked.
func (b *blob) open(ctx context.Context) (io.ReadCloser, error) {
	if b.local != nil {
		return b.local(ctx)
	}
	if _, err := b.waitBeyond(ctx, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	f, err := os.Open(b.path)
	if err != nil {
		return nil, fmt.Errorf("open a pulled layer: %w", err)
	}
	return &blobReader{blob: b, File: f, ctx: ctx}, nil
}

// blobReader reads a blob's file while it grows.
type blobReader struct {
	*os.File

	blob         *blob
	ctx          context.Context //nolint:containedctx // a Reader has no argument for it
	at, readable int64
}

func (r *blobReader) Read(p []byte) (int, error) {
	if r.at >= r.readable {
		readable, err := r.blob.waitBeyond(r.ctx, r.at)
		if err != nil {
			return 0, err
		}
		r.readable = readable
	}
	n, err := r.File.Read(p[:min(int64(len(p)), r.readable-r.at)])
	r.at += int64(n)
	return n, err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// onlyReader hides a reader's other methods, which io.CopyBuffer would prefer.
type onlyReader struct{ io.Reader }
