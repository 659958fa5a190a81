package main

import (
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
)

// scriptRegistry is the registry of a script.
type scriptRegistry struct {
	*imagetest.Registry
	away atomic.Bool
}

type registryKey struct{}

// startRegistry gives a script a registry at $REGISTRY, which has tiny:1 and
// tiny:2 for this machine, and both:1 for amd64 and arm64; and an archive of
// archived:1, as docker save makes them, at saved.tar.
func startRegistry(t *testing.T, env *testscript.Env) {
	t.Helper()
	r := &scriptRegistry{Registry: imagetest.Start(t)}
	r.Intercept = func(w http.ResponseWriter, _ *http.Request) bool {
		away := r.away.Load()
		if away {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return away
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
// trouble, and "registry back".
func registryCommand(ts *testscript.TestScript, neg bool, args []string) {
	r, ok := ts.Value(registryKey{}).(*scriptRegistry)
	if !ok || neg || len(args) != 1 || args[0] != "away" && args[0] != "back" {
		ts.Fatalf("registry away | back")
	}
	r.away.Store(args[0] == "away")
}
