package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// clientRelease is a release of cl for this machine in a directory that a file server serves. Its cl is a script that prints
// its version.
type clientRelease struct {
	dir, address, archive string
}

func newClientRelease(t *testing.T, version string) clientRelease {
	t.Helper()
	r := &release{source: t.TempDir(), out: t.TempDir(), version: version, time: time.Unix(1764000000, 0), stage: t.TempDir()}
	p := platform{runtime.GOOS, runtime.GOARCH}
	name := r.archiveName(client, p)
	program := filepath.Join(r.stage, "cl")
	err := os.WriteFile(program, []byte("#!/bin/sh\necho "+version+"\n"), 0o755)
	var out bytes.Buffer
	err = errors.Join(err, r.writeTar(&out, name, []file{{"bin/cl", program}}), os.WriteFile(filepath.Join(r.out, name+".tar.gz"), out.Bytes(), 0o644),
		r.installers(), r.writeDigests())
	if err != nil {
		t.Fatal(err)
	}
	site := httptest.NewServer(http.FileServer(http.Dir(r.out)))
	t.Cleanup(site.Close)
	return clientRelease{r.out, site.URL, filepath.Join(r.out, name+".tar.gz")}
}

// home is a user's home, and the programs in PATH.
type home struct{ dir, path string }

// newHome makes a home, with only these programs in PATH beside those that a POSIX system has.
func newHome(t *testing.T, programs ...string) home {
	t.Helper()
	h := home{t.TempDir(), t.TempDir()}
	for _, name := range append(programs, "sh", "uname", "mktemp", "rm", "sed", "cut", "grep", "tar", "gzip", "mkdir", "cp", "mv") {
		at, err := exec.LookPath(name)
		if err != nil {
			t.Skipf("%s is not there", name)
		}
		if err := os.Symlink(at, filepath.Join(h.path, name)); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// run runs a script in the home with a shell's arguments.
func (h home) run(t *testing.T, script string, args ...string) (output string, err error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-s", "--"}, args...)...)
	cmd.Stdin = strings.NewReader(script)
	cmd.Env, cmd.Dir = []string{"HOME=" + h.dir, "PATH=" + h.path, "TMPDIR=" + t.TempDir()}, h.dir
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// files are the files in the home.
func (h home) files(t *testing.T) (names []string) {
	t.Helper()
	err := filepath.WalkDir(h.dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, strings.TrimPrefix(path, h.dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestInstallerInstallsAndUpgrades installs cl into a clean home, by curl and by wget, again, and another version.
func TestInstallerInstallsAndUpgrades(t *testing.T) {
	t.Parallel()
	first, second := newClientRelease(t, "v1.2.3"), newClientRelease(t, "v1.3.0")
	for _, tools := range [][]string{{"curl", "sha256sum"}, {"wget", "sha256sum"}} {
		h := newHome(t, tools...)
		for _, call := range []struct {
			from clientRelease
			args []string
			want []string
		}{
			{first, nil, []string{".local/bin/cl is now: v1.2.3", "is not in PATH: add this line", "cl doctor"}},
			{first, []string{"--version", "v1.2.3"}, []string{"is now: v1.2.3"}},
			{second, nil, []string{"is now: v1.3.0", "It was before: v1.2.3"}},
			{first, []string{"--version", "1.2.3"}, []string{"is now: v1.2.3"}},
		} {
			out, err := h.run(t, installer, append([]string{"--from", call.from.address + "/"}, call.args...)...)
			if err != nil {
				t.Fatalf("%v: %v: %s", tools, err, out)
			}
			for _, want := range call.want {
				if !strings.Contains(out, want) {
					t.Errorf("%v: %q is not in %s", tools, want, out)
				}
			}
		}
		if files := h.files(t); !slices.Equal(files, []string{".local/bin/cl"}) {
			t.Errorf("%v: the home has %q", tools, files)
		}
		other := filepath.Join(h.dir, "my bin")
		if out, err := h.run(t, installer, "--from", first.address, "--bin", other); err != nil || !strings.Contains(out, other+"/cl is now: v1.2.3") {
			t.Errorf("%v: %v: %s", tools, err, out)
		}
	}
}

// TestInstallerRefuses lists what must not be installed. Each refusal is one sentence, and leaves the home as it was.
func TestInstallerRefuses(t *testing.T) {
	t.Parallel()
	whole, err := os.ReadFile("install.sh")
	if err != nil {
		t.Fatal(err)
	}
	shorten := func(name string) error { return os.Truncate(name, 40) }
	for name, test := range map[string]struct {
		tools  []string
		script string
		spoil  func(clientRelease) error
		args   []string
		want   string
	}{
		"a cut download":  {spoil: func(r clientRelease) error { return shorten(r.archive) }, want: "has another digest than SHA256SUMS says"},
		"no archive":      {spoil: func(r clientRelease) error { return os.Remove(r.archive) }, want: "cannot be downloaded"},
		"no digests":      {spoil: func(r clientRelease) error { return os.Remove(filepath.Join(r.dir, digests)) }, want: "cannot be downloaded"},
		"cut digests":     {spoil: func(r clientRelease) error { return shorten(filepath.Join(r.dir, digests)) }, want: "has no cl for"},
		"another version": {args: []string{"--version", "v9.9.9"}, want: "has version v1.2.3, not v9.9.9: nothing is installed"},
		"no downloader":   {tools: []string{"sha256sum"}, want: "neither curl nor wget is there"},
		"no digest tool":  {tools: []string{"curl"}, want: "no program for SHA-256 is there"},
		"a bad option":    {args: []string{"--prefix", "x"}, want: "there is no option --prefix"},
		"a missing value": {args: []string{"--bin"}, want: "--bin needs a value"},
		"a changed archive": {spoil: func(r clientRelease) error {
			data, err := os.ReadFile(r.archive)
			return errors.Join(err, os.WriteFile(r.archive, append(data, 0), 0o644))
		}, want: "has another digest than SHA256SUMS says"},
		"no directory": {args: []string{"--bin", "/dev/null/bin"}, want: "/dev/null/bin cannot be made: --bin names another directory"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newClientRelease(t, "v1.2.3")
			if test.spoil != nil {
				if err := test.spoil(r); err != nil {
					t.Fatal(err)
				}
			}
			if test.tools == nil {
				test.tools = []string{"curl", "sha256sum"}
			}
			h := newHome(t, test.tools...)
			out, err := h.run(t, installer, append([]string{"--from", r.address}, test.args...)...)
			if err == nil || !strings.Contains(out, test.want) {
				t.Errorf("%v: %q is not in %s", err, test.want, out)
			}
			if files := h.files(t); len(files) > 0 {
				t.Errorf("the home has %q", files)
			}
		})
	}
	// A script that was cut off on its way does nothing, wherever it was cut.
	r, h := newClientRelease(t, "v1.2.3"), newHome(t, "curl", "sha256sum")
	for cut := 0; cut < len(whole)-len("main \"$@\"\n"); cut += 97 {
		if out, _ := h.run(t, string(whole[:cut]), "--from", r.address); strings.Contains(out, "is now") {
			t.Errorf("the first %d bytes install cl: %s", cut, out)
		}
	}
	if files := h.files(t); len(files) > 0 {
		t.Errorf("the home has %q", files)
	}
	if out, err := h.run(t, installer); err == nil || !strings.Contains(out, "--from names the address") {
		t.Errorf("without an address: %v: %s", err, out)
	}
}

// TestManifestsHaveTheDigestsOfTheArchives writes the formula of Homebrew and the manifest of Scoop.
func TestManifestsHaveTheDigestsOfTheArchives(t *testing.T) {
	t.Parallel()
	r := &release{out: t.TempDir(), version: "v1.2.3", url: "https://example.org/v1.2.3"}
	want := map[string]string{}
	for _, name := range allPlatforms() {
		p, err := parsePlatform(name)
		if err != nil {
			t.Fatal(err)
		}
		r.platforms = append(r.platforms, p)
		if err := os.WriteFile(filepath.Join(r.out, r.clientArchive(p)), []byte(name), 0o644); err != nil {
			t.Fatal(err)
		}
		if want[p.String()], err = digest(filepath.Join(r.out, r.clientArchive(p))); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.installers(); err != nil {
		t.Fatal(err)
	}
	formula := read(t, filepath.Join(r.out, "cl.rb"))
	for _, p := range r.platforms[:4] {
		pair := "url \"https://example.org/v1.2.3/" + r.clientArchive(p) + "\"\n      sha256 \"" + want[p.String()] + "\""
		if !strings.Contains(formula, pair) {
			t.Errorf("the formula has not %s:\n%s", pair, formula)
		}
	}
	if out, err := exec.CommandContext(t.Context(), "ruby", "-c", filepath.Join(r.out, "cl.rb")).CombinedOutput(); err != nil && !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("ruby -c: %s", out)
	}
	var manifest struct {
		Architecture map[string]struct {
			URL  string `json:"url"`
			Hash string `json:"hash"`
		} `json:"architecture"`
	}
	if err := json.Unmarshal([]byte(read(t, filepath.Join(r.out, "cl.json"))), &manifest); err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]platform{"64bit": {"windows", "amd64"}, "arm64": {"windows", "arm64"}} {
		if got := manifest.Architecture[name]; got.Hash != want[p.String()] || got.URL != r.url+"/"+r.clientArchive(p) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if script := read(t, filepath.Join(r.out, "install.sh")); !strings.Contains(script, "from='https://example.org/v1.2.3'") {
		t.Error("install.sh does not know the address")
	}
}
