package cltest

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/background"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// StartServer starts a server of ours with the users of the scripts and the quotas of
// CodaLab's own server, and returns its address. It ends with the test.
func StartServer(t *testing.T, users map[string]User, change ...func(*server.Config)) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	data, err := store.Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cost := server.PasswordCost{Passes: 1, KiB: 8}
	for i, role := range []string{"root", "ann", "ben"} {
		id := store.RootID
		if i > 0 {
			id = "0x" + strings.Repeat(string(rune('a'+i)), 32)
		}
		err := data.AddUser(ctx, store.User{
			ID: id, Name: users[role].Name, Password: server.HashPassword(users[role].Password, cost),
			TimeQuota: int64(100 * 365 * 24 * time.Hour / time.Second), DiskQuota: 100 << 30, ParallelRunQuota: 100,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	// Everybody may read new worksheets, as with CodaLab's own server.
	config := server.Config{Store: data, Now: time.Now, PasswordCost: cost, DefaultPermission: store.DefaultPublic}
	for _, c := range change {
		c(&config)
	}
	s := server.New(config)
	done := background.Go(func() {
		if err := s.Run(ctx); ctx.Err() == nil {
			t.Error(err)
		}
	})
	listener := httptest.NewServer(s.Handler())
	t.Cleanup(func() {
		stop()
		listener.CloseClientConnections()
		listener.Close()
		<-done
		if err := data.Close(); err != nil {
			t.Error(err)
		}
	})
	return listener.URL
}
