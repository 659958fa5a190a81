package keptimages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/bridge/pins"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

// Image is an image with a SIF in the cache, or a kept image without one.
type Image struct {
	// References are its references: first those under which it is kept, then those by which bundles requested it.
	References   []string  `json:"names"`
	Digest       string    `json:"digest"`
	Architecture string    `json:"architecture"`
	Settings     string    `json:"settings,omitempty"`
	Path         string    `json:"path,omitempty"`
	Size         int64     `json:"size"`
	Used         time.Time `json:"used,omitzero"`
	// Kept are the records that keep it. Missing is set when there is no SIF.
	Kept    []images.KeptImage `json:"kept"`
	Missing bool               `json:"missing,omitempty"`
	// Bundles use it, or are about to. Holders are the others that have pinned it.
	Bundles []string `json:"bundles"`
	Holders []string `json:"holders"`
}

// List returns each SIF of a cache, those last used last, and then the kept images that
// have none. grouped reports whether a group shares the cache; references returns the references
// by which an image was requested.
func List(entries []cache.Entry, kept []images.KeptImage, grouped bool, references func(digest, architecture string) []string) []Image {
	list, found := []Image{}, map[cache.Key]bool{}
	for _, e := range entries {
		img, ok := images.ParseKey(e.Key)
		if !ok {
			continue
		}
		one := Image{
			References: []string{}, Digest: img.Digest, Architecture: img.Architecture, Settings: img.Settings, Path: e.Path, Size: e.Size, Used: e.Used,
			Kept: []images.KeptImage{}, Bundles: []string{}, Holders: []string{},
		}
		for _, k := range kept {
			if k.Key == e.Key && (k.Apart() && grouped) == e.Private {
				found[k.Key] = true
				one.Kept = append(one.Kept, k)
				one.References = append(one.References, images.ShortReference(k.Reference))
			}
		}
		for _, reference := range references(img.Digest, img.Architecture) {
			if !slices.Contains(one.References, images.ShortReference(reference)) {
				one.References = append(one.References, reference)
			}
		}
		for _, h := range e.Pins {
			switch _, bundle, row := pins.RowOf(h); {
			case row:
				one.Bundles = append(one.Bundles, bundle)
			case !strings.HasPrefix(string(h), "image-"):
				one.Holders = append(one.Holders, string(h))
			}
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b Image) int { return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Path, b.Path)) })
	for _, k := range kept {
		if !found[k.Key] {
			list = append(list, Image{
				References: []string{images.ShortReference(k.Reference)}, Digest: k.Digest, Architecture: k.Architecture, Missing: true,
				Kept: []images.KeptImage{k}, Bundles: []string{}, Holders: []string{},
			})
		}
	}
	return list
}

const shortDigest = len("sha256:") + 12

// ListText returns the images for people.
func ListText(now time.Time, list []Image) string {
	rows := [][]string{{"IMAGE", "DIGEST", "ARCH", "SIZE", "USED", "KEPT", "BUNDLES"}}
	for _, i := range list {
		kept := "-"
		if len(i.Kept) > 0 {
			kept = termtext.Ago(now, i.Kept[0].Since)
		}
		size, used := codalab.FormatSize(i.Size), termtext.Ago(now, i.Used)
		if i.Missing {
			size, used = "missing", "-"
		}
		rows = append(rows, []string{
			cmp.Or(termtext.Line(strings.Join(i.References, ", ")), "?"), i.Digest[:min(shortDigest, len(i.Digest))], i.Architecture, size, used, kept, fmt.Sprint(len(i.Bundles)),
		})
	}
	return termtext.Table(rows)
}

// FindKeptImages returns the kept images that a word means: a reference as people write it, or the
// beginning of a digest. A non-empty architecture leaves out the others.
func FindKeptImages(kept []images.KeptImage, word string, a config.Architecture) ([]images.KeptImage, error) {
	full := word
	if ref, err := source.ParseReference(word); err == nil {
		full = ref.Full()
	}
	var found []images.KeptImage
	for _, k := range kept {
		if a != "" && k.Architecture != string(a.Canonical()) {
			continue
		}
		if k.Reference == full || k.From == word || strings.HasPrefix(k.Digest, word) && len(word) > len("sha256:") {
			found = append(found, k)
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("no image %q is kept: cl-bridge image ls lists them", word)
	}
	return found, nil
}
