package server_test

import (
	"flag"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cl-slurm/cl-slurm/server/cltest"
)

// record makes TestRealClient only write what the scripts print on CodaLab's own server.
var record = flag.Bool("record", false, "record CodaLab's own server")

// TestRealClient plays each script of package cltest with CodaLab's own cl on our server, and
// compares what cl prints, and its exit codes, with what it prints on CodaLab's own server. It
// plays the scripts there too if CLTEST_STOCK has the address of such a server; else what that
// printed is recorded in package cltest.
func TestRealClient(t *testing.T) {
	t.Parallel()
	client := cltest.StockClient(t)
	scripts, err := cltest.Scripts()
	must(t, err)
	table := cltest.NewTable(cltest.ServerDifferences())
	var played atomic.Int32
	t.Run("scripts", func(t *testing.T) {
		for _, script := range scripts {
			t.Run(script.Name, func(t *testing.T) {
				if cltest.StockServer() == "" || !script.ChangesUsers() { // else it ends before the others begin there
					t.Parallel()
				}
				played.Add(1)
				if *record {
					must(t, script.Record("cltest", client.Play(t, script, cltest.StockServer())))
					return
				}
				ours := cltest.StartServer(t, client.Users)
				expected, err := script.Recorded()
				must(t, err)
				var printed []string
				var plays sync.WaitGroup
				plays.Go(func() { printed = client.Play(t, script, ours) })
				if stock := cltest.StockServer(); stock != "" {
					expected = client.Play(t, script, stock)
				}
				plays.Wait()
				cltest.Compare(t, script, expected, printed, table)
			})
		}
	})
	if !*record && !t.Failed() && int(played.Load()) == len(scripts) {
		table.CheckAllMet(t)
	}
}
