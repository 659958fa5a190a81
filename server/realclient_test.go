package server_test

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"flag"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// record makes TestRealClient only write what the scripts print on CodaLab's own server.
var record = flag.Bool("record", false, "record CodaLab's own server")

// client is CodaLab's own cl and cl-worker, and a server of CodaLab's own to compare with.
type client struct {
	// cl and worker are command lines. cl takes URL USER PASSWORD and cl's arguments, and keeps
	// a home for each URL and user; worker takes the same and cl-worker's arguments.
	cl, worker []string
	// stock is the address of a server of CodaLab's own; empty if there is none.
	stock string
	// passwords are those of the scripts' users ann, ben and root, by role; names are their
	// names.
	names, passwords map[string]string
	homes            *homes
}

// realClient reads the client from the environment, and skips the test where there is none:
//
//	CLTEST_STOCK_CL      a command that runs cl: CLTEST_STOCK_CL URL USER PASSWORD ARGS...
//	CLTEST_STOCK_WORKER  the same for cl-worker, with containers; without it, nothing is run
//	CLTEST_STOCK         the address of a server of CodaLab's own; without it, what such a server
//	                     printed is in testdata/realclient/recorded, which -record writes
//	CLTEST_STOCK_USER, CLTEST_STOCK_COLLEAGUE, CLTEST_STOCK_ROOT
//	                     its users, NAME:PASSWORD; by default ann, ben and codalab, whose
//	                     passwords are their names
func realClient(t *testing.T) client {
	t.Helper()
	c := client{
		cl: strings.Fields(os.Getenv("CLTEST_STOCK_CL")), worker: strings.Fields(os.Getenv("CLTEST_STOCK_WORKER")),
		stock: os.Getenv("CLTEST_STOCK"), names: map[string]string{}, passwords: map[string]string{}, homes: &homes{},
	}
	if len(c.cl) == 0 {
		t.Skip("needs CodaLab's own cl, at CLTEST_STOCK_CL")
	}
	for role, user := range map[string]string{
		"ann":  cmp.Or(os.Getenv("CLTEST_STOCK_USER"), "ann:ann"),
		"ben":  cmp.Or(os.Getenv("CLTEST_STOCK_COLLEAGUE"), "ben:ben"),
		"root": cmp.Or(os.Getenv("CLTEST_STOCK_ROOT"), "codalab:codalab"),
	} {
		c.names[role], c.passwords[role], _ = strings.Cut(user, ":")
	}
	return c
}

// TestRealClient plays each script of testdata/realclient with CodaLab's own cl on our server
// and on a server of CodaLab's own, and compares what cl prints and its exit codes. Only the
// differences of differences() may show.
//
// A script is a list of steps, one in a line:
//
//	USER ARGS...         runs cl as ann, ben or root
//	NAME = USER ARGS...  the same; $NAME is the first identifier that it prints from now on
//	hears TEXT USER ...  repeats cl until it prints TEXT
//	until STATE USER B   repeats cl until the bundle B is in the state
//	sh COMMAND           runs a shell's command in the script's directory; it is not compared
//	worker start W ARGS  starts cl-worker as ann, with the id W and these arguments
//	worker stop W        ends it by TERM; worker wait W waits until it ends by itself;
//	worker pause W       stops it, as a machine that hangs would; worker resume W lets it go on
//
// $R is a new word for names, $dir the script's directory, $url the server's address and $nl a
// line's end.
func TestRealClient(t *testing.T) {
	t.Parallel()
	c := realClient(t)
	ours := c.ourServer(t)
	scripts, err := filepath.Glob("testdata/realclient/*.txt")
	must(t, err)
	met := &metDifferences{}
	t.Run("scripts", func(t *testing.T) {
		for _, path := range scripts {
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
				t.Parallel()
				c.compare(t, path, ours, met)
			})
		}
	})
	if !*record && !t.Failed() && flagRun() == "" {
		met.complete(t)
	}
}

// compare plays a script on our server and on CodaLab's own at once, or reads what the latter
// printed when it was recorded.
func (c client) compare(t *testing.T, path, ours string, met *metDifferences) {
	t.Helper()
	steps := readScript(t, path)
	word := make([]byte, 3)
	_, _ = rand.Read(word) // never fails
	r := "r" + hex.EncodeToString(word)
	recording := filepath.Join("testdata/realclient/recorded", filepath.Base(path))
	var plays sync.WaitGroup
	var printed, expected []string
	if p := c.newPlay(t, ours, r); !*record {
		plays.Go(func() { printed = p.play(steps) })
	}
	if c.stock != "" {
		p := c.newPlay(t, c.stock, r)
		plays.Go(func() { expected = p.play(steps) })
	}
	plays.Wait()
	if c.stock == "" {
		expected = readRecording(t, recording, steps)
	}
	if *record {
		writeRecording(t, recording, steps, expected)
		return
	}
	for i, step := range steps[:min(len(printed), len(expected))] {
		met.check(t, step, expected[i], printed[i])
	}
}

// readRecording returns what CodaLab's server made each step of a script print.
func readRecording(t *testing.T, path string, steps []step) []string {
	t.Helper()
	data, err := os.ReadFile(path)
	must(t, err)
	var printed []string
	for line := range strings.Lines(string(data)) {
		text, isStep := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "> ")
		switch n := len(printed); {
		case isStep && (n == len(steps) || text != steps[n].text), !isStep && n == 0:
			t.Fatalf("%s is of another script: step %d is %q; record it again", path, n+1, text)
		case isStep:
			printed = append(printed, "")
		default:
			printed[n-1] += strings.TrimPrefix(line, "    ")
		}
	}
	if len(printed) < len(steps) {
		t.Errorf("%s ends at step %d; record it again", path, len(printed))
	}
	return printed
}

func writeRecording(t *testing.T, path string, steps []step, printed []string) {
	t.Helper()
	var file strings.Builder
	for i, output := range printed {
		file.WriteString("> " + steps[i].text + "\n")
		for line := range strings.Lines(output) {
			if line != "\n" {
				line = "    " + line
			}
			file.WriteString(line)
		}
	}
	must(t, os.WriteFile(path, []byte(file.String()), 0o644))
}

// ourServer starts a server of ours with the same users, who have the quotas that CodaLab's
// server gives.
func (c client) ourServer(t *testing.T) string {
	t.Helper()
	data, err := store.Open(context.Background(), t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, data.Close()) })
	s := &site{t: t, store: data}
	s.start()
	for i, role := range []string{"root", "ann", "ben"} {
		id := store.RootID
		if i > 0 {
			id = "0x" + strings.Repeat(string(rune('a'+i)), 32)
		}
		must(t, data.AddUser(context.Background(), store.User{
			ID: id, Name: c.names[role], Password: server.HashPassword(c.passwords[role], server.PasswordCost{Passes: 1, KiB: 8}),
			TimeQuota: int64(100 * 365 * 24 * time.Hour / time.Second), DiskQuota: 100 << 30, ParallelRunQuota: 100,
		}))
	}
	listener := httptest.NewServer(s.handler)
	t.Cleanup(listener.Close)
	return listener.URL
}
