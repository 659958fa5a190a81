package testsite_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/cl-slurm/cl-slurm/internal/command"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/internal/testsite"
)

// The tests share one site and one cache. The first test that needs the site starts it.
var shared struct {
	once sync.Once
	site *testsite.Site
	err  error

	cacheOnce sync.Once
	cache     string
}

func TestMain(m *testing.M) {
	if addresses := os.Getenv(forwardVariable); addresses != "" {
		forwardInNode(addresses)
		return
	}
	testenv.Parallel(6) // the tests wait for Slurm
	code := m.Run()
	if shared.site != nil {
		log := shared.site.Log()
		if err := shared.site.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = max(code, 1)
		}
		if code != 0 {
			fmt.Fprintln(os.Stderr, log)
		}
	}
	if err := os.RemoveAll(shared.cache); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func need(t *testing.T) {
	t.Helper()
	testenv.Slurm(t)
	testenv.Containers(t)
	testenv.Researcher(t)
}

// cached returns the cache that sites share.
func cached(t *testing.T) string {
	t.Helper()
	need(t)
	shared.cacheOnce.Do(func() {
		u := testenv.Researcher(t)
		dir, err := os.MkdirTemp(testsite.Base, "site-cache-")
		if err := errors.Join(err, os.Chown(dir, u.UID, u.GID)); err != nil {
			t.Fatal(err)
		}
		shared.cache = dir
	})
	return shared.cache
}

// away is a registry that the shared site lists, and that refuses connections.
const away = "127.0.0.1:1"

// site returns the shared site. Its bridge gives up a registry that refuses connections
// after seconds.
func site(t *testing.T) *testsite.Site {
	t.Helper()
	need(t)
	shared.once.Do(func() {
		o := testsite.Options{Config: "stage_patience = \"2s\"\noutage_patience = \"2s\"\n[image.registry.\"" + away + "\"]\n", Cache: cached(t)}
		shared.site, shared.err = testsite.Start(context.Background(), o)
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.site
}

// own starts a site for one test.
func own(t *testing.T, o testsite.Options) *testsite.Site {
	t.Helper()
	o.Cache = cached(t)
	return cold(t, o)
}

// cold starts a site for one test, with an empty cache.
func cold(t *testing.T, o testsite.Options) *testsite.Site {
	t.Helper()
	need(t)
	s, err := testsite.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		log := s.Log()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log)
		}
	})
	return s
}

// cl runs cl as the researcher; it has to succeed.
func cl(t *testing.T, s *testsite.Site, args ...string) string {
	t.Helper()
	out, err := s.CL(t.Context(), args...)
	if err != nil {
		t.Fatalf("cl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// run starts a run in a queue and returns its bundle.
func run(t *testing.T, s *testsite.Site, queue, command string, args ...string) string {
	t.Helper()
	return cl(t, s, append(append([]string{"run", "--request-queue", queue}, args...), command)...)
}

// field returns one field of a bundle.
func field(t *testing.T, s *testsite.Site, bundle, name string) string {
	t.Helper()
	return cl(t, s, "info", "-f", name, bundle)
}

// until waits for a field of a bundle to match.
func until(t *testing.T, s *testsite.Site, bundle, name, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	last := ""
	testenv.Await(t, fmt.Sprintf("%s of %s is %s", name, bundle, pattern), func() bool {
		last = field(t, s, bundle, name)
		return re.MatchString(last)
	}, &last, func() string {
		return fmt.Sprintf("state %s, run_status %q", field(t, s, bundle, "state"), field(t, s, bundle, "run_status"))
	})
	return last
}

// untilPrinted waits for a running bundle to have printed exactly this. The state
// running is reported before the first output.
func untilPrinted(t *testing.T, s *testsite.Site, bundle, want string) {
	t.Helper()
	testenv.Await(t, bundle+" has printed "+want, func() bool {
		got, err := s.CL(t.Context(), "cat", bundle+"/stdout")
		return err == nil && got == want
	})
}

// ended waits for a bundle's final state.
func ended(t *testing.T, s *testsite.Site, bundle string) string {
	t.Helper()
	return until(t, s, bundle, "state", "^(ready|failed|killed)$")
}

// ready waits for a bundle that has to succeed.
func ready(t *testing.T, s *testsite.Site, bundle string) {
	t.Helper()
	if state := ended(t, s, bundle); state != "ready" {
		t.Fatalf("bundle %s is %s (%s), want ready", bundle, state, field(t, s, bundle, "failure_message"))
	}
}

// fails runs a program as root that has to fail, and returns its exit code and
// last words.
func fails(t *testing.T, args ...string) (code int, words string) {
	t.Helper()
	var out bytes.Buffer
	c := asRoot(args)
	c.Stdout = &out
	err := c.Run(t.Context())
	var e *command.Error
	if !errors.As(err, &e) {
		t.Fatalf("%s: %v, want a failure", strings.Join(args, " "), err)
	}
	return e.ExitCode, e.Stderr
}
