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
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/gzip"
	"golang.org/x/sync/errgroup"
)

// layer is one layer as it was pulled.
type layer struct {
	path    string // of the blob
	entries []entry
}

// pulled is an image on the local disk, checked against its digests.
type pulled struct {
	config *v1.ConfigFile
	layers []layer // the lowest first
}

// Layers of one image that are pulled at a time, and how many an image may
// have: Docker makes 127 at most.
const (
	pullsAtOnce = 3
	maxLayers   = 1000
)

// pull brings the layers of an image into dir.
func (r Registry) pull(ctx context.Context, img Image, dir string, room *budget, progress func(Progress)) (pulled, error) {
	group, ctx := errgroup.WithContext(ctx)
	image, err := r.open(ctx, img)
	if err != nil {
		return pulled{}, err
	}
	defer image.close()
	remoteLayers, config, err := readManifest(image, img.Architecture)
	if err != nil {
		return pulled{}, err
	}
	report := newReporter(Pulling, progress)
	for _, l := range remoteLayers {
		size, err := l.Size()
		if err != nil {
			return pulled{}, fmt.Errorf("read the size of a layer: %w", err)
		}
		report.total += size
	}
	out := pulled{config: config, layers: make([]layer, len(remoteLayers))}
	group.SetLimit(pullsAtOnce)
	for i, l := range remoteLayers {
		group.Go(func() error {
			p := puller{layer: l, diffID: config.RootFS.DiffIDs[i], budget: room, stall: r.stall(), report: report}
			var err error
			out.layers[i], err = p.pull(ctx, filepath.Join(dir, fmt.Sprintf("layer-%d", i)))
			if err != nil {
				return fmt.Errorf("layer %d of %d: %w", i+1, len(remoteLayers), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return pulled{}, err //nolint:wrapcheck // worded above
	}
	return out, nil
}

// readManifest reads what the image is made of and refuses what is not handled.
func readManifest(image v1.Image, architecture string) ([]v1.Layer, *v1.ConfigFile, error) {
	config, err := image.ConfigFile()
	if err != nil {
		return nil, nil, fmt.Errorf("read the configuration: %w", err)
	}
	layers, err := image.Layers()
	if err != nil {
		return nil, nil, fmt.Errorf("read the list of layers: %w", err)
	}
	if err := checkPlatform(config, architecture); err != nil {
		return nil, nil, err
	}
	if len(layers) != len(config.RootFS.DiffIDs) || len(layers) > maxLayers {
		return nil, nil, fmt.Errorf("its manifest lists %d layers, its configuration %d, and at most %d are handled",
			len(layers), len(config.RootFS.DiffIDs), maxLayers)
	}
	for i, l := range layers {
		if err := checkLayer(l); err != nil {
			return nil, nil, fmt.Errorf("layer %d of %d: %w", i+1, len(layers), err)
		}
	}
	return layers, config, nil
}

func checkPlatform(config *v1.ConfigFile, architecture string) error {
	if config.OS != "" && config.OS != "linux" {
		return fmt.Errorf("it is made for %s, and only Linux images can be run", config.OS)
	}
	if config.Architecture != "" && config.Architecture != architecture {
		return fmt.Errorf("it is made for linux/%s, not for linux/%s", config.Architecture, architecture)
	}
	return nil
}

func checkLayer(l v1.Layer) error {
	kind, err := l.MediaType()
	if err != nil {
		return fmt.Errorf("read its type: %w", err)
	}
	switch kind { //nolint:exhaustive // of all types these are layers
	case types.DockerLayer, types.OCILayer, types.DockerUncompressedLayer, types.OCIUncompressedLayer:
		return nil
	case types.OCILayerZStd:
		return errZstd
	case types.DockerForeignLayer, types.OCIRestrictedLayer, types.OCIUncompressedRestrictedLayer:
		return errors.New("it may not be distributed by a registry and has to be got from its maker, which is not handled")
	default:
		return fmt.Errorf("its type %s is not handled", kind)
	}
}

var errZstd = errors.New("it is compressed with zstd, which is not handled yet: push the image with gzip layers")

// puller brings one layer.
type puller struct {
	layer  v1.Layer
	diffID v1.Hash
	budget *budget
	stall  time.Duration
	report *reporter
}

// pull writes the layer's blob to path while it is unpacked in passing: for the
// list of its entries, and for the digest of its content. The blob's own digest
// is verified by the registry client when it has been read to its end.
func (p puller) pull(ctx context.Context, path string) (layer, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	blob, err := p.layer.Compressed()
	if err != nil {
		return layer{}, fmt.Errorf("pull: %w", err)
	}
	// A read that waits for the registry ends when its body is closed.
	unwatch := context.AfterFunc(ctx, func() { _ = blob.Close() })
	defer func() {
		if unwatch() {
			_ = blob.Close()
		}
	}()
	stall := time.AfterFunc(p.stall, func() { cancel(errStalled) })
	defer stall.Stop()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return layer{}, fmt.Errorf("pull: %w", err)
	}
	var pullErr error
	passing := readerFunc(func(b []byte) (int, error) {
		n, err := blob.Read(b)
		stall.Reset(p.stall)
		p.report.add(int64(n))
		if err != nil && !errors.Is(err, io.EOF) {
			pullErr = err
		}
		return n, err //nolint:wrapcheck // a Reader's error is its own
	})
	entries, err := p.unpack(io.TeeReader(passing, f))
	err = errors.Join(err, f.Close())
	switch {
	case context.Cause(ctx) != nil:
		return layer{}, context.Cause(ctx)
	case pullErr == nil && errors.Is(err, io.ErrUnexpectedEOF):
		return layer{}, errors.New("its content is cut short")
	case err != nil:
		return layer{}, err
	}
	return layer{path: path, entries: entries}, nil
}

// unpack lists the entries of a blob, reads it to its end, and checks what it
// unpacks to.
func (p puller) unpack(blob io.Reader) ([]entry, error) {
	content, err := decompress(blob)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	entries, err := readEntries(io.TeeReader(content, sum), p.budget)
	if err != nil {
		return nil, err
	}
	if _, err := io.Copy(io.Discard, blob); err != nil {
		return nil, fmt.Errorf("pull: %w", err)
	}
	return entries, checkDigest(sum, p.diffID)
}

func checkDigest(sum hash.Hash, want v1.Hash) error {
	if got := hex.EncodeToString(sum.Sum(nil)); want.Algorithm != "sha256" || got != want.Hex {
		return fmt.Errorf("it unpacks to sha256:%s, not to %s as the image's configuration says", got, want)
	}
	return nil
}

// open gives the layer's tar stream again.
func (l layer) open() (io.ReadCloser, error) {
	f, err := os.Open(l.path)
	if err != nil {
		return nil, fmt.Errorf("open a pulled layer: %w", err)
	}
	content, err := decompress(f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{content, f}, nil
}

// decompress reads a blob by what it is, whatever its type says.
func decompress(blob io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(blob, 256<<10)
	magic, err := buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("pull: %w", err)
	}
	switch {
	case bytes.HasPrefix(magic, []byte{0x1f, 0x8b}):
		content, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("unpack: %w", err)
		}
		return content, nil
	case bytes.Equal(magic, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		return nil, errZstd
	default:
		return buffered, nil
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }
