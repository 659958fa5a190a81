package results

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

const (
	// ListingName is the name of the listing of kept results on the server.
	ListingName = "kept.txt"
	// ListingHead is the number of bytes that show whether a file is a listing.
	ListingHead = 8 << 10
	// maxOutput limits the output that the server gets of a bundle with kept results.
	maxOutput = 1 << 20
	// listingTitle begins a listing. The rest of its second line is the path of the results.
	listingTitle = "# The results of this bundle stay on the disk of the cluster that ran it:\n# "
)

// isListing reports whether a text begins like the listing of kept results. kept is the path of
// their directory, or its beginning.
func isListing(text, kept string) bool {
	return strings.HasPrefix(text, listingTitle+strings.TrimSuffix(quoted(kept), `"`))
}

// listing makes the files that the server gets of kept results: their listing, and the end of their
// output.
type listing struct {
	kept     string // their path
	now      func() time.Time
	tell     func(string)
	excluded exclusion

	tally    tally
	counts   struct{ files, directories, links, others int64 }
	reported time.Time
}

// write writes the listing's files to dir, and removes entries that are not results from root.
func (l *listing) write(ctx context.Context, root *os.Root, dir string) (err error) {
	var output strings.Builder
	for _, name := range []string{"stdout", "stderr"} {
		size, sent, err := copyEnd(root, name, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		if sent < size {
			fmt.Fprintf(&output, "# of %s the last %s of %s are here\n", name, codalab.FormatSize(sent), codalab.FormatSize(size))
		}
	}
	// The head has the number of entries, so they are written to a separate file first.
	entries, err := os.CreateTemp(filepath.Dir(dir), "entries-")
	if err != nil {
		return failed(fmt.Errorf("write entries: %w", err), true)
	}
	defer func() {
		err = errors.Join(err, entries.Close())
		_ = os.Remove(entries.Name()) // a sweep removes it otherwise
	}()
	buffered := bufio.NewWriter(entries)
	if err := l.entries(ctx, root, buffered); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write entries: %w", err)
	}
	if _, err := entries.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("read entries: %w", err)
	}
	return writeFile(filepath.Join(dir, ListingName), io.MultiReader(strings.NewReader(l.head(output.String())), entries))
}

func (l *listing) head(output string) string {
	return listingTitle + fmt.Sprintf(`%s
# %s (%d bytes): %d files, %d directories, %d links, %d others
# as of %s
# A run on that cluster that has this bundle as a dependency sees them all.
%s#
# type              size  modified              path
`, quoted(l.kept), &l.tally, l.tally.bytes, l.counts.files, l.counts.directories, l.counts.links, l.counts.others,
		l.now().UTC().Format(time.RFC3339), output)
}

func (l *listing) entries(ctx context.Context, root *os.Root, w io.Writer) error {
	l.tally, l.counts.files, l.counts.directories, l.counts.links, l.counts.others = tally{}, 0, 0, 0, 0
	return l.excluded.clean(ctx, root, func(at place, info fs.FileInfo) error {
		l.tally.add(info)
		if now := l.now(); now.Sub(l.reported) >= time.Second {
			l.reported = now
			l.tell(fmt.Sprintf("Listing results, which stay on the cluster's disk: %s so far.", &l.tally))
		}
		_, err := io.WriteString(w, l.line(at, info))
		return err
	})
}

// line returns an entry's line, and counts the entry.
func (l *listing) line(at place, info fs.FileInfo) string {
	kind, size, name := "other", "-", quoted(at.below)
	switch mode := info.Mode(); {
	case mode.IsRegular():
		l.counts.files++
		kind, size = "file", strconv.FormatInt(info.Size(), 10)
	case mode.IsDir():
		l.counts.directories++
		kind, name = "dir", name+"/"
	case mode.Type() == fs.ModeSymlink:
		l.counts.links++
		target, err := at.dir.Readlink(at.name)
		if err != nil {
			target = "?"
		}
		kind, name = "link", name+" -> "+quoted(target)
	default:
		l.counts.others++
	}
	return fmt.Sprintf("%-5s %18s  %-20s  %s\n", kind, size, info.ModTime().UTC().Format(time.RFC3339), name)
}

// quoted quotes a name that does not fit on one line.
func quoted(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// copyEnd copies the end of a file, from the beginning of a line if possible. It skips a name that
// is not a file.
func copyEnd(root *os.Root, name, to string) (size, sent int64, err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return 0, 0, err
	}
	if err != nil {
		return 0, 0, nil // there is none, or a link that leads out: the listing shows it
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, 0, err
	}
	size = info.Size()
	from := max(size-maxOutput, 0)
	if from > 0 {
		var line [4096]byte
		n, _ := f.ReadAt(line[:], from) // the copy fails if the file cannot be read
		if i := strings.IndexByte(string(line[:n]), '\n'); i >= 0 {
			from += int64(i) + 1
		}
	}
	return size, size - from, writeFile(to, io.NewSectionReader(f, from, size-from))
}

func writeFile(path string, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, content)
	return errors.Join(err, f.Close())
}
