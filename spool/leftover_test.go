package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"
)

// counted is a file system that counts the requests to it.
type counted struct {
	fs.FS

	listings, stats, reads int
}

func (c *counted) ReadDir(name string) ([]fs.DirEntry, error) {
	c.listings++
	entries, err := fs.ReadDir(c.FS, name)
	for i, e := range entries {
		entries[i] = countedEntry{e, c}
	}
	return entries, err
}

func (c *counted) ReadFile(name string) ([]byte, error) {
	c.reads++
	return fs.ReadFile(c.FS, name)
}

type countedEntry struct {
	fs.DirEntry

	by *counted
}

func (e countedEntry) Info() (fs.FileInfo, error) {
	e.by.stats++
	return e.DirEntry.Info()
}

// A day's bundles are kept for a day after their end, and a sweep comes every hour. On NFS a request for each of
// a hundred thousand takes minutes.
func TestSweepAsksTheDiskNothingAboutNeededBundles(t *testing.T) {
	t.Parallel()
	d := mounted(t, t.TempDir()+"/") // a configuration may have a slash at the end
	prepare := func(from, to int) {
		t.Helper()
		for n := from; n < to; n++ {
			bundle := fmt.Sprintf("0x%d", n)
			a := d.Layout.Attempt(bundle, "1-b1")
			must(t, errors.Join(os.MkdirAll(a.Dir, 0o700), os.MkdirAll(d.Layout.RunDir(bundle, "1-b1"), 0o700), d.Layout.Bell().Ring(bundle, "1-b1")))
			write(t, a.SpecPath(), `{"mark":"m"}`)
		}
	}
	ask := func() string {
		t.Helper()
		c := counted{FS: os.DirFS(string(d.Layout))}
		found, err := d.leftovers(&c, func(bundle string) bool { return bundle != "0x0" })
		if err != nil || len(found) != 3 { // run directory, records and ring of the bundle that is not needed
			t.Errorf("found %+v, %v", found, err)
		}
		return fmt.Sprintf("%d listings, %d stats, %d readings", c.listings, c.stats, c.reads)
	}
	prepare(0, 10)
	few := ask()
	prepare(10, 100)
	many := ask()
	if want := "7 listings, 6 stats, 0 readings"; few != want || many != want {
		t.Errorf("a sweep with 10 needed bundles takes %s, with 100 %s; want %s", few, many, want)
	}
}
