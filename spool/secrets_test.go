package spool

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const secretBundle = "0x0123456789abcdef0123456789abcdef"

// secretDisk is a new shared disk.
func secretDisk(t *testing.T) Disk {
	t.Helper()
	d := Disk{Layout: Layout(t.TempDir()), Bridge: "b1"}
	for _, dir := range d.Layout.Directories() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

func TestSecretsAreTakenOnceFromAFileOfTheAccountAlone(t *testing.T) {
	t.Parallel()
	d := secretDisk(t)
	if files, err := d.GivenSecrets(); err != nil || len(files) > 0 {
		t.Errorf("before the first: %v, %v", files, err)
	}
	dir := filepath.Join(string(d.Layout), "spool", "secrets")
	if err := os.Mkdir(dir, 0o777); err != nil { // somebody was careless
		t.Fatal(err)
	}
	want := map[string]string{"A": "two\nlines", "B": "b"}
	for _, values := range []map[string]string{{"A": "old"}, want} {
		if err := d.GiveSecrets(secretBundle, "b1.7", values); err != nil {
			t.Fatal(err)
		}
	}
	for path, mode := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, secretBundle+".b1.7"): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", path, info, err)
		}
	}
	if _, err := d.Layout.TakeSecrets(secretBundle, "b1.8"); !errors.Is(err, ErrNone) {
		t.Errorf("of another submission: %v", err)
	}
	got, err := d.Layout.TakeSecrets(secretBundle, "b1.7")
	if err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := d.Layout.TakeSecrets(secretBundle, "b1.7"); !errors.Is(err, ErrNone) {
		t.Errorf("taken again: %v", err)
	}
}

func TestSecretsThatNoWorkerTakesAreListedAndWithdrawn(t *testing.T) {
	t.Parallel()
	d := secretDisk(t)
	if err := d.GiveSecrets(secretBundle, "b1.7", map[string]string{"A": "a"}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(string(d.Layout), "spool", "secrets")
	for _, name := range []string{"." + secretBundle + ".b1.8.tmp-123", "stray"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("a"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	files, err := d.GivenSecrets()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Bundle+" "+f.Submission)
		for range 2 { // a worker may be faster
			if err := d.WithdrawSecrets(f); err != nil {
				t.Error(err)
			}
		}
	}
	if want := []string{secretBundle + " b1.8", secretBundle + " b1.7", " "}; !cmp.Equal(names, want) {
		t.Errorf("listed: %q", names)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestSecretsOfAnUnmountedDiskAreNotWritten(t *testing.T) {
	t.Parallel()
	d := Disk{Layout: Layout(t.TempDir())}
	if err := d.GiveSecrets(secretBundle, "b1.7", map[string]string{"A": "a"}); err == nil {
		t.Error("written below a mount point without its disk")
	}
	for _, bad := range [][2]string{{"../x", "b1.7"}, {secretBundle, "../7"}, {secretBundle, ""}, {"", "b1.7"}} {
		if _, err := secretDisk(t).Layout.TakeSecrets(bad[0], bad[1]); err == nil || errors.Is(err, ErrNone) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestSweepLeavesTheDirectoryOfSecrets(t *testing.T) {
	t.Parallel()
	d := secretDisk(t)
	if err := d.GiveSecrets(secretBundle, "b1.7", map[string]string{"A": "a"}); err != nil {
		t.Fatal(err)
	}
	if found, err := d.Leftovers(func(string) bool { return false }); err != nil || len(found) > 0 {
		t.Errorf("%v, %v", found, err)
	}
}
