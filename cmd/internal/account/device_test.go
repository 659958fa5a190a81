package account_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/cmd/internal/account"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

func TestOnlyTheDeviceTokenIsKeptInAFile(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "state")
	const server = "http://server"
	first := account.OpenDevice(dir, server)
	if got := first.Load(); got != (client.Token{}) {
		t.Errorf("has %+v at first", got)
	}
	all := client.Token{Access: "access-secret", Refresh: "refresh-secret", Device: "mine"}
	first.Save(all)
	if diff := cmp.Diff(all, first.Load()); diff != "" {
		t.Error(diff)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	text, err := os.ReadFile(files[0])
	info, statErr := os.Stat(files[0])
	if err != nil || statErr != nil || strings.Contains(string(text), "secret") || info.Mode().Perm() != 0o600 {
		t.Errorf("%q, %v, %v %v", text, info.Mode(), err, statErr)
	}
	if diff := cmp.Diff(client.Token{Device: "mine"}, account.OpenDevice(dir, server).Load()); diff != "" {
		t.Error(diff)
	}
	if got := account.OpenDevice(dir, "http://other").Load(); got.Device != "" {
		t.Errorf("another server gets %+v", got)
	}
	if err := os.Chmod(files[0], 0o644); err != nil {
		t.Fatal(err)
	}
	if got := account.OpenDevice(dir, server).Load(); got.Device != "" {
		t.Errorf("others could read %+v", got)
	}
}
