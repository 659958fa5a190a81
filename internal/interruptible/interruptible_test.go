package interruptible_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"

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
