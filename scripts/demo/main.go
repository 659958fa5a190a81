// Command demo shows the main job to a person: it starts a site on this
// machine (registry, CodaLab server, bridge, Slurm cluster), does as a
// researcher what researchers do, and prints each command and what it
// answered. It ends in one line for machines.
//
// `make demo` runs it; IMAGE in the environment names another container image.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, os.Getenv("IMAGE"))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, image string) (err error) {
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) } //nolint:errcheck // a person's terminal
	say("# Starting an image registry, a CodaLab server and a bridge, as user %s.", testsite.User)
	lake, err := makeLake()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(lake)) }()
	site, err := testsite.Start(ctx, testsite.Options{Image: image, Config: fmt.Sprintf("[[link]]\nroot = %q\n", lake)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, site.Close()) }()
	d := &demo{site: site, lake: lake, out: out, say: say, began: time.Now()}
	say("# Server %s, default image %s.", site.Server, site.Image)
	for _, chapter := range []func(context.Context) error{
		d.dataset, d.chain, d.shared, d.linked, d.gpus, d.failure, d.live, d.kill, d.latency, d.accounts,
	} {
		if err := chapter(ctx); err != nil {
			return errors.Join(err, errors.New("the programs logged:\n"+tail(site.Log())))
		}
	}
	say("demo: ok bundle=%s job=%s first_instruction_s=%.2f ready_s=%.2f", d.bundle, d.job, d.first, d.ready)
	return nil
}

func tail(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// demo is one telling of the story.
type demo struct {
	site  *testsite.Site
	lake  string // data that is used in place
	out   io.Writer
	say   func(format string, args ...any)
	began time.Time

	bundle, job  string
	first, ready float64
}

// cl shows a command of the researcher's and its answer, and returns the
// answer. A failure is shown too.
func (d *demo) cl(ctx context.Context, args ...string) (string, error) {
	d.say("$ cl %s", quoted(args))
	answer, err := d.site.CL(ctx, args...)
	if answer != "" {
		d.say("%s", answer)
	}
	var failed *command.Error
	if errors.As(err, &failed) && failed.Stderr != "" {
		d.say("%s", failed.Stderr)
	}
	return answer, err
}

// does is cl for an answer that does not matter.
func (d *demo) does(ctx context.Context, args ...string) error {
	_, err := d.cl(ctx, args...)
	return err
}

// want is cl for an answer that is known beforehand, at least in part.
func (d *demo) want(ctx context.Context, want string, args ...string) error {
	got, err := d.cl(ctx, args...)
	if err == nil && !strings.Contains(got, want) {
		err = fmt.Errorf("cl %s printed %q, which lacks %q", quoted(args), got, want)
	}
	return err
}

func quoted(args []string) string {
	words := make([]string, len(args))
	for i, a := range args {
		words[i] = a
		if strings.ContainsAny(a, " ;|&<>$*'\"") {
			words[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// steps runs commands until one fails.
func steps(list ...func() error) error {
	for _, step := range list {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (d *demo) dataset(ctx context.Context) error {
	d.say("\n# A dataset, and a run on it.")
	dir := filepath.Join(d.site.Dir, "home", "words")
	if err := errors.Join(os.Mkdir(dir, 0o755), os.WriteFile(filepath.Join(dir, "fruit.txt"), []byte("pear\nfig\napple\n"), 0o644)); err != nil {
		return fmt.Errorf("write dataset: %w", err)
	}
	return steps(
		func() error { return d.does(ctx, "upload", "words") },
		func() error {
			return d.does(ctx, "run", "in:words", "sort in/fruit.txt > sorted; wc -l < sorted", "-n", "sorted", "--request-queue", "cpu")
		},
		func() error { return d.does(ctx, "wait", "sorted") },
		func() error { return d.want(ctx, "3", "cat", "sorted/stdout") },
		func() error { return d.want(ctx, "apple", "cat", "sorted/sorted") },
	)
}

func (d *demo) chain(ctx context.Context) error {
	d.say("\n# A chain of two runs: the second waits for the first, and sees one file of it.")
	return steps(
		func() error {
			return d.does(ctx, "run", "in:sorted/sorted", "head -n 1 in > first", "-n", "first", "--request-queue", "cpu")
		},
		func() error {
			return d.does(ctx, "run", "f:first/first", "tr a-z A-Z < f", "-n", "loud", "--request-queue", "short")
		},
		func() error { return d.does(ctx, "wait", "loud") },
		func() error { return d.want(ctx, "APPLE", "cat", "loud/stdout") },
	)
}

func (d *demo) gpus(ctx context.Context) error {
	d.say("\n# A run with two GPUs sees those two and no others.")
	var answer string
	return steps(
		func() error {
			return d.does(ctx, "run", "hostname; ls /dev/nvidia[0-9]*; echo CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES",
				"-n", "twogpus", "--request-queue", "gpu", "--request-gpus", "2")
		},
		func() error { return d.does(ctx, "wait", "twogpus") },
		func() (err error) { answer, err = d.cl(ctx, "cat", "twogpus/stdout"); return err },
		func() error {
			if n := strings.Count(answer, "/dev/nvidia"); n != 2 {
				return fmt.Errorf("the run sees %d GPUs, want 2", n)
			}
			return nil
		},
	)
}

// fails is cl for a command that must not succeed.
func (d *demo) fails(ctx context.Context, args ...string) error {
	if _, err := d.cl(ctx, args...); err == nil {
		return fmt.Errorf("cl %s succeeded", quoted(args))
	}
	return nil
}

func (d *demo) failure(ctx context.Context) error {
	d.say("\n# Runs that fail say why.")
	return steps(
		func() error {
			return d.does(ctx, "run", "cat missing.csv", "-n", "wrong", "--request-queue", "cpu")
		},
		func() error { return d.fails(ctx, "wait", "wrong") },
		func() error { return d.want(ctx, "failed", "info", "-f", "state,exitcode,failure_message", "wrong") },
		func() error { return d.want(ctx, "missing.csv", "cat", "wrong/stderr") },
		func() error {
			return d.does(ctx, "run", "sleep 60", "-n", "slow", "--request-queue", "short", "--request-time", "1s")
		},
		func() error { return d.fails(ctx, "wait", "slow") },
		func() error { return d.want(ctx, "Time limit", "info", "-f", "state,failure_message", "slow") },
	)
}

func (d *demo) live(ctx context.Context) error {
	d.say("\n# Output is seen while it is written: each line with the second in which it was seen.")
	if err := d.does(ctx, "run", "for i in 1 2 3; do echo line $i; sleep 1; done", "-n", "counter", "--request-queue", "cpu"); err != nil {
		return err
	}
	d.say("$ cl wait --tail counter")
	w := &stamped{out: d.out, began: time.Now()}
	err := d.site.Stream(ctx, w, filepath.Join(testsite.Base, "bin", "cl"), "wait", "--tail", "counter")
	if err == nil && w.lines < 3 {
		err = fmt.Errorf("%d lines were seen, want 3", w.lines)
	}
	return err
}

// stamped prefixes what is written with the time since it began.
type stamped struct {
	out   io.Writer
	began time.Time
	lines int
}

func (s *stamped) Write(p []byte) (int, error) {
	for line := range strings.Lines(string(p)) {
		s.lines++
		if _, err := fmt.Fprintf(s.out, "[%4.1f s] %s", time.Since(s.began).Seconds(), line); err != nil {
			return 0, fmt.Errorf("show output: %w", err)
		}
	}
	return len(p), nil
}

func (d *demo) kill(ctx context.Context) error {
	d.say("\n# A killed run keeps what it had written.")
	return steps(
		func() error {
			return d.does(ctx, "run", "echo so far > partial; sleep 600", "-n", "endless", "--request-queue", "cpu")
		},
		func() error { return d.until(ctx, "running", "endless") },
		func() error { return d.does(ctx, "kill", "endless") },
		func() error { return d.fails(ctx, "wait", "endless") },
		func() error { return d.want(ctx, "killed", "info", "-f", "state,failure_message", "endless") },
		func() error { return d.want(ctx, "so far", "cat", "endless/partial") },
	)
}

// until waits for a bundle to be in a state, and for its command to have had
// a moment.
func (d *demo) until(ctx context.Context, state, bundle string) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		got, err := d.site.CL(ctx, "info", "-f", "state", bundle)
		if err != nil || got == state {
			return errors.Join(err, pause(ctx, 500*time.Millisecond))
		}
		if got == "failed" || got == "ready" {
			return fmt.Errorf("bundle %s is %s, want %s", bundle, got, state)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func (d *demo) latency(ctx context.Context) error {
	d.say("\n# How long it takes, with the image there and the cluster idle. /proc/uptime is the same clock everywhere here.")
	start, err := uptime()
	if err != nil {
		return err
	}
	if d.bundle, err = d.cl(ctx, "run", "cat /proc/uptime", "-n", "quick", "--request-queue", "cpu"); err != nil {
		return err
	}
	if err := d.does(ctx, "wait", "quick"); err != nil {
		return err
	}
	end, err := uptime()
	if err != nil {
		return err
	}
	printed, err := d.cl(ctx, "cat", "quick/stdout")
	if err != nil {
		return err
	}
	first, err := parseUptime(printed)
	d.first, d.ready = first-start, end-start
	return err
}

func uptime() (float64, error) {
	data, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	return parseUptime(string(data))
}

func parseUptime(s string) (float64, error) {
	seconds, _, _ := strings.Cut(s, " ")
	f, err := strconv.ParseFloat(seconds, 64)
	if err != nil {
		return 0, fmt.Errorf("read clock: %w", err)
	}
	return f, nil
}

// accounts shows what the administrator sees. The accounting database shows a
// job's comment some seconds after its end.
func (d *demo) accounts(ctx context.Context) error {
	d.say("\n# What the administrator sees of it all.")
	args := []string{
		"sacct", "--allocations", "--starttime=" + d.began.Format("2006-01-02T15:04:05"),
		"--format=JobID,JobName%40,Partition,Account,State%12,ExitCode,AllocTRES%45,Comment%120",
	}
	d.say("$ %s", quoted(args))
	const jobs = 14
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		table, err := d.site.Run(ctx, args...)
		if err != nil {
			return err
		}
		if strings.Count(table, "codalab bundle=") >= jobs {
			d.say("%s", table)
			d.job = jobOf(table, d.bundle)
			return nil
		}
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return fmt.Errorf("the accounts lack jobs: %w:\n%s", err, table)
		}
	}
}

// jobOf is the id of the job whose comment names the bundle.
func jobOf(table, bundle string) string {
	for line := range strings.Lines(table) {
		if strings.Contains(line, "bundle="+bundle) {
			return strings.Fields(line)[0]
		}
	}
	return ""
}
