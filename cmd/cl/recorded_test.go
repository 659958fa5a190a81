package main

import (
	"context"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/cltest"
)

// TestRecordedScripts plays the scripts of package cltest with our cl on our server, and compares its
// output and exit codes with those of CodaLab's own cl on CodaLab's own server. With CLTEST_STOCK our cl
// plays them on a server of CodaLab's own, too. That server's users must be new: their earlier groups and
// bundles would be in the lists.
func TestRecordedScripts(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	scripts, err := cltest.Scripts()
	if err != nil {
		t.Fatal(err)
	}
	r := recorded{client: ourClient(t), table: cltest.NewTable(differences())}
	t.Run("scripts", func(t *testing.T) {
		for _, script := range scripts {
			t.Run(script.Name, func(t *testing.T) {
				t.Parallel()
				address := cltest.StartServer(t, r.client.Users, func(c *server.Config) {
					if script.Name == "offline" { // it waits until the server gives a worker up
						c.Hold, c.WorkerTimeout = time.Second/2, 5*time.Second
					}
				})
				r.compare(t, script, address, cltest.NewTable(cltest.ServerDifferences()))
			})
		}
	})
	if !t.Failed() && int(r.played.Load()) == len(scripts) {
		r.table.CheckAllMet(t)
	}
	t.Run("stock", func(t *testing.T) {
		stock := cltest.StockServer()
		if stock == "" {
			t.Skip("needs a server of CodaLab's own, at CLTEST_STOCK")
		}
		r.client.Patience = 3 * time.Minute // it gives a worker up after a minute
		for _, user := range r.client.Users {
			visit := r.client.Command(t.Context(), cltest.Call{Address: stock, User: user, Home: t.TempDir(), Args: []string{"work", "/"}})
			if out, err := visit.CombinedOutput(); err != nil { // it makes a new user's home worksheet
				t.Fatalf("%v: %s", err, out)
			}
		}
		for _, script := range scripts {
			t.Run(script.Name, func(t *testing.T) {
				if !script.ChangesUsers() { // else it ends before the others begin
					t.Parallel()
				}
				r.compare(t, script, stock, cltest.NewTable(stockDifferences()))
			})
		}
	})
}

// recorded compares our cl with the recordings.
type recorded struct {
	client cltest.Client
	// table has the differences of our cl.
	table  *cltest.Table
	played atomic.Int32
}

// compare plays a script on a server. The tables list the differences of that server.
func (r *recorded) compare(t *testing.T, script cltest.Script, address string, tables ...*cltest.Table) {
	t.Helper()
	if program := script.Lacks(); program != "" {
		t.Skipf("needs %s", program)
	}
	stock, err := script.Recorded()
	if err != nil {
		t.Fatal(err)
	}
	cltest.Compare(t, script, stock, r.client.Play(t, script, address), append(tables, r.table)...)
	r.played.Add(1)
}

// ourClient is this program, a process for each call, with a home for each user of a play.
func ourClient(t *testing.T) cltest.Client {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return cltest.Client{
		Users:       cltest.Users(),
		Patience:    testenv.WaitLimit,
		StartWorker: cltest.StartShellWorker,
		Command: func(ctx context.Context, c cltest.Call) *exec.Cmd {
			cmd := exec.CommandContext(ctx, program)
			cmd.Args = append([]string{"cl"}, c.Args...) // TestMain makes it cl
			cmd.Env = append(os.Environ(), "CODALAB_HOME="+c.Home, "CL_SERVER="+c.Address,
				"CODALAB_USERNAME="+c.User.Name, "CODALAB_PASSWORD="+c.User.Password, "GORACE=atexit_sleep_ms=0")
			return cmd
		},
	}
}
