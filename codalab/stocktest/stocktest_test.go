package stocktest_test

import (
	"context"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cl-slurm/cl-slurm/codalab/stocktest"
	"github.com/cl-slurm/cl-slurm/codalab/stocktest/manners"
)

// The stand-in runs in a bubble, where its times cost nothing.
func TestStandInsManners(t *testing.T) {
	t.Parallel()
	manners.Try(t, func(t *testing.T, manner func(t *testing.T, on manners.Target)) {
		t.Helper()
		dir := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			owner := manners.Login{Name: "ann", Password: "a"}
			root := manners.Login{Name: stocktest.RootName, Password: "r"}
			s := start(t, stocktest.Options{Dir: dir, Users: users(owner, root)})
			manner(t, manners.Target{
				Address: stocktest.Address, HTTP: s.Client(), Owner: owner, Root: root, Long: true,
			})
		})
	})
}

func users(logins ...manners.Login) []stocktest.User {
	var list []stocktest.User
	for _, l := range logins {
		list = append(list, stocktest.User{Name: l.Name, Password: l.Password})
	}
	return list
}

// start starts a stand-in, which ends with the test.
func start(t *testing.T, o stocktest.Options) *stocktest.Server {
	t.Helper()
	s, err := stocktest.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		s.Run(ctx)
		close(done)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// CLTEST_STOCK=http://127.0.0.1:2900 tries CodaLab's own server as well, as
// the users CLTEST_STOCK_USER and CLTEST_STOCK_COLLEAGUE, which are
// NAME:PASSWORD, and its root user CLTEST_STOCK_ROOT where that is set.
// CLTEST_STOCK_LONG=1 tries what takes minutes, too.
func TestStockServersManners(t *testing.T) {
	t.Parallel()
	address := os.Getenv("CLTEST_STOCK")
	if address == "" {
		t.Skip("CLTEST_STOCK names no server of CodaLab's own")
	}
	on := manners.Target{
		Address: address, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}},
		Owner: login("CLTEST_STOCK_USER"), Colleague: login("CLTEST_STOCK_COLLEAGUE"), Root: login("CLTEST_STOCK_ROOT"),
		Long: os.Getenv("CLTEST_STOCK_LONG") != "", Groups: true,
	}
	manners.Try(t, func(t *testing.T, manner func(t *testing.T, on manners.Target)) {
		t.Helper()
		manner(t, on)
	})
}

// login reads NAME:PASSWORD from a variable.
func login(variable string) manners.Login {
	name, password, _ := strings.Cut(os.Getenv(variable), ":")
	return manners.Login{Name: name, Password: password}
}
