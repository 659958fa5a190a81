package engineimages

import (
	"context"
	"strings"
	"sync"

	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// askSize asks the registry for the sizes of an image's layers, by the first digits of their
// digests. Without a limit it asks nothing. It returns a *transfer.SizeError if the image is too
// large.
func (im *Images) askSize(ctx context.Context, w wanted) (layers map[string]int64, err error) {
	if im.MaxImageBytes <= 0 {
		return nil, nil
	}
	img, err := im.Source.Resolve(ctx, w.ref)
	if err != nil {
		return nil, err
	}
	opened, err := im.Source.Open(ctx, img)
	if err != nil {
		return nil, err
	}
	defer opened.Close()
	layers = map[string]int64{}
	for _, layer := range opened.Manifest.Layers {
		layers[shortID(layer.Digest.Hex)] = layer.Size
	}
	if sum := opened.PulledBytes(); sum > im.MaxImageBytes {
		return nil, &transfer.SizeError{Size: sum, Most: im.MaxImageBytes}
	}
	return layers, nil
}

// shortID returns a layer's digest as Docker prints it.
func shortID(hex string) string { return hex[:min(len(hex), 12)] }

// progress reads the output of `docker pull` without a terminal: a line for each change of a layer,
// without bytes. So a layer counts only when it is complete.
type progress struct {
	t *transfer.Transfer

	mu          sync.Mutex
	layers      map[string]int64 // of the incomplete layers
	done, total int64
	line        []byte // the incomplete last line
}

func newProgress(t *transfer.Transfer, layers map[string]int64) *progress {
	p := &progress{t: t, layers: layers}
	for _, size := range layers {
		p.total += size
	}
	t.SetBytes(0, p.total)
	return p
}

// Write reads a part of the output. It never fails.
func (p *progress) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range b {
		if c != '\n' {
			p.line = append(p.line, c)
			continue
		}
		p.read(string(p.line))
		p.line = p.line[:0]
	}
	return len(b), nil
}

func (p *progress) read(line string) {
	id, status, _ := strings.Cut(strings.TrimSpace(line), ": ")
	switch status {
	case "Download complete", "Already exists", "Pull complete":
		p.done += p.layers[id]
		delete(p.layers, id)
		p.t.SetBytes(p.done, p.total)
	}
}
