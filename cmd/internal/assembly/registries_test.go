package assembly_test

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/apptainer/source"
	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/cmd/internal/assembly"
)

// writeLogin writes a Docker configuration with a login.
func writeLogin(t *testing.T, path, host, user string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + user))
	if err := os.WriteFile(path, fmt.Appendf(nil, `{"auths": {%q: {"auth": %q}}}`, host, auth), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestRegistryIsAskedWithTheLoginThatCounts(t *testing.T) {
	t.Parallel()
	reg := imagetest.Start(t)
	layer := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("f", "x")))
	ref, err := source.ParseReference(reg.Push(t, "private", imagetest.Image(t, v1.Config{}, layer)))
	if err != nil {
		t.Fatal(err)
	}
	who := ""
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		user, _, ok := r.BasicAuth()
		if who = user; !ok {
			w.Header().Set("WWW-Authenticate", `Basic realm="x"`)
			w.WriteHeader(http.StatusUnauthorized)
		}
		return !ok
	}
	dir := t.TempDir()
	for path, user := range map[string]string{
		"home/.docker/config.json": "docker", "home/.config/containers/auth.json": "podman", "named/config.json": "named", "run/containers/auth.json": "session",
		"auth.json": "file", "set.json": "set", "logins/0xa.json": "alice", "logins/0xb/config.json": "bob", "other.json": "other",
	} {
		host := reg.Host
		if user == "other" {
			host = "other.site"
		}
		writeLogin(t, filepath.Join(dir, path), host, user)
	}
	for _, test := range []struct {
		env, config, owner, want string
	}{
		{"HOME=home", "", "", "docker"},
		{"HOME=home DOCKER_CONFIG=named", "", "", "named"},
		{"HOME=empty XDG_RUNTIME_DIR=run", "", "", "session"},
		{"HOME=home/.config/.. DOCKER_CONFIG=empty REGISTRY_AUTH_FILE=auth.json XDG_RUNTIME_DIR=run", "", "", "file"},
		{"HOME=home DOCKER_CONFIG=empty", "", "", "podman"},
		{"HOME=empty", "", "", ""},
		{"", "", "", ""},
		{"HOME=home", "set.json", "", "set"},
		{"HOME=home", "empty", "", ""},
		{"HOME=home", "other.json", "", ""},
		{"HOME=home", "", "0xa", "alice"},
		{"HOME=home", "", "0xb", "bob"},
		{"HOME=home", "", "0xc", "docker"},
		{"HOME=home", "", "../other", "docker"},
	} {
		env := map[string]string{}
		for _, pair := range strings.Fields(test.env) {
			name, value, _ := strings.Cut(pair, "=")
			env[name] = filepath.Join(dir, value)
		}
		var c config.Config
		c.Image.FetchPrivate = []string{"127.0.0.1"}
		c.Image.Logins = filepath.Join(dir, "logins")
		if test.config != "" {
			c.Image.DockerConfig = filepath.Join(dir, test.config)
		}
		site := assembly.NewSource(c, func(name string) string { return env[name] }, nil)
		owners, whose := assembly.OwnerLogins(c, site)(test.owner, ref)
		who = ""
		_, err := owners.Resolve(t.Context(), ref)
		if who != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%+v: asked as %q, %v", test, who, err)
		}
		wantWhose := ""
		if test.want == "alice" || test.want == "bob" {
			wantWhose = test.owner
		}
		if whose != wantWhose {
			t.Errorf("%+v: the login is said to be %q's", test, whose)
		}
	}
}

// doctor takes an image in a file for one that cannot be had otherwise.
func TestImageInAFileBelowTheRootsCanBeHad(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	layer := imagetest.GzipLayer(t, imagetest.TarStream(t, imagetest.Regular("f", "x")))
	archive := filepath.Join(dir, "image.tar")
	if err := tarball.WriteToFile(archive, name.MustParseReference("lab/image:1"), imagetest.Image(t, v1.Config{}, layer)); err != nil {
		t.Fatal(err)
	}
	ref, err := source.ParseReference("docker-archive:" + archive)
	if err != nil {
		t.Fatal(err)
	}
	for root, can := range map[string]bool{dir: true, t.TempDir(): false} {
		from := assembly.NewSource(config.Config{Image: config.Image{Roots: []string{root}}}, os.Getenv, nil)
		if _, err := from.Resolve(t.Context(), ref); (err == nil) != can {
			t.Errorf("with the root %s: %v", root, err)
		}
	}
}
