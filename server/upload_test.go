package server_test

import (
	"archive/zip"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// zipped is a zip archive of files of one byte.
func zipped(tb testing.TB, names ...string) string {
	tb.Helper()
	var b bytes.Buffer
	zw := zip.NewWriter(&b)
	for _, name := range names {
		w, err := zw.Create(name)
		must(tb, err)
		_, err = io.WriteString(w, "x")
		must(tb, err)
	}
	must(tb, zw.Close())
	return b.String()
}

// diskUsed is what the server says that alice has used.
func (s *site) diskUsed() int64 {
	s.t.Helper()
	used, _ := s.get("alice", "/user").ok().value("data", "attributes", "disk_used").(float64)
	return int64(used)
}

func TestZipLeavesNoSpoolAndCountsOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.dataset("data")
	s.put(uuid, "filename=d.zip", zipped(t, "a", "d/b")).ok()
	if got := s.get("alice", "/bundles/"+uuid+"/contents/blob/d/b").ok().body; got != "x" {
		t.Errorf("read %q", got)
	}
	if used := s.diskUsed(); used != 2*4096+2+4*codalab.BlockSize {
		t.Errorf("%d bytes used", used)
	}
	s.put(s.dataset("evil"), "filename=d.zip", zipped(t, "../evil")).says(http.StatusBadRequest, "a name that leads upwards")
}

// TestUploadsAtOnceStayWithinTheQuota sends eight uploads, each of which would fit alone, so that all
// have begun before any ends.
func TestUploadsAtOnceStayWithinTheQuota(t *testing.T) {
	t.Parallel()
	const each, quota = 400 << 10, 1 << 20
	s := newSite(t)
	begun, finish := sync.WaitGroup{}, make(chan struct{})
	var stored atomic.Int64
	var all sync.WaitGroup
	var uuids []string
	for i := range 8 { // before the uploads have used up the quota
		uuids = append(uuids, s.dataset(fmt.Sprintf("data%d", i)))
	}
	for _, uuid := range uuids {
		body, send := io.Pipe()
		begun.Add(1)
		go func() {
			_, _ = io.WriteString(send, strings.Repeat("x", each/2)) // fails if the upload has
			begun.Done()
			<-finish
			_, _ = io.WriteString(send, strings.Repeat("x", each/2))
			_ = send.Close()
		}()
		all.Go(func() {
			a := s.put(uuid, "filename=x&unpack=0&finalize_on_failure=1", body)
			_ = body.CloseWithError(io.ErrClosedPipe)
			switch a.status {
			case http.StatusOK:
				stored.Add(1)
			case http.StatusBadRequest:
				if !strings.Contains(a.body, "user disk quota exceeded") {
					t.Errorf("refused: %s", a.body)
				}
			default:
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	begun.Wait()
	if used := s.diskUsed(); used == 0 || used > quota {
		t.Errorf("%d bytes used meanwhile", used)
	}
	close(finish)
	all.Wait()
	if n := stored.Load(); n > quota/each || s.diskUsed() != n*(each+codalab.BlockSize) {
		t.Errorf("%d stored, %d bytes used", n, s.diskUsed())
	}
	uuid := s.dataset("rest")
	s.put(uuid, "filename=x&unpack=0", strings.Repeat("x", quota-codalab.BlockSize-int(s.diskUsed()))).ok() // the reservations have ended
}

func TestAnnouncedBytesCountOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	announce := func(uuid string, n int64) {
		s.call("alice", http.MethodPatch, "/user/increment_disk_used", object("x", map[string]any{"disk_used_increment": n, "bundle_uuid": uuid})).ok()
	}
	uuid := s.dataset("data")
	announce(uuid, 900<<10)
	body, send := io.Pipe()
	done := make(chan answer)
	go func() { done <- s.put(uuid, "filename=x&unpack=0", body) }()
	_, err := io.WriteString(send, strings.Repeat("x", 700<<10)) // beside what was announced it would not fit
	must(t, err)
	announce(uuid, 900<<10)
	if used := s.diskUsed(); used > 700<<10+codalab.BlockSize {
		t.Errorf("%d bytes used meanwhile", used)
	}
	must(t, send.Close())
	(<-done).ok()
	if used := s.diskUsed(); used != 700<<10+codalab.BlockSize {
		t.Errorf("%d bytes used", used)
	}
}

func TestUsedUpTimeStopsNewBundles(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.call("root", http.MethodPatch, "/users", map[string]any{"data": []any{map[string]any{
		"type": "users", "id": "0x" + strings.Repeat("a", 32), "attributes": map[string]any{"time_quota": 60, "time_used": 90},
	}}}).ok()
	s.create("run", "job", "x", nil).says(http.StatusBadRequest, "Out of time quota: 1m30s / 1m0s (150.0%)")
}

// setQuota sets alice's quotas of bytes and seconds.
func (s *site) setQuota(disk, seconds int64) {
	s.t.Helper()
	_, err := s.store.ChangeUser(s.t.Context(), "0x"+strings.Repeat("a", 32), func(u *store.User) error {
		u.DiskQuota, u.TimeQuota = disk, seconds
		return nil
	})
	must(s.t, err)
}

func TestTheDiskIsTheOnlyStore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.dataset("data")
	s.put(uuid, "filename=x&store=other", "x").says(http.StatusBadRequest, "Can not find the BundleStore with name other.")
	s.put(uuid, "filename=x&use_azure_blob_beta=1", "x").says(http.StatusBadRequest, "not in Azure Blob Storage")
	s.get("alice", "/bundle_stores").ok()
	s.get("alice", "/bundle_stores?name=other").says(http.StatusBadRequest, "Can not find the BundleStore with name other.")
	locate := func(query string, id any) answer {
		return s.call("alice", http.MethodPost, "/bundles/"+uuid+"/locations/"+query, object("bundle_locations", map[string]any{"bundle_uuid": uuid, "bundle_store_uuid": id}))
	}
	locate("?need_bypass=0&is_dir=1", nil).ok()
	locate("", "0x1").says(http.StatusBadRequest, "Can not find the BundleStore")
	s.put(uuid, "filename=x&unpack=0&store=&use_azure_blob_beta=0&exclude=y", "x").ok()
}

// A small archive may make much work. Nobody needs its files after its client has left.
func TestUploadEndsWithItsClient(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.setQuota(1<<30, 1<<40)
	var names []string
	files := map[string]string{}
	for i := range 5000 {
		names = append(names, fmt.Sprintf("d%d/f", i))
		files[names[i]] = ""
	}
	for filename, archive := range map[string]io.Reader{"d.zip": strings.NewReader(zipped(t, names...)), "d.tar.gz": tarGz(t, files)} {
		uuid := s.dataset("data")
		ctx, leave := context.WithCancel(t.Context())
		body := io.MultiReader(archive, atEnd(leave))
		r := s.request("alice", http.MethodPut, "/bundles/"+uuid+"/contents/blob/?filename="+filename, body)
		s.send(r.WithContext(ctx)).says(http.StatusInternalServerError, "the connection broke before the upload was complete")
		s.awaitContents(0)
	}
}
