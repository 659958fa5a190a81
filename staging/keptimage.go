package staging

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// KeptImages is the directory on the shared disk with the records of the images
// that are kept; empty for none. A record is one file, published whole, so that
// those who keep images and the bridges that use them need no lock.
type KeptImages string

// KeptImage is an image that was brought in to stay until somebody lets it go.
// Its SIF is pinned in the cache.
type KeptImage struct {
	// Format is the version of the record.
	Format int `json:"format"`
	// Name is the full name that bundles ask for it by, From the reference by
	// which it was brought in.
	Name string `json:"name"`
	From string `json:"from"`
	// Digest is that of the platform's manifest, "sha256:…".
	Digest       string `json:"digest"`
	Architecture string `json:"architecture"`
	// Key is the SIF's in the cache, whose settings of the conversion stay as
	// they were.
	Key cache.Key `json:"key"`
	// Private is set where it took credentials to have it.
	Private bool `json:"private,omitempty"`
	// Closed is set where it was made of a file that not all may read who share the
	// cache.
	Closed bool `json:"closed,omitempty"`
	// Size is the SIF's, in bytes.
	Size int64 `json:"size"`
	// Since is when it was brought in, By who did.
	Since time.Time `json:"since"`
	By    string    `json:"by"`
}

const keptFormat = 1

// Apart says whether its SIF is kept from others who share the cache.
func (k KeptImage) Apart() bool { return k.Private || k.Closed }

// Holder names the record as who has its SIF pinned. Nothing but Remove, or
// another image in its place, ends that.
func (dir KeptImages) Holder(name, architecture string) cache.Holder {
	return cache.Holder("image-" + recordName(string(dir), name, architecture))
}

// recordName names a record by what it is about.
func recordName(words ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(words, "\x00")))
	return hex.EncodeToString(sum[:16])
}

func (dir KeptImages) path(name, architecture string) string {
	return filepath.Join(string(dir), recordName(name, architecture)+".json")
}

// Get reads the record of a full name and an architecture.
func (dir KeptImages) Get(name, architecture string) (k KeptImage, there bool, err error) {
	if dir == "" {
		return k, false, nil
	}
	k, err = readKept(dir.path(name, architecture))
	if errors.Is(err, fs.ErrNotExist) {
		return k, false, nil
	}
	return k, err == nil, err
}

// find is Get by a reference. One by digest finds whatever is kept of that
// digest and repository.
func (dir KeptImages) find(ref source.Reference, architecture string) (KeptImage, bool, error) {
	repository, digest, pinned := strings.Cut(ref.Name(), "@")
	if !pinned {
		return dir.Get(ref.Name(), architecture)
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

// repository is the name without tag or digest.
func (k KeptImage) repository() string {
	name, _, _ := strings.Cut(k.Name, "@")
	if i := strings.LastIndex(name, ":"); i > strings.LastIndex(name, "/") {
		return name[:i]
	}
	return name
}

// List reads all records, by name and architecture. Those of a directory that is
// not there are none.
func (dir KeptImages) List() ([]KeptImage, error) {
	list := []KeptImage{}
	if dir == "" {
		return list, nil
	}
	entries, err := os.ReadDir(string(dir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list kept images: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() || strings.HasPrefix(e.Name(), ".") || filepath.Ext(e.Name()) != ".json" {
			continue
		}
		k, err := readKept(filepath.Join(string(dir), e.Name()))
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was let go meanwhile
		case err != nil:
			return nil, err
		default:
			list = append(list, k)
		}
	}
	slices.SortFunc(list, func(a, b KeptImage) int {
		return strings.Compare(a.Name+" "+a.Architecture, b.Name+" "+b.Architecture)
	})
	return list, nil
}

func readKept(path string) (k KeptImage, err error) {
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err == nil && k.Format != keptFormat {
		err = fmt.Errorf("it is of format %d, written by another version", k.Format)
	}
	if err != nil {
		return k, fmt.Errorf("read kept image %s: %w", path, err)
	}
	return k, nil
}

// put publishes a record, in the place of the one of the same name and
// architecture.
func (dir KeptImages) put(k KeptImage) error {
	data, err := json.MarshalIndent(k, "", "  ")
	if err == nil {
		err = os.MkdirAll(string(dir), 0o700)
	}
	if err == nil {
		err = atomicfile.Write(dir.path(k.Name, k.Architecture), append(data, '\n'), 0o600)
	}
	if err != nil {
		return fmt.Errorf("keep image %s: %w", k.Name, err)
	}
	return nil
}

// remove lets an image go.
func (dir KeptImages) remove(name, architecture string) error {
	if err := os.Remove(dir.path(name, architecture)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("let image %s go: %w", name, err)
	}
	return nil
}
