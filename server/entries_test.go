package server_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// emptyFiles is an archive of empty files.
func emptyFiles(n int) map[string]string {
	files := map[string]string{}
	for i := range n {
		files[fmt.Sprintf("f%d", i)] = ""
	}
	return files
}

func (s *site) entriesUsed() int64 {
	s.t.Helper()
	used, _ := s.get("alice", "/user").ok().value("data", "attributes", "entries_used").(float64)
	return int64(used)
}

// Each empty file takes an inode and a block of the server's disk. 300,000 of them once counted 4,096 bytes.
func TestEmptyFilesAreNotFree(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	few, many := s.dataset("few"), s.dataset("many")
	s.put(few, "filename=x.tar.gz", tarGz(t, emptyFiles(100))).ok()
	if got, want := s.diskUsed(), int64(4096+101*codalab.BlockSize); got != want || s.entriesUsed() != 101+2 {
		t.Errorf("100 empty files count %d bytes and %d entries, want %d", got, s.entriesUsed(), want)
	}
	if size := s.bundle("alice", few).Metadata.Int("data_size"); size != 4096 { // CodaLab's own
		t.Errorf("data_size is %d", size)
	}
	s.put(many, "filename=x.tar.gz", tarGz(t, emptyFiles(1000))).says(http.StatusBadRequest, "user disk quota exceeded")
	s.awaitContents(1)
	s.call("alice", http.MethodDelete, "/bundles?force=1", map[string]any{"data": []any{map[string]string{"type": "bundles", "id": few}}}).ok()
	if s.diskUsed() != 0 || s.entriesUsed() != 1 {
		t.Errorf("%d bytes and %d entries are left", s.diskUsed(), s.entriesUsed())
	}
}

// A user who has used up the disk quota, or the quota of entries, gets nothing more stored on any way. What replaces
// contents may be as large as they are.
func TestUserAtTheQuotaStoresNothingMore(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]func(*store.User){
		"disk":    func(u *store.User) { u.DiskQuota = u.DiskUsed },
		"entries": func(u *store.User) { u.EntriesQuota = u.EntriesUsed },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, func(c *server.Config) { c.Hold = 20 * time.Millisecond })
			file, tree := s.upload("file", "text"), s.dataset("tree")
			s.put(tree, "filename=x.tar.gz&finalize_on_success=0", tarGz(t, map[string]string{"a": "1", "b/c": "2"})).ok()
			bodies := map[string]any{
				"filename=x&unpack=0":     "1",
				"filename=empty&unpack=0": "",
				"filename=x.gz":           gzipped(t, "1"),
				"filename=x.zip":          zipped(t, "a"),
				"filename=x.tar.gz":       tarGz(t, emptyFiles(1)),
			}
			empty := map[string]string{}
			for query := range bodies {
				empty[query] = s.dataset("empty")
			}
			w, run := s.worker("root", "w", "cpu"), s.run("x", cpuQueue)
			w.takes()
			w.checkIn(reportOf(run, codalab.StateRunning))
			_, err := s.store.ChangeUser(t.Context(), "0x"+strings.Repeat("a", 32), func(u *store.User) error { fill(u); return nil })
			must(t, err)
			disk, entries := s.diskUsed(), s.entriesUsed()

			for query, body := range bodies {
				s.put(empty[query], query, body).says(http.StatusBadRequest, "Can't save bundle, user disk quota exceeded.")
			}
			s.put(tree, "filename=x.tar.gz&finalize_on_success=0", tarGz(t, map[string]string{"a": "1", "b/c": "2", "d": ""})).
				says(http.StatusBadRequest, "Can't save bundle, user disk quota exceeded.")
			s.call("root", http.MethodPut, "/bundles/"+run+"/contents/blob/?filename=x.tar.gz&finalize_on_success=0", tarGz(t, emptyFiles(1))). // results
																				says(http.StatusBadRequest, "Can't save bundle, user disk quota exceeded.")
			for kind, made := range map[string]answer{
				"dataset": s.create("dataset", "x", "", nil),
				"link":    s.create("dataset", "x", "", map[string]any{"link_url": "/data/x"}),
				"run":     s.create("run", "x", "date", nil),
				"make":    s.create("make", "x", "", nil, codalab.Dependency{ParentUUID: file, ChildPath: "a"}),
			} {
				if made.status != http.StatusBadRequest || !strings.HasPrefix(made.body, "Out of ") {
					t.Errorf("%s: %d %s", kind, made.status, made.body)
				}
			}
			if s.diskUsed() != disk || s.entriesUsed() != entries {
				t.Errorf("%d bytes and %d entries are used, were %d and %d", s.diskUsed(), s.entriesUsed(), disk, entries)
			}
			s.awaitContents(2)
		})
	}
}

// gzipped is a compressed file.
func gzipped(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	zw := gzip.NewWriter(&b)
	_, err := zw.Write([]byte(text))
	must(t, errors.Join(err, zw.Close()))
	return b.String()
}

// What running runs have used belongs to the quotas, and the refusal of another run says so. What is left was
// -432,013,312 bytes once.
func TestQuotasIncludeRunningRunsAndSaySo(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = 20 * time.Millisecond })
	s.setQuota(1<<30, 3600)
	w, uuid := s.worker("root", "w", "cpu"), s.run("x", cpuQueue)
	w.takes()
	run := reportOf(uuid, codalab.StateRunning)
	run.DiskUtilization, run.ContainerTimeTotal = 600<<20, 3000
	w.checkIn(run)
	user := s.get("alice", "/user").ok()
	for field, want := range map[string]float64{"disk_used": 600 << 20, "disk_used_by_runs": 600 << 20, "time_used": 3000, "time_used_by_runs": 3000} {
		if got := user.value("data", "attributes", field); got != want {
			t.Errorf("%s is %v, want %v", field, got, want)
		}
	}
	for request, want := range map[[2]string]string{
		{"request_disk", "500m"}: "Requested more disk (500m) than user disk quota left (424m) by 76m: 600m / 1g (58.6%) is used, 600m of it by running runs",
		{"request_time", "20m"}:  "Requested more time (20m0s) than user time quota left (10m0s) by 10m0s: 50m0s / 1h0m (83.3%) is used, 50m0s of it by running runs",
	} {
		other := s.run("y", map[string]any{"request_queue": "cpu", request[0]: request[1]})
		if got := s.await(other, codalab.StateFailed).Metadata.String("failure_message"); got != want {
			t.Errorf("%v: %q, want %q", request, got, want)
		}
	}
	run.DiskUtilization = 2 << 30
	w.checkIn(run)
	s.create("run", "z", "date", nil).says(http.StatusBadRequest, "Out of disk quota: 2g / 1g (200.0%), 2g of it by running runs")
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the server reads the contents")
	return 0, io.ErrUnexpectedEOF
}

// A worker tells how large results are at least. The server refuses those that exceed the quota before they come,
// takes the output of the command in their place, and all of them once there is room. The owner's other runs go on.
func TestResultsThatExceedTheQuotaComeWhenThereIsRoom(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	s.setQuota(200<<10, 1<<40)
	put := func(query string, body any) answer {
		r := s.request("alice", http.MethodPut, "/bundles/"+uuid+"/contents/blob/?filename=x.tar.gz&finalize_on_success=0&"+query, body)
		r.Header.Set("Expect", "100-continue") // as the bridge does
		return s.send(r)
	}
	for _, announced := range []string{"size=300000&entries=3", "size=0&entries=100", "size=3000&entries=60"} {
		put(announced, unread{t}).says(http.StatusBadRequest, "Can't save bundle, user disk quota exceeded.")
	}
	put("size=-1", "").says(http.StatusBadRequest, "size must be a number of at least 0, not '-1'")
	put("size=5&entries=1", tarGz(t, map[string]string{"stdout": "text"})).ok()
	if b := s.bundle("alice", uuid); b.State != codalab.StatePreparing || s.diskUsed() != 4096+4+2*codalab.BlockSize {
		t.Errorf("%s, %d bytes used", b.State, s.diskUsed())
	}
	s.setQuota(1<<20, 1<<40)
	put("size=300000&entries=3", tarGz(t, map[string]string{"stdout": "text", "model": strings.Repeat("m", 300_000)})).ok()
	w.told(codalab.MessageMarkFinalized, reportOf(uuid, codalab.StateFinalizing))
	if b := s.bundle("alice", uuid); b.State != codalab.StateReady || b.Metadata.Int("data_size") != 4096+4+300_000 {
		t.Errorf("%s, %v", b.State, b.Metadata)
	}
}
