package worker

import (
	"context"
	"log/slog"
	"os"
	"sync"
)

// outputFile is a file to which text is appended. It holds the text back until open is called. Without text there is no file.
// It is safe for concurrent use.
type outputFile struct {
	path string

	mu     sync.Mutex
	isOpen bool
	held   []byte // before it is open
	file   *os.File
	err    error
}

// Write appends text.
func (o *outputFile) Write(text []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.isOpen {
		o.held = append(o.held, text...)
		return len(text), nil
	}
	return o.write(text)
}

// open writes the text that was held back, and lets further text be written at once.
func (o *outputFile) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.isOpen = true
	if len(o.held) > 0 {
		_, _ = o.write(o.held) // failure tells
		o.held = nil
	}
}

// write writes text to the file. The caller holds mu.
func (o *outputFile) write(text []byte) (n int, err error) {
	if o.file == nil && o.err == nil {
		o.file, o.err = os.OpenFile(o.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	}
	if o.file == nil {
		return 0, o.err
	}
	return o.file.Write(text)
}

// failure returns the error that has kept the file from being made; nil if there was none.
func (o *outputFile) failure() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// close closes the file, and drops the text that is still held back.
func (o *outputFile) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	_ = o.file.Close() // Close of a nil file only returns an error
	o.held, o.err = nil, os.ErrClosed
}

// warningHandler handles the records of a member's log. It opens the member's file of output with the first warning.
type warningHandler struct {
	slog.Handler

	output *outputFile
}

// Handle implements slog.Handler.
func (h warningHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		h.output.open()
	}
	return h.Handler.Handle(ctx, r) //nolint:wrapcheck // the handler's own
}

// WithAttrs implements slog.Handler.
func (h warningHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warningHandler{h.Handler.WithAttrs(attrs), h.output}
}

// WithGroup implements slog.Handler.
func (h warningHandler) WithGroup(name string) slog.Handler {
	return warningHandler{h.Handler.WithGroup(name), h.output}
}
