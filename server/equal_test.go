package server_test

import (
	"archive/tar"
	"bytes"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// dataSet is an archive of a directory with files of a megabyte, and of a small one.
func dataSet(t *testing.T, megabytes int) string {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	add := func(name string, text []byte) {
		when := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC)
		must(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), ModTime: when}))
		_, err := w.Write(text)
		must(t, err)
	}
	add("README", []byte("a data set"))
	for i := range megabytes {
		add("images/"+strconv.Itoa(i), bytes.Repeat([]byte{byte(i), 1}, 1<<19))
	}
	must(t, w.Close())
	return b.String()
}

// megabytesOnDisk is the room of all contents, as du(1) counts it.
func (s *site) megabytesOnDisk() int {
	s.t.Helper()
	said, err := exec.CommandContext(s.t.Context(), "du", "-sm", filepath.Join(s.dir, "bundles")).Output()
	must(s.t, err)
	n, err := strconv.Atoi(strings.Fields(string(said))[0])
	must(s.t, err)
	return n
}

// takesOnDisk checks the room of the contents of so many bundles, which has directories in it, and blocks that are not full.
func (s *site) takesOnDisk(bundles, megabytes int) {
	s.t.Helper()
	s.awaitContents(bundles) // replaced contents are removed a little later
	if got := s.megabytesOnDisk(); got < megabytes || got > megabytes+1 {
		s.t.Errorf("the contents take %d MB on the disk, not %d", got, megabytes)
	}
}

func (s *site) removes(flags string, uuids ...string) {
	s.t.Helper()
	for _, uuid := range uuids {
		s.call("alice", "DELETE", "/bundles?"+flags, deletion("bundles", uuid)).ok()
	}
}

func (s *site) hasDataSet(user, uuid string) {
	s.t.Helper()
	if a := s.get(user, "/bundles/"+uuid+"/contents/blob/images/60").ok(); a.body != strings.Repeat("\x3c\x01", 1<<19) {
		s.t.Errorf("%s has %d bytes", uuid, len(a.body))
	}
}

func TestDirectoryThatIsUploadedTwiceTakesItsRoomOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.setQuota(1<<40, 1<<40)
	set, twins := dataSet(t, 61), []string{s.dataset("first"), s.dataset("second")}
	for i, uuid := range twins {
		s.put(uuid, "filename=set.tar.gz&unpack=1", set).ok()
		s.takesOnDisk(i+1, 61)
	}
	first, second := s.bundle("alice", twins[0]), s.bundle("alice", twins[1])
	if size := int64(61<<20 + 10 + 2*4096); first.Metadata.Int("data_size") != size || second.Metadata.Int("data_size") != size || s.diskUsed() < 2*size {
		t.Errorf("%d and %d bytes, and %d count", first.Metadata.Int("data_size"), second.Metadata.Int("data_size"), s.diskUsed())
	}
	s.removes("", twins[0])
	s.hasDataSet("alice", twins[1])
	s.takesOnDisk(1, 61)
	s.removes("data-only=1", twins[1])
	s.awaitContents(0)
	s.isSound()
}

// The results of a run are as good as an upload, and a bundle that another user takes over keeps its files.
func TestEqualResultsAndBundlesThatAreGivenAwayShareFiles(t *testing.T) {
	t.Parallel()
	s, w, run := claimedRun(t)
	s.setQuota(1<<40, 1<<40)
	_, err := s.store.ChangeUser(t.Context(), bobsID, func(u *store.User) error {
		u.DiskQuota = 1 << 40
		return nil
	})
	must(t, err)
	set, data := dataSet(t, 61), s.dataset("data")
	s.put(data, "filename=set.tar.gz&unpack=1", set).ok()
	s.put(run, "filename=bundle.tar.gz&finalize_on_success=0", set).ok()
	s.put(run, "filename=bundle.tar.gz&finalize_on_success=0", set).ok() // replaces equal ones
	w.told(codalab.MessageMarkFinalized, reportOf(run, codalab.StateFinalizing))
	s.takesOnDisk(2, 61)
	s.chown("alice", "bundles", bobsID, data).ok()
	s.chown("bob", "bundles", bobsID, data).ok()
	s.removes("", run)
	s.hasDataSet("bob", data)
	s.takesOnDisk(1, 61)
	// What bob has is no reason to keep alice's once.
	s.put(s.dataset("again"), "filename=set.tar.gz&unpack=1", set).ok()
	s.takesOnDisk(2, 122)
	s.isSound()
}

// A file has no time of its own in an upload.
func TestFileThatIsUploadedTwiceTakesItsRoomOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.setQuota(1<<40, 1<<40)
	text := strings.Repeat("a", 4<<20)
	first, second := s.upload("a", text), s.upload("b", text)
	s.takesOnDisk(2, 4)
	s.removes("", first)
	if a := s.get("alice", "/bundles/"+second+"/contents/blob/").ok(); a.body != text {
		t.Errorf("%d bytes", len(a.body))
	}
	s.upload("c", text[1:]+"b")
	s.takesOnDisk(2, 8)
	s.isSound()
}
