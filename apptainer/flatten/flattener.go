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

// Layers are those of one image.
type Layers struct {
	// Number is how many there are.
	Number int
	// Open gives the tar stream of layer i, uncompressed; the lowest is 0. It is
	// called for every layer once, from the highest down, and perhaps once more
	// for each after that. Every stream is read to its end, which may tell of an
	// error in the whole. Reading ends with ctx.
	Open func(ctx context.Context, i int) (io.ReadCloser, error)
	// Top, which may be nil, makes one more layer, a tar stream, that goes over
	// all; exists says whether the tree has something at a name, whatever that
	// is.
	Top func(exists func(name string) (bool, error)) ([]byte, error)
	// Taken are names of files that Top is known to have.
	Taken []string
}

// Limits bound what an image may unpack to, so that a few hostile kilobytes
// fill neither disk nor memory. None may be zero.
type Limits struct {
	Entries   int64 // in all layers
	Bytes     int64 // of file contents in all layers
	NameBytes int64 // of names, and again of the paths that they lead to, which are held in memory
}

// Root is what the program that reads the stream has to be told of the file
// system before it begins.
type Root struct {
	// Mode is that of the root directory: permission bits with setuid, setgid
	// and sticky.
	Mode int64
	// Newest is not before the last time stamp there is, in seconds since 1970.
	Newest int64
}

// ErrTooLarge is the cause when an image unpacks to more than its Limits.
var ErrTooLarge = errors.New("unpacks to more than is allowed")

// ErrAgain says that what was written is not what the layers show, and that the
// next Write will be right.
var ErrAgain = errors.New("what was written is not what the layers show")

// Flattener writes the file system of an image. It is used by one goroutine.
type Flattener struct {
	layers Layers
	limits Limits // what is left of them
	whole  Limits
	root   Root

	entries [][]entry // of each layer that was read
	written [][]writtenFile
	top     []byte
	plan    *plan // once all layers are read
	buffer  []byte
}

// writtenFile is a file whose content was written as soon as it was read.
type writtenFile struct {
	ordinal int // which entry of its layer
	name    string
}

// New returns a Flattener. root is a guess at the image's, such as mode 0755
// and the time that the image was made.
func New(layers Layers, limits Limits, root Root) *Flattener {
	return &Flattener{
		layers: layers, limits: limits, whole: limits, root: root,
		entries: make([][]entry, layers.Number), written: make([][]writtenFile, layers.Number),
		buffer: make([]byte, 256<<10),
	}
}

// Root is what the reader of the next Write has to be told.
func (f *Flattener) Root() Root { return f.root }

// Write writes the file system to w as one tar stream. With ErrAgain what was
// written has to be thrown away, and Root and Write called again, which happens
// at most once. What no container runtime could unpack is an error in words, as
// is what passes the limits: it wraps ErrTooLarge. ctx is that of the layers'
// streams.
func (f *Flattener) Write(ctx context.Context, w io.Writer) error {
	tw := tar.NewWriter(w)
	if f.plan == nil {
		if err := f.read(ctx, tw); err != nil {
			return err
		}
		if err := f.decide(); err != nil {
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

// read reads all layers, and writes the files that show as far as is known.
func (f *Flattener) read(ctx context.Context, tw *tar.Writer) error {
	over := newCover(f.layers.Taken, f.whole.Entries)
	for i := f.layers.Number - 1; i >= 0; i-- {
		r, err := f.layers.Open(ctx, i)
		if err != nil {
			return f.inLayer(i, err)
		}
		err = f.readLayer(i, r, over, tw)
		if err = errors.Join(err, r.Close()); err != nil {
			return f.inLayer(i, err)
		}
		over.next()
	}
	return nil
}

func (f *Flattener) inLayer(i int, err error) error {
	return fmt.Errorf("layer %d of %d: %w", i+1, f.layers.Number, err)
}

func (f *Flattener) readLayer(i int, r io.Reader, over *cover, tw *tar.Writer) error {
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
		if err := f.limits.spend(e); err != nil {
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
	// The layer's digest is of the padding, too.
	n, err := io.Copy(io.Discard, io.LimitReader(r, maxPadding+1))
	if err == nil && n > maxPadding {
		err = fmt.Errorf("it goes on for more than %d MiB behind the end of its tar: %w", maxPadding>>20, ErrTooLarge)
	}
	return err
}

// maxPadding is what may follow the end of a layer's tar; tar itself pads to
// 10 KiB, and to some MiB where it is asked to.
const maxPadding = 64 << 20

// spend takes an entry off the limits.
func (l *Limits) spend(e entry) error {
	l.Entries--
	l.Bytes -= e.size
	l.NameBytes -= int64(len(e.name) + len(e.link))
	for name, value := range e.attributes {
		l.NameBytes -= int64(len(name) + len(value))
	}
	if e.size < 0 || l.Entries < 0 || l.Bytes < 0 || l.NameBytes < 0 {
		return ErrTooLarge
	}
	return nil
}

// decide makes the tree, and checks that what was written is of it.
func (f *Flattener) decide() error {
	t := newTree(f.whole)
	for i, entries := range f.entries {
		if err := t.apply(entries); err != nil {
			return f.inLayer(i, err)
		}
	}
	f.entries = nil
	if err := f.addTop(t); err != nil {
		return err
	}
	p := t.plan()
	f.plan = &p
	guess := f.root
	f.root = Root{Mode: p.root.mode, Newest: p.newest}
	if f.root.Mode != guess.Mode || f.root.Newest > guess.Newest || !f.holds() {
		return ErrAgain
	}
	return nil
}

// addTop applies the layer that goes over all.
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

// holds says whether the tree shows everything that was written.
func (f *Flattener) holds() bool {
	for i, files := range f.written {
		for _, file := range files {
			if !slices.Contains(f.plan.files[i][file.ordinal], file.name) {
				return false
			}
		}
	}
	return true
}
