package smallfile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/smallfile"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

func TestWholeContentIsRead(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	path := filepath.Join(t.TempDir(), "file")
	for _, size := range []int{0, 1, 16 << 10, 100_000} {
		want := bytes.Repeat([]byte("x"), size)
		if err := os.WriteFile(path, want, 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := smallfile.Read(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes, %v; want %d", len(got), err, size)
		}
	}
	for _, path := range []string{"/proc/self/mountinfo", "/proc/sys/user/max_user_namespaces"} {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := smallfile.Read(path); err != nil || len(got) == 0 || path != "/proc/self/mountinfo" && !bytes.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
}

func TestMissingFileAndDirectoryAreErrors(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := smallfile.Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	var failed *fs.PathError
	if _, err := smallfile.Read(dir); !errors.As(err, &failed) {
		t.Errorf("a directory: %v", err)
	}
}

func TestTouchKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for range 2 {
		if err := smallfile.Touch(path, 0o600); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
			t.Fatalf("%v, %v", info, err)
		}
	}
	if err := os.WriteFile(path, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := smallfile.Touch(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := smallfile.Read(path); string(got) != "kept" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := smallfile.Touch(filepath.Join(path, "below"), 0o600); err == nil {
		t.Error("a file below a file")
	}
}

func TestOpenedFileIsThatOfPackageOS(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for range 2 {
		f, err := smallfile.Open(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o640)
		testenv.Must(t, err)
		_, err = f.WriteString("line\n")
		testenv.Must(t, errors.Join(err, f.Sync(), f.Close()))
	}
	got, err := os.ReadFile(path)
	if info, statErr := os.Stat(path); err != nil || string(got) != "line\nline\n" || statErr != nil || info.Mode() != 0o640 {
		t.Errorf("%q, %v, %v", got, info, errors.Join(err, statErr))
	}
	var failed *fs.PathError
	if f, err := smallfile.Open(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); f != nil || !errors.As(err, &failed) || !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second file of the name: %v, %v", f, err)
	}
}
