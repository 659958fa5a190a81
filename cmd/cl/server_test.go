package main

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/sso"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// askedKey is that of a sync.Map with the paths of all GET requests to a script's last server.
type askedKey struct{}

// startServer serves a script until it ends, and returns the address.
func startServer(t *testing.T, env *testscript.Env) string {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	data, err := store.Open(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	hashed := server.HashPassword(password, server.PasswordCost{Passes: 1, KiB: 8})
	for id, name := range map[string]string{codalab.NewUUID(): userName, codalab.NewUUID(): colleague, store.RootID: "root"} {
		err = data.AddUser(ctx, store.User{
			ID: id, Name: name, Password: hashed, Joined: store.Time{Time: time.Now()},
			TimeQuota: 1 << 40, DiskQuota: 1 << 40, ParallelRunQuota: 100,
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	config := server.Config{Store: data, Now: time.Now, PasswordCost: server.PasswordCost{Passes: 1, KiB: 8}}
	if issuer, err := os.ReadFile(filepath.Join(env.WorkDir, "provider")); err == nil { // the script wants one, and does not use it
		config.SSO = sso.Options{Issuer: strings.TrimSpace(string(issuer)), ClientID: "codalab", URL: "http://127.0.0.1"}
	}
	s := server.New(config)
	done := make(chan struct{})
	go func() { defer close(done); _ = s.Run(ctx) }()
	handler, asked := s.Handler(), &sync.Map{}
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			asked.Store(r.URL.Path, true)
		}
		handler.ServeHTTP(w, r)
	}))
	env.Values[workerKey{}] = &scriptWorker{ctx: ctx}
	env.Values[askedKey{}] = asked
	env.Defer(func() {
		stop()
		site.CloseClientConnections()
		site.Close()
		<-done
		if err := data.Close(); err != nil {
			t.Error(err)
		}
	})
	return site.URL
}
