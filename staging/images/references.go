package images

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// References records on the shared disk the references by which images were requested, for people who
// list the cache, which knows its SIFs only by digest. Nothing else depends on it. If two processes
// add one at the same time, one may be lost. Its exported field must not change after its first use.
type References struct {
	// Dir has a file for each image. It need not exist.
	Dir string

	mu    sync.Mutex
	added map[string]bool
}

type referencesRecord struct {
	Digest       string   `json:"digest"`
	Architecture string   `json:"architecture"`
	References   []string `json:"names"`
}

func (r *References) path(digest, architecture string) string {
	return filepath.Join(r.Dir, recordName(digest, architecture)+".json")
}

// add records an image's reference. It ignores failures.
func (r *References) add(img source.Image) {
	what := strings.Join([]string{img.Digest, img.Architecture, img.Reference.String()}, " ")
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.added[what] || strings.Contains(img.Reference.Full(), "@") { // a digest is not worth recording
		return
	}
	if r.added == nil {
		r.added = map[string]bool{}
	}
	r.added[what] = true
	path := r.path(img.Digest, img.Architecture)
	known, err := readReferences(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || slices.Contains(known.References, img.Reference.String()) {
		return
	}
	known.Digest, known.Architecture = img.Digest, img.Architecture
	known.References = append(known.References, img.Reference.String())
	if os.MkdirAll(r.Dir, 0o700) == nil {
		_ = atomicfile.WriteJSON(path, known) // nothing depends on it
	}
}

// Of returns the references of an image, the oldest first.
func (r *References) Of(digest, architecture string) []string {
	known, err := readReferences(r.path(digest, architecture))
	if err != nil {
		return nil
	}
	return known.References
}

func readReferences(path string) (known referencesRecord, err error) {
	if err := atomicfile.ReadJSON(path, &known); err != nil {
		return known, fmt.Errorf("read the references of an image: %w", err)
	}
	return known, nil
}

// Forget removes the references of images without a SIF. there reports whether an image has one.
func (r *References) Forget(there func(digest, architecture string) bool) error {
	entries, err := os.ReadDir(r.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list the references of images: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range entries {
		path := filepath.Join(r.Dir, e.Name())
		known, err := readReferences(path)
		if err != nil || there(known.Digest, known.Architecture) {
			continue
		}
		r.added = nil // files that still exist are read again
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget the references of an image: %w", err)
		}
	}
	return nil
}
