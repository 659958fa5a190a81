package cache_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
)

// other is the argument by which the test binary becomes another process that
// uses a cache: it begins to fill, says "filling", waits for a line, and then
// finishes, printing the path that it got.
const other = "cache-other-process"

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == other {
		if err := otherProcess(os.Args[2], os.Args[3]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func otherProcess(dir, text string) error {
	c, err := cache.Open(dir)
	if err != nil {
		return err
	}
	path, err := c.Get(context.Background(), key, func(_ context.Context, tmp string) error {
		if err := writeFile(tmp, text[:len(text)/2]); err != nil {
			return err
		}
		fmt.Println("filling")
		if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
			return err
		}
		return writeFile(tmp, text)
	})
	fmt.Println(path)
	return err
}

var key = cache.Key{Kind: "sif", ID: "sha256:0a amd64 squashfs"}

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

func open(t *testing.T, dir string) *cache.Cache {
	t.Helper()
	c, err := cache.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fillWith makes the content text, and counts how often.
func fillWith(text string, count *atomic.Int32) func(context.Context, string) error {
	return func(_ context.Context, tmp string) error {
		count.Add(1)
		return writeFile(tmp, text)
	}
}

// files lists what is in a cache, below the entries too.
func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, strings.TrimPrefix(name, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func wantFiles(t *testing.T, dir string, count int) {
	t.Helper()
	if got := files(t, dir); len(got) != count {
		t.Errorf("the cache holds %v, want %d files", got, count)
	}
}

func TestSecondRequestFindsWhatTheFirstMade(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "deep", "cache")
	var fills atomic.Int32
	var paths [3]string
	for i := range paths {
		c := open(t, dir) // as another process, later
		var err error
		if paths[i], err = c.Get(t.Context(), key, fillWith("content", &fills)); err != nil {
			t.Fatal(err)
		}
	}
	if fills.Load() != 1 || paths[1] != paths[0] || paths[2] != paths[0] {
		t.Errorf("%d fills, paths %q", fills.Load(), paths)
	}
	if got, err := os.ReadFile(paths[0]); err != nil || string(got) != "content" {
		t.Errorf("content %q, %v", got, err)
	}
	var said cache.Key
	text, err := os.ReadFile(filepath.Join(filepath.Dir(paths[0]), "key.json"))
	if err != nil || json.Unmarshal(text, &said) != nil || said != key {
		t.Errorf("key.json says %s, %v", text, err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("mode %v, %v; want 0700", info.Mode(), err)
	}
}

func TestKeysThatDifferHaveContentOfTheirOwn(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	var fills atomic.Int32
	seen := map[string]bool{}
	for _, k := range []cache.Key{{"sif", "a"}, {"sif", "b"}, {"bundle", "a"}, {"a", ""}, {"s", "if\x00a"}, {"sif", "../../x"}} {
		path, err := c.Get(t.Context(), k, fillWith(k.String(), &fills))
		if err != nil || seen[path] {
			t.Errorf("%s: %s, %v", k, path, err)
		}
		seen[path] = true
	}
	for _, kind := range []string{"", "..", "a/b", "A", ".fill-x"} {
		if _, err := c.Get(t.Context(), cache.Key{Kind: kind}, fillWith("", &fills)); err == nil {
			t.Errorf("the kind %q was taken", kind)
		}
	}
}

func TestDirectoryIsKeptAsItIs(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	path, err := c.Get(t.Context(), key, func(_ context.Context, tmp string) error {
		err := errors.Join(
			os.MkdirAll(filepath.Join(tmp, "a", "empty"), 0o700),
			writeFile(filepath.Join(tmp, "a", "unreadable"), "x"),
			os.Symlink("/nowhere", filepath.Join(tmp, "link")),
			os.Chmod(filepath.Join(tmp, "a", "unreadable"), 0o200),
			os.Chmod(filepath.Join(tmp, "a"), 0o500))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"": fs.ModeDir, "a": fs.ModeDir | 0o500, "a/unreadable": 0o200, "a/empty": fs.ModeDir | 0o700, "link": fs.ModeSymlink} {
		info, err := os.Lstat(filepath.Join(path, name))
		if err != nil || info.Mode()&want != want || want&0o777 != 0 && info.Mode() != want {
			t.Errorf("%q: %v, %v; want %v", name, info.Mode(), err, want)
		}
	}
	if err := os.Chmod(filepath.Join(path, "a"), 0o700); err != nil { // for the test's clean-up
		t.Fatal(err)
	}
}

func TestCallersAtOnceShareOneFill(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	var fills atomic.Int32
	release := make(chan struct{})
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() {
			path, err := c.Get(t.Context(), key, func(ctx context.Context, tmp string) error {
				<-release
				return fillWith("content", &fills)(ctx, tmp)
			})
			if err != nil {
				t.Error(err)
			} else if got, err := os.ReadFile(path); err != nil || string(got) != "content" {
				t.Errorf("content %q, %v", got, err)
			}
		})
	}
	close(release)
	group.Wait()
	if fills.Load() != 1 {
		t.Errorf("%d fills, want 1", fills.Load())
	}
}

type contextKey struct{}

func TestCallerThatLeavesDoesNotFailTheOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, t.TempDir())
		release := make(chan struct{})
		fill := func(ctx context.Context, tmp string) error {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-release:
				return writeFile(tmp, fmt.Sprint(ctx.Value(contextKey{})))
			}
		}
		first, leave := context.WithCancel(context.WithValue(t.Context(), contextKey{}, "first's"))
		gone := make(chan error, 1)
		go func() {
			_, err := c.Get(first, key, fill)
			gone <- err
		}()
		synctest.Wait()
		type result struct {
			path string
			err  error
		}
		stayed := make(chan result, 1)
		go func() {
			path, err := c.Get(t.Context(), key, fill)
			stayed <- result{path, err}
		}()
		synctest.Wait()
		leave()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Errorf("the one that left got %v", err)
		}
		close(release)
		got := <-stayed
		if text, err := os.ReadFile(got.path); got.err != nil || err != nil || string(text) != "first's" {
			t.Errorf("the one that stayed got %q, %v, %v", text, got.err, err)
		}
	})
}

func TestFillEndsWhenTheLastCallerHasLeftAndIsBegunAnewByTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		c := open(t, dir)
		finish := make(chan struct{})
		var running, most atomic.Int32
		slow := func(ctx context.Context, _ string) error {
			most.Store(max(most.Load(), running.Add(1)))
			defer running.Add(-1)
			<-ctx.Done()
			<-finish // a fill need not obey at once
			return ctx.Err()
		}
		ctx, leave := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			_, err := c.Get(ctx, key, slow)
			gone <- err
		}()
		synctest.Wait()
		leave()
		if err := <-gone; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		next := make(chan error, 1)
		go func() {
			_, err := c.Get(t.Context(), key, func(_ context.Context, tmp string) error {
				most.Store(max(most.Load(), running.Add(1)))
				defer running.Add(-1)
				return writeFile(tmp, "second")
			})
			next <- err
		}()
		synctest.Wait()
		close(finish)
		if err := <-next; err != nil {
			t.Error(err)
		}
		if most.Load() != 1 {
			t.Errorf("%d fills of one key at once", most.Load())
		}
		wantFiles(t, dir, 2)
	})
}

func TestFailureIsReturnedAsItIsLeavesNothingAndIsNotRemembered(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := open(t, dir)
	broken := errors.New("broken")
	for name, fill := range map[string]func(context.Context, string) error{
		"error": func(_ context.Context, tmp string) error {
			return errors.Join(os.MkdirAll(filepath.Join(tmp, "d"), 0o700), os.Chmod(tmp, 0o500), broken)
		},
		"panic":   func(_ context.Context, tmp string) error { _ = writeFile(tmp, "half"); panic(broken) },
		"nothing": func(context.Context, string) error { return nil },
	} {
		_, err := c.Get(t.Context(), key, fill)
		if err == nil || name == "error" && !errors.Is(err, broken) || name == "panic" && !strings.Contains(err.Error(), "panic: broken") {
			t.Errorf("%s: error %v", name, err)
		}
		wantFiles(t, dir, 0)
	}
	var fills atomic.Int32
	if _, err := c.Get(t.Context(), key, fillWith("content", &fills)); err != nil || fills.Load() != 1 {
		t.Errorf("after failures: %v, %d fills", err, fills.Load())
	}
}

// start begins another process that fills the key with text.
func start(t *testing.T, dir, text string) (cmd *exec.Cmd, finish func() (path string)) {
	t.Helper()
	cmd = exec.Command("/proc/self/exe", other, dir, text)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "filling" {
		t.Fatalf("the other process says %q", lines.Text())
	}
	return cmd, func() string {
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Error(err)
		}
		lines.Scan()
		path := lines.Text()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		return path
	}
}

func TestOfTwoProcessesOnePublishesAndBothFindIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, finishFirst := start(t, dir, "made by one")
	_, finishSecond := start(t, dir, "made by two")
	first, second := finishFirst(), finishSecond()
	if first == "" || first != second {
		t.Errorf("paths %q and %q", first, second)
	}
	if got, err := os.ReadFile(first); err != nil || string(got) != "made by one" {
		t.Errorf("content %q, %v; want what was published first", got, err)
	}
	wantFiles(t, dir, 2)
}

func TestProcessThatDiesLeavesAWreckThatIsSweptADayLater(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cmd, _ := start(t, dir, "never whole")
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	wantFiles(t, dir, 1)
	var fills atomic.Int32
	path, err := open(t, dir).Get(t.Context(), key, fillWith("whole", &fills))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "whole" {
		t.Errorf("content %q, %v", got, err)
	}
	wantFiles(t, dir, 3) // the wreck may still be alive
	wrecks, err := filepath.Glob(filepath.Join(dir, "*", "*", ".fill-*"))
	if err != nil || len(wrecks) != 1 {
		t.Fatal(wrecks, err)
	}
	old := time.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(wrecks[0], old, old); err != nil {
		t.Fatal(err)
	}
	open(t, dir)
	wantFiles(t, dir, 2)
}

func TestDamagedEntryIsNamed(t *testing.T) {
	t.Parallel()
	c := open(t, t.TempDir())
	var fills atomic.Int32
	path, err := c.Get(t.Context(), key, fillWith("content", &fills))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Get(t.Context(), key, fillWith("content", &fills)); err == nil || !strings.Contains(err.Error(), filepath.Dir(path)+" of sif") {
		t.Errorf("error %v, want one that names the entry", err)
	}
}

func BenchmarkHit(b *testing.B) {
	c, err := cache.Open(b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	var fills atomic.Int32
	for b.Loop() {
		if _, err := c.Get(b.Context(), key, fillWith("content", &fills)); err != nil {
			b.Fatal(err)
		}
	}
}
