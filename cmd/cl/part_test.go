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
// asking knows the largest read of it.
type asking struct {
	io.Reader
	most int
}

func (a *asking) Read(p []byte) (int, error) {
	a.most = max(a.most, len(p))
	return a.Reader.Read(p)
}

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
	asked := &asking{Reader: io.MultiReader(strings.NewReader(want), iotest.ErrReader(broken))}
	if err := p.add(asked); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if asked.most != writeSize {
		t.Errorf("at most %d bytes come by one read", asked.most)
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
