package server_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// smallSite is a site on a disk of its own, with the file "filler" on it, and no other limit.
func smallSite(t *testing.T, size, database string) (s *site, dir string) {
	t.Helper()
	disk := t.TempDir()
	testenv.SmallDisk(t, disk, "mode=0700,size="+size)
	dir = filepath.Join(disk, "data")
	s = newSiteAt(t, dir, database)
	s.setQuota(1<<40, 1<<40)
	return s, dir
}

// fill uses up the disk of a site, but for some bytes, and returns what makes room again.
func fill(t *testing.T, dir string, but int64) (free func()) {
	t.Helper()
	name := filepath.Join(dir, "..", fmt.Sprint("filler", but))
	f, err := os.Create(name)
	must(t, err)
	for err == nil { // also what the database has given back
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	info, err := f.Stat()
	must(t, err)
	must(t, errors.Join(f.Truncate(info.Size()-but), f.Close()))
	return func() { must(t, os.Remove(name)) }
}

func (s *site) contentsOnDisk(dir string) int {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(dir, "bundles"))
	must(s.t, err)
	return len(entries)
}

func TestUploadThatDoesNotFitOnTheDiskLeavesNothing(t *testing.T) {
	t.Parallel()
	s, dir := smallSite(t, "24m", testenv.ServerDatabase(t))
	kept := s.upload("kept", "kept")
	for name, query := range map[string]string{"file": "filename=x&unpack=0", "archive": "filename=x.tar"} {
		uuid, body := s.dataset(name), strings.Repeat("x", 32<<20)
		if name == "archive" {
			body = tarOf(t, 32<<20)
		}
		s.put(uuid, query, body).says(http.StatusInternalServerError, "Upload failed: the server's disk is full")
		s.get("alice", "/bundles/"+uuid+"/contents/blob/").is(http.StatusNotFound)
		if b := s.bundle("alice", uuid); b.State != codalab.StateUploading || s.contentsOnDisk(dir) != 1 || s.diskUsed() != 4+codalab.BlockSize {
			t.Errorf("%s is %s, %d contents, %d bytes used", name, b.State, s.contentsOnDisk(dir), s.diskUsed())
		}
		s.put(uuid, query+"&finalize_on_failure=1", body).says(http.StatusInternalServerError, "the server's disk is full")
		if b := s.bundle("alice", uuid); b.State != codalab.StateFailed || b.Metadata.String("failure_message") != "Upload failed: the server's disk is full" {
			t.Errorf("%s is %s: %v", name, b.State, b.Metadata)
		}
	}
	s.upload("small", "fits")
	if a := s.get("alice", "/bundles/"+kept+"/contents/blob/").ok(); a.body != "kept" {
		t.Errorf("%q", a.body)
	}
	s.isSound()
}

// TestNothingAcknowledgedIsLostWhileTheDiskIsFull fills the disk that has contents and an SQLite
// database.
func TestNothingAcknowledgedIsLostWhileTheDiskIsFull(t *testing.T) {
	t.Parallel()
	s, dir := smallSite(t, "12m", "")
	kept, home := s.upload("kept", "kept"), s.home("alice")
	waiting := s.dataset("waiting")
	free := fill(t, dir, 256<<10)
	acknowledged, refused := map[string]string{}, 0
	for i := 0; refused < 20; i++ { // the database uses up what it has itself
		name := fmt.Sprint("data", i)
		a := s.call("alice", "POST", "/bundles?worksheet="+home, object("bundles", map[string]any{
			"bundle_type": "dataset", "metadata": metadata("dataset", name, map[string]any{"description": strings.Repeat("x", 5000)}),
		}))
		if a.status == http.StatusOK {
			acknowledged[a.text("data", 0, "id")] = name
			continue
		}
		a.says(http.StatusInternalServerError, "The server's disk is full.")
		refused++
	}
	for i := 0; refused < 40; i++ { // also for small changes
		a := s.patch("alice", "bundles", kept, map[string]any{"metadata": map[string]any{"description": fmt.Sprint(i)}})
		if a.status == http.StatusOK {
			continue
		}
		a.says(http.StatusInternalServerError, "The server's disk is full.")
		refused++
	}
	freeRest := fill(t, dir, 0)
	for i := 0; refused < 40; i++ { // smaller changes use up what those have left
		if a := s.patch("alice", "bundles", kept, map[string]any{"metadata": map[string]any{"description": fmt.Sprint(i)}}); a.status != http.StatusOK {
			a.says(http.StatusInternalServerError, "The server's disk is full.")
			refused++
		}
	}
	for _, text := range []string{"", "x"} {
		s.put(waiting, "filename=x&unpack=0&finalize_on_failure=1", text).says(http.StatusInternalServerError, "the server's disk is full")
	}
	s.get("alice", "/bundles/"+kept+"/contents/blob/").ok()
	s.get("alice", "/worksheets/"+home+"?include=items").ok()
	free()
	freeRest()
	for uuid, name := range acknowledged {
		if b := s.bundle("alice", uuid); b.Metadata.String("name") != name {
			t.Errorf("%s: %+v", name, b)
		}
	}
	s.put(waiting, "filename=x&unpack=0", "whole").ok()
	if a := s.get("alice", "/bundles/"+waiting+"/contents/blob/").ok(); a.body != "whole" || s.contentsOnDisk(dir) != 2 {
		t.Errorf("%q, %d contents", a.body, s.contentsOnDisk(dir))
	}
	s.isSound()
	if len(acknowledged) == 0 {
		t.Error("the test is vain: nothing was acknowledged")
	}
}

// tarOf is an archive of one file.
func tarOf(t *testing.T, size int) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	must(t, w.WriteHeader(&tar.Header{Name: "x", Mode: 0o644, Size: int64(size)}))
	_, err := w.Write(make([]byte, size))
	must(t, err)
	must(t, w.Close())
	return b.String()
}
