package fetch_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/codalab/contents"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/staging/fetch"
)

const parent = "0x00000000000000000000000000000001"

// request is a request to a site.
type request struct {
	path   string // relative to contents/
	ranged bool
}

// site is a real HTTP server that serves a directory as a CodaLab server does, and breaks
// connections.
type site struct {
	dir string
	// cut returns the number of bytes of the n-th answer with contents (0 is the first) after which
	// the connection breaks; negative means never. Nil never breaks.
	cut func(n int, r request) int64
	// hold returns the number of bytes of the n-th answer after which it waits, and the channel to
	// wait for. Then the connection breaks.
	hold func(n int) (after int64, wait func())
	// deaf ignores ranges, as some proxies do.
	deaf bool
	// noList refuses to list directories.
	noList bool

	mu       sync.Mutex
	requests []request // for contents
	sent     int64     // bytes of contents
	lists    int
}

func (s *site) start(t *testing.T) *client.Client {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /rest/bundles/{uuid}/contents/info/{path...}", s.info)
	mux.HandleFunc("GET /rest/bundles/{uuid}/contents/blob/{path...}", s.blob)
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return dial(t, server.URL)
}

func dial(t *testing.T, address string) *client.Client {
	t.Helper()
	c, err := client.New(address, client.Options{})
	must(t, err)
	return c
}

func (s *site) open() *os.Root {
	root, err := os.OpenRoot(s.dir)
	if err != nil {
		panic(err)
	}
	return root
}

func refuse(w http.ResponseWriter, r *http.Request, err error) {
	code, message := contents.Status(codalab.Target{BundleUUID: r.PathValue("uuid"), Subpath: r.PathValue("path")}, err)
	http.Error(w, message, code)
}

func (s *site) info(w http.ResponseWriter, r *http.Request) {
	root := s.open()
	defer func() { _ = root.Close() }()
	depth := 0
	if d := r.URL.Query().Get("depth"); d != "0" {
		depth = 64
		s.mu.Lock()
		s.lists++
		s.mu.Unlock()
		if s.noList {
			refuse(w, r, contents.ErrTooMany)
			return
		}
	}
	info, err := contents.Info(root, r.PathValue("path"), depth)
	if err != nil {
		refuse(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"data": info})
}

func (s *site) blob(w http.ResponseWriter, r *http.Request) {
	root := s.open()
	defer func() { _ = root.Close() }()
	p := r.PathValue("path")
	info, err := contents.Info(root, p, 0)
	if err != nil {
		refuse(w, r, err)
		return
	}
	in := request{path: p, ranged: r.Header.Get("Range") != ""}
	var body io.ReadCloser
	if info.Type == codalab.TargetDirectory {
		body, err = contents.Archive(r.Context(), root, p, nil)
	} else {
		first, last := int64(0), info.Size
		if in.ranged && !s.deaf {
			_, _ = fmt.Sscanf(r.Header.Get("Range"), "bytes=%d-%d", &first, &last)
			last++
		}
		body, err = contents.Section(root, p, first, last-first)
	}
	if err != nil {
		refuse(w, r, err)
		return
	}
	defer func() { _ = body.Close() }()
	w.Header().Set("Target-Type", string(info.Type))
	w.Header().Set("X-Codalab-Target-Size", fmt.Sprint(info.Size))
	w.WriteHeader(http.StatusOK)
	s.send(w, body, in)
}

func (s *site) send(w http.ResponseWriter, body io.Reader, in request) {
	s.mu.Lock()
	n := len(s.requests)
	s.requests = append(s.requests, in)
	s.mu.Unlock()
	cut, wait := int64(-1), func() {}
	switch {
	case s.cut != nil:
		cut = s.cut(n, in)
	case s.hold != nil:
		cut, wait = s.hold(n)
	}
	from := body
	if cut >= 0 {
		from = io.LimitReader(body, cut)
	}
	sent, err := io.Copy(w, from)
	s.mu.Lock()
	s.sent += sent
	s.mu.Unlock()
	if err == nil && cut >= 0 && sent == cut {
		_ = http.NewResponseController(w).Flush()
		wait()
		panic(http.ErrAbortHandler)
	}
}

// breaks cuts the first answers, each after so many bytes.
func breaks(after ...int64) func(int, request) int64 {
	return func(n int, _ request) int64 {
		if n < len(after) {
			return after[n]
		}
		return -1
	}
}

var must = testenv.Must

// noise is content that does not compress.
func noise(seed uint64, n int) []byte {
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)})
	b := make([]byte, n)
	_, _ = random.Read(b)
	return b
}

// tree describes the tree at path: types, permissions, contents.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must(t, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		switch {
		case d.Type() == fs.ModeSymlink:
			link, err := os.Readlink(p)
			text = "-> " + link
			out[strings.TrimPrefix(p, dir)] = text
			return err
		case info.Mode().IsRegular():
			data, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %d %s", len(data), hash(data))
		case p == dir: // the cache sets its mode
			text = "directory"
		}
		out[strings.TrimPrefix(p, dir)] = text
		return nil
	}))
	return out
}

func same(t *testing.T, want, got string) {
	t.Helper()
	if diff := cmp.Diff(tree(t, want), tree(t, got)); diff != "" {
		t.Fatalf("what came is not what the server has (-want +got):\n%s", diff)
	}
	entries, err := os.ReadDir(filepath.Dir(got))
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("beside what was fetched lie others: %v", entries)
	}
}

func get(ctx context.Context, from fetch.Source, tmp, subpath string) error {
	return fetch.Fetch{From: from, Target: codalab.Target{BundleUUID: parent, Subpath: subpath}}.To(ctx, tmp)
}

// fill makes a tree with an entry of each kind.
func fill(t *testing.T, files, size int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "contents")
	must(t, errors.Join(os.MkdirAll(filepath.Join(dir, "m/empty"), 0o755), os.MkdirAll(filepath.Join(dir, "z/deep/er"), 0o750)))
	for i := range files {
		where := []string{"", "m", "z", "z/deep/er"}[i%4]
		must(t, os.WriteFile(filepath.Join(dir, where, fmt.Sprintf("f%04d", i)), noise(uint64(i), size+i), 0o640))
	}
	must(t, errors.Join(
		os.WriteFile(filepath.Join(dir, "m/run.sh"), []byte("#!/bin/sh\n"), 0o644), os.Chmod(filepath.Join(dir, "m/run.sh"), 0o755),
		os.WriteFile(filepath.Join(dir, "z/nothing"), nil, 0o644),
		os.Symlink("m/run.sh", filepath.Join(dir, "run")), os.Symlink("/nowhere", filepath.Join(dir, "z/out")),
		os.Link(filepath.Join(dir, "m/run.sh"), filepath.Join(dir, "z/same.sh")),
	))
	return dir
}

func hash(b []byte) string { return fmt.Sprintf("%x", sha256.Sum256(b))[:16] }

// diskUsage returns the bytes of the files below dir.
func diskUsage(t *testing.T, dir string) (n int64) {
	t.Helper()
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, _ error) error { // the tree changes
		if d == nil {
			return nil
		}
		if info, err := d.Info(); err == nil && info.Mode().IsRegular() {
			n += info.Size()
		}
		return nil
	})
	return n
}

// holds waits until the files below dir have so many bytes.
func holds(t *testing.T, dir string, bytes int64) {
	t.Helper()
	var used int64
	testenv.Await(t, fmt.Sprintf("%d bytes have come", bytes), func() bool {
		used = diskUsage(t, dir)
		return used >= bytes
	}, &used)
}
