package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/holders"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/cmd/internal/program"
	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/staging/images"
)

// cachedImage is a SIF in the cache, or a kept image whose SIF is missing there.
type cachedImage struct {
	// Names are what it was asked for by, those that it is kept under first.
	Names        []string  `json:"names"`
	Digest       string    `json:"digest"`
	Architecture string    `json:"architecture"`
	Settings     string    `json:"settings,omitempty"`
	Path         string    `json:"path,omitempty"`
	Size         int64     `json:"size"`
	Used         time.Time `json:"used,omitzero"`
	// Kept are the records that keep it; Missing is set when there is no SIF.
	Kept    []images.Kept `json:"kept"`
	Missing bool          `json:"missing,omitempty"`
	// Bundles use it, or are about to; Holders are others who have it pinned.
	Bundles []string `json:"bundles"`
	Holders []string `json:"holders"`
}

func imageLs(p program.Process) *cobra.Command {
	return cacheSub(p, "ls", "List the images in the cache, those last used last", cobra.NoArgs,
		func(ctx context.Context, c *cache.Cache, f cacheFlags, _ []string) error {
			entries, err := c.Entries(ctx)
			if err != nil {
				return err
			}
			images := newImages(f.conf, c, source.Source{})
			kept, err := images.Kept.List()
			if err != nil {
				return err
			}
			list := listImages(entries, kept, c.Grouped(), images.Names.Of)
			return show(p, f, list, imagesText(p.Now(), list))
		})
}

// listImages tells of each SIF, and of kept images that have none. grouped says whether
// a group shares the cache.
func listImages(entries []cache.Entry, kept []images.Kept, grouped bool, names func(digest, architecture string) []string) []cachedImage {
	list, found := []cachedImage{}, map[cache.Key]bool{}
	for _, e := range entries {
		img, ok := images.ParseKey(e.Key)
		if !ok {
			continue
		}
		one := cachedImage{
			Names: []string{}, Digest: img.Digest, Architecture: img.Architecture, Settings: img.Settings, Path: e.Path, Size: e.Size, Used: e.Used,
			Kept: []images.Kept{}, Bundles: []string{}, Holders: []string{},
		}
		for _, k := range kept {
			if k.Key == e.Key && (k.Apart() && grouped) == e.Private {
				found[k.Key] = true
				one.Kept = append(one.Kept, k)
				one.Names = append(one.Names, images.ShortName(k.Name))
			}
		}
		for _, name := range names(img.Digest, img.Architecture) {
			if !slices.Contains(one.Names, images.ShortName(name)) {
				one.Names = append(one.Names, name)
			}
		}
		for _, h := range e.Pins {
			switch bundle, row := holders.Bundle(h); {
			case row:
				one.Bundles = append(one.Bundles, bundle)
			case !strings.HasPrefix(string(h), "image-"):
				one.Holders = append(one.Holders, string(h))
			}
		}
		list = append(list, one)
	}
	slices.SortFunc(list, func(a, b cachedImage) int { return cmp.Or(a.Used.Compare(b.Used), cmp.Compare(a.Path, b.Path)) })
	for _, k := range kept {
		if !found[k.Key] {
			list = append(list, cachedImage{
				Names: []string{images.ShortName(k.Name)}, Digest: k.Digest, Architecture: k.Architecture, Missing: true,
				Kept: []images.Kept{k}, Bundles: []string{}, Holders: []string{},
			})
		}
	}
	return list
}

const shortDigest = len("sha256:") + shortHash

func imagesText(now time.Time, list []cachedImage) string {
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
			cmp.Or(termtext.Line(strings.Join(i.Names, ", ")), "?"), i.Digest[:min(shortDigest, len(i.Digest))], i.Architecture, size, used, kept, fmt.Sprint(len(i.Bundles)),
		})
	}
	return termtext.Table(rows)
}

// text is a line for who pulled an image.
func (p pulled) text() string {
	return fmt.Sprintf("%s %s %s %s, kept\n", images.ShortName(p.Name), p.Architecture, p.Digest, codalab.FormatSize(p.Size))
}
