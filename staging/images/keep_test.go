package images

import (
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

func wantedImage(t *testing.T, image string) Wanted {
	t.Helper()
	ref, err := source.ParseReference(image)
	must(t, err)
	return Wanted{From: ref, By: "ann@login1"}
}

func TestKeptImageIsUsedWhileItsRegistryIsDown(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("tiny:1", "one")
	operator := s.images("login2")
	kept, err := operator.Keep(t.Context(), wantedImage(t, image), func(transfer.Progress) {})
	must(t, err)
	if kept.By != "ann@login1" || kept.Size == 0 || kept.Private || kept.Digest == "" {
		t.Errorf("%+v", kept)
	}
	s.down.Store(true)
	im := s.images("login1")
	inputs, err := s.stage(im, "alice", image)
	if err != nil || !strings.HasSuffix(inputs.PinnedReference, kept.Digest) {
		t.Errorf("%+v, %v", inputs, err)
	}
	_, err = s.stage(im, "alice", inputs.PinnedReference)
	must(t, err)
	_, err = s.stage(im, "alice", s.registry.Host+"/other:1")
	refused(t, err, "in trouble", true)
	// When the registry is back, it decides.
	s.down.Store(false)
	s.now.Add(5)
	s.push("tiny:1", "two")
	if moved, err := s.stage(im, "alice", image); err != nil || moved.PinnedReference == inputs.PinnedReference {
		t.Errorf("%+v, %v", moved, err)
	}
}

// If an image is kept, a hanging registry does not delay bundles.
func TestKeptImageIsUsedWhileItsRegistryHangs(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("tiny:1", "one")
	kept, err := s.images("").Keep(t.Context(), wantedImage(t, image), func(transfer.Progress) {})
	must(t, err)
	hangs := make(chan struct{})
	t.Cleanup(func() { close(hangs) })
	s.stuck.Store(&hangs)
	im := s.images("")
	im.keptTimeout = 20 * time.Millisecond
	inputs, err := s.stage(im, "alice", image)
	if err != nil || !strings.HasSuffix(inputs.PinnedReference, kept.Digest) {
		t.Errorf("%+v, %v", inputs, err)
	}
}

func TestOfflineSiteAsksNoRegistry(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	wanted := wantedImage(t, s.push("copy/default:7", "one"))
	var err error
	wanted.Reference, err = source.ParseReference("codalab/default-cpu")
	must(t, err)
	kept, err := s.images("").Keep(t.Context(), wanted, func(transfer.Progress) {})
	must(t, err)
	asked := s.manifests.Load()
	im := s.images("")
	im.Offline = true
	inputs, err := s.stage(im, "alice", "codalab/default-cpu:latest")
	if want := "codalab/default-cpu@" + kept.Digest; err != nil || inputs.PinnedReference != want {
		t.Errorf("%+v, %v; want %s", inputs, err, want)
	}
	_, err = s.stage(im, "alice", inputs.PinnedReference)
	must(t, err)
	_, err = s.stage(im, "alice", "python:3")
	refused(t, err, `image "python:3": it is not among the kept images for linux/`, false)
	if s.manifests.Load() != asked {
		t.Errorf("the registry was asked")
	}
	// After its release, nothing is downloaded.
	must(t, im.Release(t.Context(), kept.Reference, kept.Architecture))
	_, err = s.stage(im, "alice", "codalab/default-cpu")
	refused(t, err, "not among the kept images", false)
}

// A kept SIF is never trimmed; one that was replaced is; a Keep that fails leaves no pin.
func TestKeptImageStaysUntilItIsReplacedOrReleased(t *testing.T) {
	t.Parallel()
	s := startImages(t)
	image := s.push("tiny:1", "one")
	im := s.images("")
	keep := func() (KeptImage, error) {
		return im.Keep(t.Context(), wantedImage(t, image), func(transfer.Progress) {})
	}
	left := func(want int) {
		t.Helper()
		_, err := im.Cache.Trim(t.Context(), cache.TrimOptions{All: true})
		must(t, err)
		entries, err := im.Cache.Entries(t.Context())
		must(t, err)
		pins, err := im.Cache.Pins()
		if err != nil || len(entries) != want || len(pins) != want {
			t.Errorf("%d entries, %d pins, %v; want %d", len(entries), len(pins), err, want)
		}
	}
	first, err := keep()
	must(t, err)
	left(1)
	must(t, im.Cache.DropPin(t.Context(), first.Key, false, im.Kept.Holder(first.Reference, first.Architecture))) // as in a crash
	must(t, im.Repin(t.Context()))
	left(1)
	s.push("tiny:1", "two")
	s.now.Add(3600)
	second, err := keep()
	if err != nil || second.Digest == first.Digest {
		t.Errorf("%+v, %v", second, err)
	}
	left(1)
	s.push("tiny:1", "three")
	s.now.Add(3600)
	full := func(total int64) int64 { return total + 1 }
	im.LowWater = full
	_, err = keep()
	refused(t, err, "the cluster's shared disk has ", true)
	im.LowWater, im.Converter.Reserve = nil, full
	_, err = keep()
	refused(t, err, "no space left for converting it: it needs about ", true)
	left(1)
	if all, err := im.Kept.List(); err != nil || len(all) != 1 || all[0].Digest != second.Digest {
		t.Errorf("%+v, %v", all, err)
	}
	must(t, im.Release(t.Context(), second.Reference, second.Architecture))
	left(0)
}
