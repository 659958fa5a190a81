package server_test

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/server"
)

// untar unpacks a tar.gz archive into a new directory.
func untar(t *testing.T, archive string) string {
	t.Helper()
	dir := t.TempDir()
	zipped, err := gzip.NewReader(strings.NewReader(archive))
	must(t, err)
	files := tar.NewReader(zipped)
	for {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		must(t, err)
		data, err := io.ReadAll(files)
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, filepath.Base(h.Name)), data, os.FileMode(h.Mode)))
	}
}

func TestWorkerIsHandedOut(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	s := newSite(t, func(c *server.Config) { c.WorkerProgram = program })
	s.get("", "/workers/code.tar.gz").says(http.StatusNotFound, "no cl-worker to hand out")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho \"first $*\"\n"), 0o600))
	web := s.serveWeb()
	get := func(path, tag string) (status int, header http.Header, body string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+"/rest"+path, nil)
		must(t, err)
		r.Header.Set("If-None-Match", tag)
		a, err := web.Client().Do(r)
		must(t, err)
		data, err := io.ReadAll(a.Body)
		must(t, errors.Join(err, a.Body.Close()))
		return a.StatusCode, a.Header, string(data)
	}
	status, header, archive := get("/workers/code.tar.gz", "")
	if status != http.StatusOK || header.Get("Content-Type") != "application/gzip" || header.Get("Cache-Control") == "" || header.Get("ETag") == "" {
		t.Fatalf("%d %v", status, header)
	}
	dir := untar(t, archive)
	out, err := exec.CommandContext(t.Context(), filepath.Join(dir, "worker.sh"), "probe", "a b").Output()
	must(t, err)
	if string(out) != "first probe a b\n" {
		t.Errorf("worker.sh: %q", out)
	}
	if readme, err := os.ReadFile(filepath.Join(dir, "README")); err != nil || !strings.Contains(string(readme), "cl-worker --help") {
		t.Errorf("README: %q, %v", readme, err)
	}
	if status, _, _ := get("/worker/code.tar.gz", header.Get("ETag")); status != http.StatusNotModified {
		t.Errorf("the same again: %d", status)
	}
	other := newSite(t, func(c *server.Config) { c.WorkerProgram = program })
	if got := other.get("", "/workers/code.tar.gz").ok(); got.body != archive {
		t.Error("another server's archive of the same program differs")
	}
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho second, longer\n"), 0o600))
	if status, _, changed := get("/workers/code.tar.gz", header.Get("ETag")); status != http.StatusOK || changed == archive {
		t.Errorf("after the program changed: %d", status)
	}
	must(t, os.Remove(program))
	s.get("", "/workers/code.tar.gz").is(http.StatusNotFound)
}
