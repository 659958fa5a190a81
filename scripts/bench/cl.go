package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/store/storetest"
)

// benchCl compares cl with CodaLab's own cl on the same cl-server, with a process for each call as users run
// it. The clients and the server share the processors. All files are in memory.
func benchCl(ctx context.Context) {
	if len(stockCl()) == 0 {
		fmt.Println("bench: cl is not compared with CodaLab's own: CLTEST_STOCK_CL names none")
	}
	measureSections([]section{
		{"calls", inMemory, func(dir string) { benchCalls(ctx, dir) }},
		{"lists", inMemory, func(dir string) { benchLists(ctx, dir) }},
		{"sweep", inMemory, func(dir string) { benchSweep(ctx, dir) }},
		{"top", inMemory, func(dir string) { benchTop(ctx, dir) }},
		{"large", inMemory, func(dir string) { benchLargeTransfer(ctx, dir) }},
		{"small", inMemory, func(dir string) { benchSmallTransfer(ctx, dir) }},
	})
}

// stockCl is the command of CodaLab's own cl, to which an address, a user, a password and arguments are
// added; nil if there is none.
func stockCl() []string { return strings.Fields(os.Getenv("CLTEST_STOCK_CL")) }

// stockClient is the name of CodaLab's own cl in a figure.
const stockClient = "codalab_cl"

// ofSize scales a size of this area: n, or as much less as BUNDLES is less than 10,000.
func ofSize(n int) int { return n / 10_000 * inFlight() }

// researcher is a user of a server; its password is corePassword.
type researcher struct {
	address, name string
	// dir is for the home of our cl, and for temporary files.
	dir string
}

// clProgram makes the command of a call of cl, ours or CodaLab's own.
type clProgram func(ctx context.Context, args ...string) *exec.Cmd

// own calls the cl in this program's directory, where make installs both.
func (r researcher) own(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(filepath.Dir(must(os.Executable())), "cl"), args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+r.dir, "CODALAB_HOME="+filepath.Join(r.dir, "home"),
		"CL_SERVER="+r.address, "CODALAB_USERNAME="+r.name, "CODALAB_PASSWORD="+corePassword)
	return cmd
}

// stock calls CodaLab's own cl. There must be one.
func (r researcher) stock(ctx context.Context, args ...string) *exec.Cmd {
	command := append(stockCl(), r.address, r.name, corePassword)
	cmd := exec.CommandContext(ctx, command[0], append(command[1:], args...)...)
	cmd.Env = append(os.Environ(), "TMPDIR="+r.dir)
	return cmd
}

// alternately runs a function with our cl and with CodaLab's own by turns, and returns the results.
// CodaLab's own cl is slow: it gets no more runs after 12 seconds. stock is empty if there is no such cl.
func alternately[T any](r researcher, rounds int, run func(clProgram) T) (own, stock []T) {
	const enough = 12 // seconds
	spent := 0.0
	for range rounds {
		own = append(own, run(r.own))
		if len(stockCl()) > 0 && spent < enough {
			spent += seconds(func() { stock = append(stock, run(r.stock)) })
		}
	}
	return own, stock
}

// besideStock returns a figure of our cl, compared with the same one of CodaLab's own if there is one.
func besideStock[T any](name, unit string, own, stock []T, of func(T) float64) figure {
	f := figure{name: "cl/" + name, value: medianOf(own, of), unit: unit}
	if len(stock) > 0 {
		f.against, f.base = stockClient, medianOf(stock, of)
	}
	return f
}

// call measures a call in milliseconds. A first call is not measured: it may sign in, and it fills the page
// cache.
func (r researcher) call(ctx context.Context, name string, args ...string) figure {
	const rounds = 5
	r.repeat(ctx, 1, args...)
	own, stock := r.repeat(ctx, rounds, args...)
	return besideStock(name, "ms", own, stock, func(took float64) float64 { return took * 1000 })
}

// repeat repeats a call, and returns the duration of each in seconds.
func (r researcher) repeat(ctx context.Context, rounds int, args ...string) (own, stock []float64) {
	return alternately(r, rounds, func(cl clProgram) float64 {
		cmd := cl(ctx, args...)
		return seconds(func() { output(cmd) })
	})
}

// benchCalls measures two small calls: the start of the program with all its commands, and one request with
// a saved token.
func benchCalls(ctx context.Context, dir string) {
	const bar = 20
	data := filepath.Join(dir, "data")
	makeUsers(ctx, data)
	s := startServer(ctx, data)
	defer s.end()
	r := researcher{s.address, "ann", dir}
	for _, start := range []struct{ name, arg string }{{"version", "--version"}, {"help", "help"}} {
		f := r.call(ctx, start.name, start.arg)
		f.bar = bar
		f.print()
	}
	r.call(ctx, "work", "work", "-u").print()
}

// benchLists measures a worksheet of 10,000 bundles, and searches among 100,000.
func benchLists(ctx context.Context, dir string) {
	const sheet = "many"
	listed, all := ofSize(10_000), ofSize(100_000)
	data := filepath.Join(dir, "data")
	token := fillData(ctx, data, all)
	s := startServer(ctx, data)
	defer s.end()
	makeWorksheet(ctx, signedIn(s.address, token), sheet, listed)
	r := researcher{s.address, storetest.UserName(member), dir}
	ls := r.call(ctx, fmt.Sprint("ls_", listed), "ls", "-w", sheet)
	ls.bar = 500
	ls.print()
	cpu := measure(r.own(ctx, "ls", "-w", sheet), dir).cpu
	figure{name: fmt.Sprint("cl/ls_", listed, "_cpu"), value: cpu, unit: "s"}.print()
	r.call(ctx, fmt.Sprintf("search_%d_name", all), "search", "name=train-model-7").print()
	r.call(ctx, fmt.Sprintf("search_%d_newest_1000", all), "search", ".limit=1000").print()
}

// makeWorksheet makes a worksheet of the newest bundles that its owner may read.
func makeWorksheet(ctx context.Context, owner *client.Client, name string, bundles int) {
	w := must(owner.CreateWorksheet(ctx, name))
	found, _, err := owner.SearchBundles(ctx, w.UUID, []string{fmt.Sprint(".limit=", bundles)})
	check(err)
	if len(found) != bundles {
		check(fmt.Errorf("the server found %d of %d bundles", len(found), bundles))
	}
	var items []client.Item
	for _, b := range found {
		items = append(items, client.Item{WorksheetItem: codalab.WorksheetItem{Type: codalab.ItemBundle}, Bundle: &b})
	}
	check(owner.AddItems(ctx, w.UUID, items, false))
}
