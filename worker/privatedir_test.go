package worker

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/diskuse"
)

func TestPrivateDirectoryOfAKilledWorkerIsSwept(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	killed, err := makePrivateDir(parent, "1")
	must(t, err)
	must(t, os.MkdirAll(filepath.Join(killed.dir, "work", "work"), 0o700))
	must(t, os.WriteFile(filepath.Join(killed.dir, "work", "work", "x"), nil, 0o600))
	must(t, os.Chmod(filepath.Join(killed.dir, "work", "work"), 0))
	must(t, killed.lock.Close()) // as the kernel does
	living, err := makePrivateDir(parent, "2")
	must(t, err)
	other := filepath.Join(parent, "another's")
	must(t, os.Mkdir(other, 0o700))

	now := time.Now()
	removeAbandoned(parent, now)
	if _, err := os.Stat(killed.dir); err != nil {
		t.Errorf("a fresh directory was swept: %v", err)
	}
	removeAbandoned(parent, now.Add(2*abandonedAge))
	if _, err := os.Stat(killed.dir); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	for _, dir := range []string{living.dir, other} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("swept: %v", err)
		}
	}
	must(t, living.remove())
	if _, err := os.Stat(living.dir); !os.IsNotExist(err) {
		t.Errorf("not removed: %v", err)
	}
}

// The command's files in the root file system are in the place's directory while the command runs (container.Container.KeptDir).
func TestPlacesDirectoryCountsForItsMember(t *testing.T) {
	t.Parallel()
	scratch := t.TempDir()
	own, err := makePrivateDir(scratch, "1")
	must(t, err)
	defer func() { must(t, own.remove()) }()
	at := &place{}
	at.private, err = makePrivateDir(scratch, "1")
	must(t, err)
	defer func() { must(t, at.private.remove()) }()
	own.commandBegan()
	own.began.Add(-int64(time.Hour))
	must(t, os.MkdirAll(filepath.Join(at.private.dir, "kept-1", "written"), 0o700))
	must(t, os.WriteFile(filepath.Join(at.private.dir, "kept-1", "written", "x"), make([]byte, 1<<20), 0o600))
	for after, want := range map[time.Duration]int64{0: 1 << 20, 2 * time.Hour: 0} { // older files are of an earlier member
		own.began.Add(int64(after))
		bytes, err := diskuse.Measure(t.Context(), at.trees(own)...)
		must(t, err)
		if bytes < want || bytes > want+64<<10 {
			t.Errorf("it takes %d bytes of the files since %v", bytes, after)
		}
		own.began.Add(-int64(after))
	}
	if bytes, err := diskuse.Measure(t.Context(), (*place)(nil).trees(own)...); err != nil || bytes > 0 {
		t.Errorf("without a place it takes %d bytes, %v", bytes, err)
	}
}

// A program of the site that removes old files does not know that a place waits for its next member.
func TestSpareDirectoryThatIsNotAsItWasIsReplaced(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(t *testing.T, spare *privateDir, scratch *string){
		"nothing has happened": nil,
		"TMPDIR was removed": func(t *testing.T, spare *privateDir, _ *string) {
			must(t, os.Remove(filepath.Join(spare.dir, tempName)))
		},
		"all of it was removed": func(t *testing.T, spare *privateDir, _ *string) { must(t, os.RemoveAll(spare.dir)) },
		"another scratch":       func(t *testing.T, _ *privateDir, scratch *string) { *scratch = t.TempDir() },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			at, scratch := &place{}, t.TempDir()
			first, err := at.takePrivateDir(scratch, "1")
			must(t, err)
			_, err = first.makeTemp(true)
			must(t, err)
			first.vacated = true
			must(t, at.leavePrivateDir(first))
			next := scratch
			if change != nil {
				change(t, first, &next)
			}
			second, err := at.takePrivateDir(next, "1")
			must(t, err)
			if same := first == second; same != (change == nil) || filepath.Dir(second.dir) != next {
				t.Errorf("the next member has %s after %s", second.dir, first.dir)
			}
			_, err = second.makeTemp(true)
			must(t, err)
			if info, err := os.Stat(filepath.Join(second.dir, tempName)); err != nil || info.Mode() != os.ModeDir|os.ModeSticky|0o777 {
				t.Errorf("its TMPDIR: %v, %v", info, err)
			}
			must(t, at.leavePrivateDir(second)) // its command may still run
			if left, err := os.ReadDir(scratch); err != nil || len(left) > 0 {
				t.Errorf("left: %v, %v", left, err)
			}
		})
	}
}

func TestScratchOfAGroupKeepsThePrivateDirectory(t *testing.T) {
	t.Parallel()
	at, scratch := &place{}, t.TempDir()
	must(t, os.Chmod(scratch, os.ModeSetgid|0o755))
	first, err := at.takePrivateDir(scratch, "1")
	must(t, err)
	defer func() { must(t, at.spare.remove()) }()
	_, err = first.makeTemp(true)
	must(t, err)
	first.commandBegan()
	first.vacated = true
	must(t, at.leavePrivateDir(first))
	if at.spare != first {
		t.Error("the next member has a new directory")
	}
}

func TestPrivateDirectoryOfUnknownStateServesOneMember(t *testing.T) {
	t.Parallel()
	s, err := makePrivateDir(t.TempDir(), "1")
	must(t, err)
	defer func() { must(t, s.remove()) }()
	lock := s.lock
	s.lock = nil // its state cannot be read
	_, err = s.makeTemp(true)
	s.lock = lock
	must(t, err)
	if s.made, err = s.state(); err == nil || s.empty() {
		t.Error("the next member gets it")
	}
}

func TestPipeInPlaceOfADirectoryIsNotOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, syscall.Mkfifo(filepath.Join(dir, "sub"), 0o600))
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer func() { must(t, root.Close()) }()
	if d, err := openDir(root, "sub"); err == nil {
		t.Errorf("%s was opened", d.Name())
	}
}
