package apptainer_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/sys/unix"

	"github.com/cl-slurm/cl-slurm/apptainer"
	"github.com/cl-slurm/cl-slurm/apptainer/imagetest"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

// niceOf reads the nice value in /proc/PID/stat (proc_pid_stat(5)).
func niceOf(t *testing.T, stat []byte) int {
	t.Helper()
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	nice, err := strconv.Atoi(fields[16])
	must(t, err)
	return nice
}

// processNice returns the nice value of this process's main thread.
func processNice(t *testing.T) int {
	t.Helper()
	stat, err := os.ReadFile("/proc/self/stat")
	must(t, err)
	return niceOf(t, stat)
}

// threads counts this process's threads with a nice value.
func threads(t *testing.T, nice int) (n int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/self/task/*/stat")
	must(t, err)
	for _, path := range stats {
		if stat, err := os.ReadFile(path); err == nil && niceOf(t, stat) == nice { // otherwise it has ended
			n++
		}
	}
	return n
}

// niced returns the nice value that a thread has after an increment, and whether only such threads have
// it: in a process that is very nice already, different increments lead to the highest value.
func niced(t *testing.T, increment int) (value int, alone bool) {
	t.Helper()
	const highest = 19 // setpriority(2)
	sum := processNice(t) + increment
	return min(sum, highest), sum <= highest
}

func TestNiceValueIsOfEverythingThatConvertsAndNothingElse(t *testing.T) {
	t.Parallel()
	const nice = 9 // no other test uses it
	want, alone := niced(t, nice)
	file := imagetest.Regular("a", strings.Repeat("x", 4<<20))
	file.ModTime = time.Unix(1, 0) // so that it is written while it is read
	stream := imagetest.TarStream(t, file)
	layer := static.NewLayer(stream, types.OCIUncompressedLayer)
	digest, err := layer.Digest()
	must(t, err)
	reg := imagetest.Start(t)
	img := imagetest.Resolve(t, reg.Push(t, "x", imagetest.Image(t, v1.Config{}, layer)))
	reg.Intercept = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, digest.Hex) {
			return false
		}
		_, _ = w.Write(stream[:2<<20])
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return true
	}
	// The tool writes its own nice value when it has input, and then waits until the test has read
	// all others.
	said, looked := filepath.Join(t.TempDir(), "said"), filepath.Join(t.TempDir(), "looked")
	for _, fifo := range []string{said, looked} {
		must(t, syscall.Mkfifo(fifo, 0o600))
	}
	c := apptainer.Converter{Source: imagetest.Source(), Nice: nice}
	c.Mksquashfs = toolThat(t, "head -c 1000 >/dev/null; cat /proc/$$/stat >'"+said+"'; cat '"+looked+"'; exit 1")
	converted := make(chan error, 1)
	go func() { converted <- c.Convert(t.Context(), img, filepath.Join(t.TempDir(), "x.sif"), nil) }()
	tool, err := os.ReadFile(said)
	must(t, err)
	if got := niceOf(t, tool); got != want {
		t.Errorf("the tool has the nice value %d, want %d", got, want)
	}
	// The threads that pull, unpack and flatten, and the one that started the tool. The one that unpacks begins
	// after the first data, and the others do not end before it.
	if alone {
		testenv.Await(t, "the thread that unpacks", func() bool { return threads(t, want) >= 4 })
		if n := threads(t, want); n != 4 {
			t.Errorf("%d threads have the nice value %d, want 4", n, want)
		}
	}
	must(t, os.WriteFile(looked, nil, 0o600))
	imagetest.WantError(t, <-converted, false, "exit status 1")
	if alone {
		wantNone(t, want)
	}
}

// A goroutine may run on the process's main thread, which cannot end.
func TestMainThreadKeepsItsNiceValue(t *testing.T) {
	t.Parallel()
	const nice = 8 // no other test uses it
	want, alone := niced(t, nice)
	var wrong atomic.Int32
	var all sync.WaitGroup
	for range 2000 {
		all.Go(func() {
			apptainer.Nicely(nice, func() {
				if raw, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err != nil || 20-raw != want {
					wrong.Add(1)
				}
			})
		})
	}
	all.Wait()
	if wrong.Load() != 0 {
		t.Errorf("%d had another nice value", wrong.Load())
	}
	if alone {
		wantNone(t, want)
	}
}

// wantNone waits until no thread has a nice value any more.
func wantNone(t *testing.T, nice int) {
	t.Helper()
	left := 0
	testenv.Await(t, "no thread has the nice value "+strconv.Itoa(nice), func() bool {
		left = threads(t, nice)
		return left == 0
	}, &left)
}
