package staging

import (
	"encoding/json"
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

// ImageNames remembers on the shared disk by which names images were asked for,
// for people who look at the cache: its SIFs are known by digest alone. Nothing
// else depends on it. A name that two processes note in the same moment may be
// lost. Its exported field is not changed once it is used.
type ImageNames struct {
	// Dir has a file for each image; empty remembers nothing.
	Dir string

	mu    sync.Mutex
	noted map[string]bool
}

// namedImage is what a file tells.
type namedImage struct {
	Digest       string   `json:"digest"`
	Architecture string   `json:"architecture"`
	Names        []string `json:"names"`
}

func (n *ImageNames) path(digest, architecture string) string {
	return filepath.Join(n.Dir, recordName(digest, architecture)+".json")
}

// note remembers an image's name. That fails without a word.
func (n *ImageNames) note(img source.Image) {
	what := strings.Join([]string{img.Digest, img.Architecture, img.Reference.String()}, " ")
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Dir == "" || n.noted[what] || strings.Contains(img.Reference.Name(), "@") { // a digest tells nothing new
		return
	}
	if n.noted == nil {
		n.noted = map[string]bool{}
	}
	n.noted[what] = true
	path := n.path(img.Digest, img.Architecture)
	known, err := readNames(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) || slices.Contains(known.Names, img.Reference.String()) {
		return
	}
	known.Digest, known.Architecture = img.Digest, img.Architecture
	known.Names = append(known.Names, img.Reference.String())
	if data, err := json.Marshal(known); err == nil && os.MkdirAll(n.Dir, 0o700) == nil {
		_ = atomicfile.Write(path, append(data, '\n'), 0o600) // it is of use, and not needed
	}
}

// Of returns the names of an image, the oldest first.
func (n *ImageNames) Of(digest, architecture string) []string {
	known, err := readNames(n.path(digest, architecture))
	if err != nil {
		return nil
	}
	return known.Names
}

func readNames(path string) (known namedImage, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &known)
	}
	return known, err //nolint:wrapcheck // it goes no further
}

// Forget removes the names of images of which there is no SIF any more.
func (n *ImageNames) Forget(there func(digest, architecture string) bool) error {
	if n.Dir == "" {
		return nil
	}
	entries, err := os.ReadDir(n.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look at the names of images: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range entries {
		path := filepath.Join(n.Dir, e.Name())
		known, err := readNames(path)
		if err != nil || there(known.Digest, known.Architecture) {
			continue
		}
		for _, name := range known.Names {
			delete(n.noted, strings.Join([]string{known.Digest, known.Architecture, name}, " "))
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("forget the names of an image: %w", err)
		}
	}
	return nil
}
