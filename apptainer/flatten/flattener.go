package flatten

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Layers are the layers of one image.
type Layers struct {
	// Number is the number of layers.
	Number int
	// Open opens the uncompressed tar stream of layer i; the lowest is 0. It is called once for
	// every layer, from the highest down, and then at most once more for each. Every stream is read
	// to its end, where it may fail because the whole layer is invalid. Reading ends with ctx.
	Open func(ctx context.Context, i int) (io.ReadCloser, error)
	// Top returns one more layer above all others, as a tar stream; nil means none. exists reports
	// whether the tree has an entry of a name.
	Top func(exists func(name string) (bool, error)) ([]byte, error)
	// Taken are names of files that Top always has.
	Taken []string
}

// Limits limit the unpacked image, so that a few hostile kilobytes fill neither disk nor memory.
// None may be zero.
type Limits struct {
	Entries   int64 // in all layers
	Bytes     int64 // of file contents in all layers
	NameBytes int64 // of names, and separately of their resolved paths; both are kept in memory
	Crowd     int64 // names in one directory, or the root of the sum of the squares for several
}

// Root has the properties of the file system that the reader of the stream must know beforehand.
type Root struct {
	// Mode is the root directory's mode: permission bits with setuid, setgid and sticky.
	Mode int64
	// Newest is the latest time stamp, or a later time, in seconds since 1970.
	Newest int64
}

// ErrTooLarge is the cause when an image unpacks to more than its Limits.
var ErrTooLarge = errors.New("unpacks to more than is allowed")

// ErrAgain means that the written stream differs from the tree of the layers. The next Write will
// be right.
var ErrAgain = errors.New("the written stream differs from the layers' tree")

// Flattener writes the file system of an image. Only one goroutine may use it.
type Flattener struct {
	layers Layers
	limits Limits
	left   Limits // of limits
	root   Root

	entries [][]entry // of each layer that was read
	sets    attributeSets
	written [][]writtenFile
	top     []byte
	plan    *plan // nil until all layers are read
	others  *others
	buffer  []byte
}

// writtenFile is a file whose content was written immediately.
type writtenFile struct {
	ordinal int // the number of its entry in its layer
	name    string
}

// New returns a Flattener. root predicts the image's root, such as mode 0755 and the image's
// creation time.
func New(layers Layers, limits Limits, root Root) *Flattener {
	return &Flattener{
		layers: layers, limits: limits, left: limits, root: root,
		entries: make([][]entry, layers.Number), written: make([][]writtenFile, layers.Number),
		buffer: make([]byte, 256<<10),
	}
}

// Root returns the properties that the reader of the stream must know before the next Write.
func (f *Flattener) Root() Root { return f.root }

// Write writes the file system to w as one tar stream. After ErrAgain the caller discards the
// stream, and calls Root and Write again; that happens at most once. An image that no container
// runtime could unpack is an error. So is one beyond the limits, whose error wraps ErrTooLarge. The
// layers' streams get ctx.
func (f *Flattener) Write(ctx context.Context, w io.Writer) error {
	tw := newScannedStream(tar.NewWriter(w), f.limits.Crowd)
	f.others = newOthers()
	if f.plan == nil {
		if err := f.readLayers(ctx, tw); err != nil {
			return err
		}
		if err := f.makePlan(); err != nil {
			return err
		}
	} else {
		f.written = make([][]writtenFile, f.layers.Number)
	}
	if err := f.writeRest(ctx, tw); err != nil {
		return err
	}
	if err := tw.Close(); err != nil {
		return fmt.Errorf("end the tar stream: %w", err)
	}
	return nil
}

// readLayers reads all layers, and writes the files that the prediction calls visible.
func (f *Flattener) readLayers(ctx context.Context, tw *scannedStream) error {
	over := newCover(f.layers.Taken, f.limits)
	for i := f.layers.Number - 1; i >= 0; i-- {
		r, err := f.layers.Open(ctx, i)
		if err != nil {
			return f.inLayer(i, err)
		}
		err = f.readLayer(i, r, over, tw)
		if err = errors.Join(err, r.Close()); err != nil {
			return f.inLayer(i, err)
		}
		over.nextLayer()
	}
	return nil
}

func (f *Flattener) inLayer(i int, err error) error {
	return fmt.Errorf("layer %d of %d: %w", i+1, f.layers.Number, err)
}

func (f *Flattener) readLayer(i int, r io.Reader, over *cover, tw *scannedStream) error {
	tr := tar.NewReader(r)
	for ordinal := 0; ; ordinal++ {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if errors.Is(err, tar.ErrHeader) {
			return fmt.Errorf("unreadable tar entry after %d others: %w", ordinal, err)
		}
		if err != nil {
			return fmt.Errorf("after %d tar entries: %w", ordinal, err)
		}
		e, err := newEntry(hdr)
		if err != nil {
			return err
		}
		if err := f.spend(e); err != nil {
			return err
		}
		f.entries[i] = append(f.entries[i], e)
		if e.kind == tar.TypeReg && over.shows(e.name) && e.mtime <= f.root.Newest {
			if err := f.writeFile(tw, tr, e, e.name); err != nil {
				return fmt.Errorf("%s: %w", quoted(e.name), err)
			}
			f.written[i] = append(f.written[i], writtenFile{ordinal, e.name})
		}
		if err := over.add(e); err != nil {
			return err
		}
	}
	// The layer's digest covers the padding, too.
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxPadding+1))
	if err == nil && n > maxPadding {
		err = fmt.Errorf("%w: more than %d MiB behind the end of its tar", ErrTooLarge, maxPadding>>20)
	}
	return err
}

// maxPadding limits the bytes after the end of a layer's tar. tar itself pads to 10 KiB, and to
// some MiB on request.
const maxPadding = 64 << 20

// spend counts an entry of a layer.
func (f *Flattener) spend(e entry) error {
	f.left.Entries--
	f.left.Bytes -= e.size
	f.left.NameBytes -= int64(len(e.name) + len(e.link))
	for name, value := range e.attributes {
		f.left.NameBytes -= int64(len(name) + len(value))
	}
	if err := f.sets.add(e.attributes); err != nil {
		return err
	}
	switch {
	case f.left.Entries < 0:
		return tooMany(f.limits.Entries)
	case e.size < 0, f.left.Bytes < 0:
		return fmt.Errorf("%w: files of more than %s", ErrTooLarge, Size(f.limits.Bytes))
	case f.left.NameBytes < 0:
		return tooManyNames(f.limits.NameBytes)
	}
	return nil
}

func tooMany(entries int64) error {
	return fmt.Errorf("%w: more than %d files and directories", ErrTooLarge, entries)
}

func tooManyNames(bytes int64) error {
	return fmt.Errorf("%w: names of more than %s", ErrTooLarge, Size(bytes))
}

// Size returns a number of bytes for people, rounded down.
func Size(bytes int64) string {
	if bytes >= 1<<30 {
		return fmt.Sprintf("%d GiB", bytes>>30)
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

// makePlan builds the tree and compares it with the written files.
func (f *Flattener) makePlan() error {
	t := newTree(f.limits)
	for i, entries := range f.entries {
		if err := t.apply(entries); err != nil {
			return f.inLayer(i, err)
		}
	}
	f.entries = nil
	if err := f.addTop(t); err != nil {
		return err
	}
	if err := t.checkCrowd(); err != nil {
		return err
	}
	p := t.plan()
	f.plan = &p
	predicted := f.root
	f.root = Root{Mode: p.root.mode, Newest: p.newest}
	if f.root.Mode != predicted.Mode || f.root.Newest > predicted.Newest || !f.showsWritten() {
		return ErrAgain
	}
	return nil
}

func (f *Flattener) addTop(t *tree) (err error) {
	if f.layers.Top == nil {
		return nil
	}
	if f.top, err = f.layers.Top(t.exists); err != nil {
		return fmt.Errorf("make the uppermost layer: %w", err)
	}
	var entries []entry
	tr := tar.NewReader(bytes.NewReader(f.top))
	for {
		hdr, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return t.apply(entries)
		}
		if err != nil {
			return fmt.Errorf("read the uppermost layer: %w", err)
		}
		e, err := newEntry(hdr)
		if err != nil {
			return err
		}
		entries = append(entries, e)
	}
}

// showsWritten reports whether the tree shows every written file.
func (f *Flattener) showsWritten() bool {
	for i, files := range f.written {
		for _, file := range files {
			if !slices.Contains(f.plan.files[i][file.ordinal], file.name) {
				return false
			}
		}
	}
	return true
}
