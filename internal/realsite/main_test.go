package realsite_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// The machines of the site, by the user that works there.
const (
	login      = "researcher@login"
	loginRoot  = "root@login"
	fileServer = "root@fs"
)

// limit bounds a test's waits for Slurm, the guests and the bridge. It covers the slowest
// operation of such a site: giving up a node, and disk_settle twice.
const limit = 8 * time.Minute

// site is the site with the product installed.
type site struct {
	testenv.RealSite
}

// The tests share the site. The first one installs the product.
var installed struct {
	once sync.Once
	done bool
}

// realSite returns the site. Everything on it works when a test begins.
func realSite(t *testing.T) site {
	t.Helper()
	s := site{testenv.Site(t)}
	s.control(t, "up") // what the test before has stopped
	installed.once.Do(func() {
		s.install(t)
		installed.done = true
	})
	if !installed.done {
		t.Fatal("the product could not be installed; see the first test")
	}
	return s
}

// output runs a program of this machine.
func output(ctx context.Context, stdin []byte, args ...string) (string, error) {
	c := command.Command{Args: args, Env: []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}}
	if stdin != nil {
		c.Stdin = bytes.NewReader(stdin)
	}
	out, err := c.Output(ctx)
	return strings.TrimRight(string(out), "\n"), err
}

// control runs scripts/site.
func (s site) control(t *testing.T, args ...string) {
	t.Helper()
	out, err := output(t.Context(), nil, append([]string{s.Script}, args...)...)
	if err != nil {
		t.Fatalf("site %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// try runs a script on a machine.
func (s site) try(ctx context.Context, who, script string) (string, error) {
	return output(ctx, nil, append(append([]string{}, s.SSH...), who, script)...)
}

// on runs a script on a machine, which has to succeed.
func (s site) on(t *testing.T, who, script string) string {
	t.Helper()
	out, err := s.try(t.Context(), who, script)
	if err != nil {
		t.Fatalf("%s: %s: %v\n%s", who, script, err, out)
	}
	return out
}

// controller runs a script on the controller, as root.
func (s site) controller(t *testing.T, script string) string {
	t.Helper()
	out, err := output(t.Context(), nil, append(append([]string{}, s.Controller...), "sh", "-ec", script)...)
	if err != nil {
		t.Fatalf("controller: %s: %v\n%s", script, err, out)
	}
	return out
}

// copyTo writes a file on a machine.
func (s site) copyTo(t *testing.T, who, path string, content []byte) {
	t.Helper()
	if out, err := output(t.Context(), content, append(append([]string{}, s.SSH...), who, "cat >"+quote(path))...); err != nil {
		t.Fatalf("%s: write %s: %v\n%s", who, path, err, out)
	}
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// cl runs cl as the researcher on the login node.
func (s site) cl(t *testing.T, args ...string) string {
	t.Helper()
	return s.on(t, login, client+clLine(args...))
}

func clLine(args ...string) string {
	line := "cl"
	for _, arg := range args {
		line += " " + quote(arg)
	}
	return line
}

// run starts a run and returns its bundle.
func (s site) run(t *testing.T, command string, args ...string) string {
	t.Helper()
	return s.cl(t, append(append([]string{"run"}, args...), command)...)
}

// runs starts n runs of commands at once and returns their bundles.
func (s site) runs(t *testing.T, n int, command func(i int) string) []string {
	t.Helper()
	script := client
	for i := range n {
		script += clLine("run", "--request-memory", "100m", command(i)) + " &\n"
		if i%10 == 9 {
			script += "wait\n"
		}
	}
	bundles := strings.Fields(s.on(t, login, script+"wait\n"))
	if len(bundles) != n {
		t.Fatalf("%d runs were made, want %d: %q", len(bundles), n, bundles)
	}
	return bundles
}

// field returns one field of a bundle.
func (s site) field(t *testing.T, bundle, name string) string {
	t.Helper()
	return s.cl(t, "info", "-f", name, bundle)
}

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(limit); !holds(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

// until waits for a bundle's state to be one of these. The test ends at once when the bundle has
// ended otherwise.
func (s site) until(t *testing.T, bundle string, states ...string) string {
	t.Helper()
	last, final := "", []string{"ready", "failed", "killed"}
	await(t, fmt.Sprintf("%s is %v", bundle, states), func() bool {
		last = s.field(t, bundle, "state")
		return slices.Contains(states, last) || slices.Contains(final, last)
	})
	if !slices.Contains(states, last) {
		t.Fatalf("%s is %s (%s), want %v\n%s", bundle, last, s.field(t, bundle, "failure_message"), states, s.on(t, login, "cl-bridge explain "+bundle))
	}
	return last
}

// ended waits for a bundle's final state.
func (s site) ended(t *testing.T, bundle string) string {
	t.Helper()
	return s.until(t, bundle, "ready", "failed", "killed")
}

// ready waits for a bundle that has to succeed.
func (s site) ready(t *testing.T, bundle string) {
	t.Helper()
	if state := s.ended(t, bundle); state != "ready" {
		t.Errorf("bundle %s is %s (%s), want ready\n%s", bundle, state, s.field(t, bundle, "failure_message"),
			s.on(t, login, "cl-bridge explain "+bundle))
	}
}

// job is a job in Slurm's accounting.
type job struct{ id, state, node string }

// jobs are those of a bundle, in the order of their submission. Slurm's accounting may be late.
func (s site) jobs(t *testing.T, bundle string) []job {
	t.Helper()
	var found []job
	out := s.on(t, login, "sacct --allocations --noheader --parsable2 --format=JobName%200,JobID,State,NodeList --starttime=now-1day")
	for line := range strings.Lines(out) {
		fields := strings.Split(strings.TrimSpace(line), "|")
		if len(fields) == 4 && isOf(fields[0], bundle) {
			found = append(found, job{fields[1], strings.Fields(fields[2])[0], fields[3]})
		}
	}
	return found
}

// node waits until a bundle runs, and returns the node of its job as Slurm calls it.
func (s site) node(t *testing.T, bundle string) string {
	t.Helper()
	s.until(t, bundle, "running")
	out := s.on(t, login, "squeue --me --noheader --states=running --format='%j %N'")
	for line := range strings.Lines(out) {
		if name, node, _ := strings.Cut(strings.TrimSpace(line), " "); isOf(name, bundle) {
			return node
		}
	}
	t.Fatalf("no job of %s runs:\n%s", bundle, out)
	return ""
}

// isOf reports whether a job's name is that of one of a bundle's jobs. The names of the owner and of the bundle precede
// the bundle's digits.
func isOf(name, bundle string) bool {
	return strings.HasPrefix(name, "cl-researcher-") && strings.Contains(name, "-"+bundle[2:14]+".")
}
