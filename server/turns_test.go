package server_test

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
)

// endless is the size of a file whose copy would take hours.
const endless = 1 << 40

// siteWithEndlessFile is a site on which alice has a bundle that links to an endless file, and room for
// copies of it.
func siteWithEndlessFile(t *testing.T) (s *site, link string) {
	t.Helper()
	dir := t.TempDir()
	file := filepath.Join(dir, "endless")
	must(t, os.WriteFile(file, nil, 0o644))
	must(t, os.Truncate(file, endless))
	s = newSite(t, func(c *server.Config) { c.LinkRoots = []string{dir} })
	s.setQuota(1<<50, 1<<40)
	return s, s.link(file)
}

func (s *site) makes(parent string) string {
	s.t.Helper()
	return s.create("make", "made", "", nil, codalab.Dependency{ChildPath: "copy", ParentUUID: parent}).ok().text("data", 0, "id")
}

func (s *site) kill(uuid string) {
	s.t.Helper()
	s.call("alice", http.MethodPost, "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": uuid})).ok()
}

// awaitDiskUsed waits until alice's disk use is as wanted.
func (s *site) awaitDiskUsed(want func(int64) bool) {
	s.t.Helper()
	var used int64
	testenv.Await(s.t, "alice's disk use is as wanted", func() bool {
		used = s.diskUsed()
		return want(used)
	}, &used)
}

func TestMakeBundlesOfOneOwnerDoNotHoldUpAnothers(t *testing.T) {
	t.Parallel()
	s, link := siteWithEndlessFile(t)
	before := s.diskUsed()
	var alices []string
	for range 3 {
		alices = append(alices, s.makes(link))
	}
	for _, uuid := range alices {
		s.await(uuid, codalab.StateMaking)
	}
	s.awaitDiskUsed(func(n int64) bool { return n >= endless })
	small := s.call("bob", http.MethodPost, "/bundles?worksheet="+s.home("bob"), object("bundles", map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", "small", nil)})).ok().text("data", 0, "id")
	s.call("bob", http.MethodPut, "/bundles/"+small+"/contents/blob/?filename=small", "text").ok()
	made := s.call("bob", http.MethodPost, "/bundles?worksheet="+s.home("bob"), object("bundles", map[string]any{
		"bundle_type": "make", "metadata": metadata("make", "made", nil), "dependencies": []codalab.Dependency{{ChildPath: "copy", ParentUUID: small}},
	})).ok().text("data", 0, "id")
	s.await(made, codalab.StateReady)
	for _, uuid := range alices {
		s.kill(uuid) // also those that wait
	}
	s.awaitDiskUsed(func(n int64) bool { return n == before })
}

func TestKilledMakeBundleStopsCopying(t *testing.T) {
	t.Parallel()
	s, link := siteWithEndlessFile(t)
	before, uuid := s.diskUsed(), s.makes(link)
	s.awaitDiskUsed(func(n int64) bool { return n >= endless })
	s.kill(uuid)
	s.awaitDiskUsed(func(n int64) bool { return n == before })
	if b := s.bundle("alice", uuid); b.State != codalab.StateKilled {
		t.Errorf("%s %v", b.State, b.Metadata)
	}
	if n, err := s.store.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("%d directories were left over, %v", n, err)
	}
	s.call("alice", http.MethodDelete, "/bundles", map[string]any{"data": []any{map[string]string{"type": "bundles", "id": uuid}}}).ok()
}

// zippedZeros is a zip archive of a file of so many MiB of zeros, each of which takes 1 KiB in it.
func zippedZeros(t *testing.T, mib int) string {
	t.Helper()
	var block, archive bytes.Buffer
	fw, err := flate.NewWriter(&block, flate.BestCompression)
	must(t, err)
	_, err = fw.Write(make([]byte, 1<<20))
	must(t, err)
	must(t, fw.Flush()) // the block ends with a whole byte
	zw := zip.NewWriter(&archive)
	packed := strings.Repeat(block.String(), mib)
	must(t, fw.Close())
	packed += block.String()[block.Len()-5:]
	w, err := zw.CreateRaw(&zip.FileHeader{Name: "zeros", Method: zip.Deflate, CompressedSize64: uint64(len(packed)), UncompressedSize64: uint64(mib) << 20})
	must(t, err)
	_, err = io.WriteString(w, packed)
	must(t, err)
	must(t, zw.Close())
	return archive.String()
}

func TestZipsOfOneOwnerDoNotHoldUpAnothers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.setQuota(1<<50, 1<<40)
	large, arrived, answered := zippedZeros(t, 16<<10), make(chan struct{}), make(chan answer)
	for range 3 {
		uuid := s.dataset("large")
		go func() {
			body := io.MultiReader(strings.NewReader(large), atEnd(func() { arrived <- struct{}{} }))
			answered <- s.put(uuid, "filename=d.zip", body)
		}()
	}
	for range 3 {
		<-arrived
	}
	s.awaitDiskUsed(func(n int64) bool { return n > 3*int64(len(large)) }) // it is being unpacked
	bobs := s.call("bob", http.MethodPost, "/bundles?worksheet="+s.home("bob"), object("bundles", map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", "small", nil)})).ok().text("data", 0, "id")
	r := s.request("bob", http.MethodPut, "/bundles/"+bobs+"/contents/blob/?filename=d.zip", zipped(t, "a"))
	stored := make(chan answer, 1)
	go func() { stored <- s.send(r) }()
	testenv.Receive(t, "bob's zip is stored before alice's", stored).ok()
	s.setQuota(0, 1<<40) // ends alice's
	for range 3 {
		(<-answered).says(http.StatusBadRequest, "user disk quota exceeded")
	}
}

// atEnd is an empty body that calls f at its end.
type atEnd func()

// Read calls f.
func (f atEnd) Read([]byte) (int, error) {
	f()
	return 0, io.EOF
}
