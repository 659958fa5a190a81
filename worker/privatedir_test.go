package worker

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
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
