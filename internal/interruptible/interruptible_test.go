package interruptible_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/cl-slurm/cl-slurm/internal/interruptible"
)

func TestEndOfTheContextEndsTheReading(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	r := interruptible.Reader(ctx, strings.NewReader("text"))
	two := make([]byte, 2)
	if n, err := r.Read(two); n != 2 || err != nil {
		t.Errorf("Read: %d, %v", n, err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

func TestEndOfTheContextEndsAReadOfAQuietStream(t *testing.T) {
	t.Parallel()
	quiet, producer := io.Pipe()
	defer producer.Close()
	ctx, cancel := context.WithCancel(t.Context())
	r := interruptible.Pipe(ctx, quiet)
	go func() { _, _ = producer.Write([]byte("a")) }()
	if _, err := io.ReadFull(r, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	go cancel()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCloseEndsAReadOfAQuietStream(t *testing.T) {
	t.Parallel()
	quiet, producer := io.Pipe()
	defer producer.Close()
	r := interruptible.Pipe(t.Context(), quiet)
	go r.Close() //nolint:errcheck // it has no error
	if _, err := io.ReadAll(r); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
}

func TestEndOfAStreamIsPassedOn(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	r := interruptible.Pipe(t.Context(), io.MultiReader(strings.NewReader("text"), iotest.ErrReader(broken)))
	if text, err := io.ReadAll(r); string(text) != "text" || !errors.Is(err, broken) {
		t.Errorf("read %q, %v", text, err)
	}
	if text, err := io.ReadAll(interruptible.Pipe(t.Context(), strings.NewReader("text"))); string(text) != "text" || err != nil {
		t.Errorf("read %q, %v", text, err)
	}
}
