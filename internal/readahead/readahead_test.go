package readahead

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/cl-slurm/cl-slurm/internal/testenv"
)

var errBroken = errors.New("broken")

func TestStreamThatBreaksOffIsDeliveredFirst(t *testing.T) {
	t.Parallel()
	testenv.UsesMachine()
	for _, size := range []int{0, 1, after, after + 1, 3*chunks*chunkSize + 1} {
		data := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		runs := 0
		r := New(io.MultiReader(bytes.NewReader(data), iotest.ErrReader(errBroken)), func(read func()) {
			runs++
			read()
		})
		got, err := io.ReadAll(r)
		r.Stop()
		if !errors.Is(err, errBroken) || !bytes.Equal(got, data) {
			t.Errorf("%d bytes were read of %d, and then came %v", len(got), size, err)
		}
		if want := min(size/after, 1); size != after && runs != want {
			t.Errorf("%d goroutines read %d bytes, want %d", runs, size, want)
		}
	}
}

func TestStopEndsTheReading(t *testing.T) {
	t.Parallel()
	ended := make(chan struct{})
	r := New(endless{}, func(read func()) {
		defer close(ended)
		read()
	})
	if _, err := io.CopyN(io.Discard, r, 2*after); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	select {
	case <-ended:
	default:
		t.Error("the goroutine reads on")
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
