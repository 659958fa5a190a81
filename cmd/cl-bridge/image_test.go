package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/bridge/holders"
	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/staging/images"
	"github.com/cl-slurm/cl-slurm/staging/transfer"
)

// scriptRegistry is the registry of a script.
type scriptRegistry struct {
	*imagetest.Registry
	away, asked atomic.Int64
}

type registryKey struct{}

// startRegistry gives a script a registry at $REGISTRY, which has tiny:1 and
// tiny:2 for this machine, and both:1 for amd64 and arm64; and an archive of
// archived:1, as docker save makes them, at saved.tar.
func startRegistry(t *testing.T, env *testscript.Env) {
	t.Helper()
	r := &scriptRegistry{Registry: imagetest.Start(t)}
	r.Intercept = func(w http.ResponseWriter, req *http.Request) bool {
		if strings.Contains(req.URL.Path, "/manifests/") && req.Method == http.MethodGet {
			r.asked.Add(1)
		}
		if r.away.Load() > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return r.away.Load() > 0
	}
	image := func(content string) v1.Image {
		return imagetest.Image(t, v1.Config{}, imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("f", content))))
	}
	r.Push(t, "tiny:1", image("one"))
	r.Push(t, "tiny:2", image("two"))
	r.Push(t, "gpu:1", image("gpu"))
	tag, err := name.NewTag("archived:1")
	if err == nil {
		err = tarball.WriteToFile(filepath.Join(env.WorkDir, "saved.tar"), tag, image("saved"))
	}
	if err != nil {
		t.Fatal(err)
	}
	platforms := map[string]v1.Image{}
	for _, a := range []string{"amd64", "arm64"} {
		img := image("both")
		config, err := img.ConfigFile()
		if err == nil {
			config = config.DeepCopy()
			config.Architecture = a
			img, err = mutate.ConfigFile(img, config)
		}
		if err != nil {
			t.Fatal(err)
		}
		platforms["linux/"+a] = img
	}
	r.PushIndex(t, "both:1", platforms)
	env.Setenv("REGISTRY", r.Host)
	env.Values[registryKey{}] = r
}

// registryCommand is "registry away", after which it answers that it is in
// trouble, "registry back", and "registry asked N", which says how often it was
// asked for a manifest since it was last looked at.
func registryCommand(ts *testscript.TestScript, neg bool, args []string) {
	r, ok := ts.Value(registryKey{}).(*scriptRegistry)
	if !ok || neg || len(args) == 0 {
		ts.Fatalf("registry away | back | asked N")
	}
	switch args[0] {
	case "away":
		r.away.Store(1)
	case "back":
		r.away.Store(0)
	default:
		if n := r.asked.Swap(0); len(args) != 2 || args[1] != strings.Repeat("I", int(n)) && args[1] != "some" || args[1] == "some" && n == 0 {
			ts.Fatalf("the registry was asked %d times", n)
		}
	}
}

func TestBarFitsTheTerminalAndSaysWhatIsLeft(t *testing.T) {
	t.Parallel()
	const m = 1 << 20
	b := bar{what: "python:3 amd64"}
	half := transfer.Progress{Stage: transfer.Pulling, Done: 60 * m, Total: 120 * m, Rate: 12 * m}
	for width, want := range map[int]string{
		100: "python:3 amd64 [###############...............]  50% pulling 60m of 120m at 12m/s, 5.0s left",
		75:  "python:3 amd64 [#####.....]  50% pulling 60m of 120m at 12m/s, 5.0s left",
		60:  "python:3 amd64  50% pulling 60m of 120m at 12m/s, 5.0s left",
		20:  "python:3 amd64  50% ",
		0:   "",
	} {
		if got := b.drawing(half, width); got != want && width != 75 || len(got) > width {
			t.Errorf("%d columns: %q, want %q", width, got, want)
		}
	}
	for want, s := range map[string]transfer.Progress{
		"python:3 amd64 asking ghcr.io":                                         {Stage: transfer.Asking, By: "ghcr.io"},
		"python:3 amd64 waiting for host login2, process 7, which brings it in": {Stage: transfer.Elsewhere, By: "host login2, process 7"},
		"python:3 amd64 pulling 3m":                                             {Stage: transfer.Pulling, Done: 3 * m},
		"python:3 amd64 reading the SIF back and storing it":                    {Stage: transfer.Storing},
	} {
		if got := b.drawing(s, 80); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// Where there is no terminal, a stage has a line at its begin and another each
// ten seconds.
func TestLogsGetALineForEachStage(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	now := time.Unix(1_800_000_000, 0)
	b := bar{w: &out, what: "x amd64", now: func() time.Time { return now }}
	for i := range 30 {
		stage := transfer.Pulling
		if i >= 25 {
			stage = transfer.Converting
		}
		b.show(transfer.Progress{Stage: stage, Done: int64(i), Total: 30})
		now = now.Add(time.Second)
	}
	b.clear()
	want := "x amd64: pulling 0 of 30\nx amd64: pulling 10 of 30\nx amd64: pulling 20 of 30\nx amd64: converting 25 of 30\n"
	if out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// What is kept names its SIF, whoever else has it pinned.
func TestListTellsWhoNeedsAnImage(t *testing.T) {
	t.Parallel()
	sif := cache.Key{Kind: "sif", ID: "sha256:" + strings.Repeat("ab", 32) + " amd64 squashfs zstd-1"}
	entries := []cache.Entry{
		{Key: cache.Key{Kind: "bundle", ID: "0x1/"}},
		{Key: sif, Path: "/c/x", Size: 7, Pins: []cache.Holder{"image-00", holders.Row("b1b2b3", bundleNo(1)), holders.Row("c1c2c3", bundleNo(2)), holders.Person("ann")}},
	}
	kept := []images.Kept{
		{Name: "docker.io/library/python:3", Key: sif, Architecture: "amd64", Digest: "sha256:" + strings.Repeat("ab", 32)},
		{Name: "docker.io/gone/x:1", Key: cache.Key{Kind: "sif", ID: "other"}, Architecture: "amd64", Digest: "sha256:cd"},
	}
	names := func(string, string) []string { return []string{"docker.io/library/python:3", "python:3.12"} }
	list := listImages(entries, kept, false, names)
	if len(list) != 2 || len(list[0].Bundles) != 2 || len(list[0].Holders) != 1 || !list[1].Missing {
		t.Fatalf("%+v", list)
	}
	want := "" +
		"IMAGE                  DIGEST               ARCH   SIZE     USED  KEPT  BUNDLES\n" +
		"python:3, python:3.12  sha256:abababababab  amd64  7        now   now   2\n" +
		"gone/x:1               sha256:cd            amd64  missing  -     now   0\n"
	if got := imagesText(time.Time{}, list); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// What took a login is this user's alone where a group shares the cache, and there
	// somebody else may have a SIF of the same.
	for _, grouped := range []bool{false, true} {
		kept[0].Private, entries[1].Private = true, grouped
		if list := listImages(entries, kept, grouped, names); len(list) != 2 || len(list[0].Kept) != 1 {
			t.Errorf("shared by a group: %v: %+v", grouped, list)
		}
	}
	entries[1].Private = false
	if list := listImages(entries, kept, true, names); len(list) != 3 || len(list[0].Kept) != 0 || !list[1].Missing {
		t.Errorf("%+v", list)
	}
}
