package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"
)

// A part counts what is in its file, as the next attempt continues it there.
func TestPartCountsWhatWasWritten(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	name := filepath.Join(t.TempDir(), "part")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	p := &partialFile{path: name, file: f}
	want := strings.Repeat("x", writeSize+7)
	if err := p.add(io.MultiReader(strings.NewReader(want), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if err := p.add(strings.NewReader("rest")); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != want+"rest" || p.size != int64(len(got)) {
		t.Errorf("%d bytes are counted, %d written, %v", p.size, len(got), err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = os.Open(name); err != nil { // which takes no writes
		t.Fatal(err)
	}
	defer f.Close()
	readOnly := &partialFile{path: name, file: f}
	if err := readOnly.add(strings.NewReader(want)); err == nil || readOnly.size != 0 || strings.Contains(err.Error(), "\n") {
		t.Errorf("%d bytes are counted that were not written: %v", readOnly.size, err)
	}
}
