package testenv

import (
	"strings"
	"sync"
)

// Output keeps the output of a program that still runs. Several goroutines may use it. The zero value is empty.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds to the output.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p) //nolint:wrapcheck // it never fails
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
