package images

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/internal/atomicfile"
)

// Records is the directory on the shared disk with the records of the kept images. It need not
// exist. A record is one file, published whole, so neither the operators who keep images nor the
// bridges that use them need a lock.
type Records string

// KeptImage is the record of an image that stays until an operator releases it. Its SIF is pinned in the
// cache.
type KeptImage struct {
	// Format is the version of the record.
	Format int `json:"format"`
	// Reference is the full reference by which bundles request the image, and From the one from
	// which it was brought.
	Reference string `json:"name"`
	From      string `json:"from"`
	// Digest is that of the platform's manifest, "sha256:…".
	Digest       string `json:"digest"`
	Architecture string `json:"architecture"`
	// Key is the SIF's key in the cache. It contains the settings of its conversion, which may have
	// changed since.
	Key cache.Key `json:"key"`
	// Private is set if the image needs credentials.
	Private bool `json:"private,omitempty"`
	// Closed is set if the image comes from a file that not all members of the cache's group may
	// read.
	Closed bool `json:"closed,omitempty"`
	// Size is the size of the SIF, in bytes.
	Size int64 `json:"size"`
	// Since is the time at which the image was brought, and By the person who did it.
	Since time.Time `json:"since"`
	By    string    `json:"by"`
}

const keptFormat = 1

// Apart reports whether the SIF is hidden from other members of the cache's group.
func (k KeptImage) Apart() bool { return k.Private || k.Closed }

// Holder returns the holder of the pin of a kept image's SIF.
func (dir Records) Holder(reference, architecture string) cache.Holder {
	return cache.Holder("image-" + recordName(string(dir), reference, architecture))
}

// recordName returns a name for the record of these words.
func recordName(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:16])
}

func (dir Records) path(reference, architecture string) string {
	return filepath.Join(string(dir), recordName(reference, architecture)+".json")
}

// Get reads the record of a full reference and an architecture.
func (dir Records) Get(reference, architecture string) (k KeptImage, there bool, err error) {
	k, err = readKeptImage(dir.path(reference, architecture))
	if errors.Is(err, fs.ErrNotExist) {
		return k, false, nil
	}
	return k, err == nil, err
}

// findReference is Get by a reference. A reference with a digest finds any record of that digest
// and repository.
func (dir Records) findReference(ref source.Reference, architecture string) (KeptImage, bool, error) {
	repository, digest, pinned := strings.Cut(ref.Full(), "@")
	if !pinned {
		return dir.Get(ref.Full(), architecture)
	}
	all, err := dir.List()
	if err != nil {
		return KeptImage{}, false, err
	}
	for _, k := range all {
		if k.Digest == digest && k.Architecture == architecture && k.repository() == repository {
			return k, true, nil
		}
	}
	return KeptImage{}, false, nil
}

// repository returns the reference without tag or digest.
func (k KeptImage) repository() string {
	name, _, _ := strings.Cut(k.Reference, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		return name[:i]
	}
	return name
}

// List reads all records, by reference and architecture.
func (dir Records) List() ([]KeptImage, error) {
	list := []KeptImage{}
	entries, err := os.ReadDir(string(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list kept images: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		k, err := readKeptImage(filepath.Join(string(dir), e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was just released
		case err != nil:
			return nil, err
		default:
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b KeptImage) int {
		return strings.Compare(a.Reference+" "+a.Architecture, b.Reference+" "+b.Architecture)
	})
	return list, nil
}

func readKeptImage(path string) (k KeptImage, err error) {
	err = atomicfile.ReadJSON(path, &k)
	if err == nil && k.Format != keptFormat {
		err = fmt.Errorf("it is of format %d, written by another version", k.Format)
	}
	if err != nil {
		return k, fmt.Errorf("read kept image %s: %w", path, err)
	}
	return k, nil
}

func (dir Records) put(k KeptImage) error {
	err := os.MkdirAll(string(dir), 0o700)
	if err == nil {
		err = atomicfile.WriteJSON(dir.path(k.Reference, k.Architecture), k)
	}
	if err != nil {
		return fmt.Errorf("keep image %s: %w", k.Reference, err)
	}
	return nil
}

func (dir Records) remove(reference, architecture string) error {
	if err := os.Remove(dir.path(reference, architecture)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("release image %s: %w", reference, err)
	}
	return nil
}
