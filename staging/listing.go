package staging

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
	"github.com/cl-slurm/cl-slurm/internal/filetree"
)

const (
	// listingName is the file of the archive that lists kept results.
	listingName = "kept.txt"
	// outputKept is how much of an output that is kept goes to the server.
	outputKept = 1 << 20
)

// listingTitle begins a listing. The rest of its second line says where the
// results are.
const listingTitle = "# The results of this bundle stay on the disk of the cluster that ran it:\n# "

// isListing says whether a text begins as the listing of results that are kept
// in a directory.
func isListing(text, kept string) bool {
	return strings.HasPrefix(text, listingTitle+shown(kept)+"\n")
}

// listing makes what the server gets of results that are kept: their listing
// and the end of their output. What is no result it removes.
type listing struct {
	kept     string // where they are
	now      func() time.Time
	tell     func(string)
	excluded exclusion

	tally  tally
	counts struct{ files, directories, links, others int64 }
	said   time.Time
}

// write writes the files of the archive to dir.
func (l *listing) write(ctx context.Context, root *os.Root, dir string) error {
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
	// What stands at the head is known at the end.
	entries, err := os.CreateTemp(filepath.Dir(dir), "entries-")
	if err != nil {
		return fmt.Errorf("write entries: %w", err)
	}
	defer func() { _, _ = entries.Close(), os.Remove(entries.Name()) }() // else it goes with what is beside it
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
	return writeFile(filepath.Join(dir, listingName), io.MultiReader(strings.NewReader(l.head(output.String())), entries))
}

func (l *listing) head(output string) string {
	return listingTitle + fmt.Sprintf(`%s
# %s (%d bytes): %d files, %d directories, %d links, %d others
# as of %s
# A run on that cluster that has this bundle as a dependency sees them all.
%s#
# type              size  modified              path
`, shown(l.kept), &l.tally, l.tally.bytes, l.counts.files, l.counts.directories, l.counts.links, l.counts.others,
		l.now().UTC().Format(time.RFC3339), output)
}

// entries writes a line for each entry.
func (l *listing) entries(ctx context.Context, root *os.Root, w io.Writer) error {
	l.tally, l.counts.files, l.counts.directories, l.counts.links, l.counts.others = tally{}, 0, 0, 0, 0
	var removing error
	skip := func(below string, d fs.DirEntry) bool {
		if !l.excluded.excludes(root, below, d) {
			return false
		}
		removing = errors.Join(removing, remove(root, below, d))
		return true
	}
	visit := func(below string, info fs.FileInfo) error {
		l.tally.add(info)
		if now := l.now(); now.Sub(l.said) >= time.Second {
			l.said = now
			l.tell(fmt.Sprintf("Listing results, which stay on the cluster's disk: %s so far.", &l.tally))
		}
		_, err := io.WriteString(w, l.line(root, below, info))
		return err
	}
	err := walker{root, skip, visit}.walk(ctx, ".")
	return errors.Join(err, removing)
}

// line is an entry's line, and counts it.
func (l *listing) line(root *os.Root, below string, info fs.FileInfo) string {
	kind, size, name := "other", "-", shown(below)
	switch mode := info.Mode(); {
	case mode.IsRegular():
		l.counts.files++
		kind, size = "file", strconv.FormatInt(info.Size(), 10)
	case mode.IsDir():
		l.counts.directories++
		kind, name = "dir", name+"/"
	case mode.Type() == fs.ModeSymlink:
		l.counts.links++
		target, err := root.Readlink(below)
		if err != nil {
			target = "?"
		}
		kind, name = "link", name+" -> "+shown(target)
	default:
		l.counts.others++
	}
	return fmt.Sprintf("%-5s %18s  %-20s  %s\n", kind, size, info.ModTime().UTC().Format(time.RFC3339), name)
}

// shown is a name on a line of its own: a command may put anything into one.
func shown(name string) string {
	if quoted := strconv.Quote(name); quoted != `"`+name+`"` {
		return quoted
	}
	return name
}

// remove removes an entry with all that it holds, also where that was closed to
// its owner.
func remove(root *os.Root, below string, d fs.DirEntry) error {
	err := root.RemoveAll(below)
	if err == nil || !d.IsDir() {
		return err
	}
	if sub, openErr := root.OpenRoot(below); openErr == nil {
		filetree.OpenUp(sub)
		_ = sub.Close() // only used to change modes
	} else {
		_ = root.Chmod(below, 0o700)
	}
	return root.RemoveAll(below)
}

// copyEnd copies the end of a file, from the beginning of a line where it can.
// What is no file is passed over.
func copyEnd(root *os.Root, name, to string) (size, sent int64, err error) {
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrPermission) {
		return 0, 0, err
	}
	if err != nil {
		return 0, 0, nil // none, or a link that leads out: the listing has it
	}
	defer func() { _ = f.Close() }() // only read
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return 0, 0, err
	}
	size = info.Size()
	from := max(size-outputKept, 0)
	if from > 0 {
		var line [4096]byte
		n, _ := f.ReadAt(line[:], from) // what cannot be read shows below
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
