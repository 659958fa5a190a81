package main

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/pgzip"

	"github.com/cl-slurm/cl-slurm/internal/interruptible"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// payload is the contents of an upload.
type payload struct {
	// name is a file name; its extension shows the server whether the stream is an archive.
	name   string
	unpack bool
	// url is an address from which the server fetches the contents itself; then there is no
	// stream.
	url string
	// size is the number of bytes for the progress display, -1 if unknown; need is the least disk
	// quota that the bundle takes. measure may set both. files is the number of files in an
	// archive.
	size, need, files int64
	// measure checks that everything can be read, before anything is sent.
	measure func(ctx context.Context) error
	// open opens the stream, which counts its bytes in p.
	open func(ctx context.Context, p *progress) (io.ReadCloser, error)
}

// prepare returns the payload, after checking that its paths are there.
func (u *upload) prepare() (*payload, error) {
	p := &payload{size: -1, measure: func(context.Context) error { return nil }}
	switch {
	case u.isText:
		p.name, p.size = "contents", int64(len(u.text))
		p.open = counted(func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(u.text)), nil })
		return p, nil
	case isURL(u.paths[0]):
		p.url, p.unpack = u.paths[0], !u.pack
		return p, nil
	case u.paths[0] == standardInput:
		p.name = u.metadata.String("name")
		if p.name == "" {
			p.name = "stdin"
		}
		p.unpack = !u.pack && archiveExt(p.name) != ""
		p.open = func(ctx context.Context, progress *progress) (io.ReadCloser, error) {
			return countedBy(progress, interruptible.Pipe(ctx, u.Stdin)), nil
		}
		return p, nil
	}
	sources, err := u.resolvePaths()
	if err != nil {
		return nil, err
	}
	if len(sources) == 1 {
		if info, err := os.Stat(sources[0]); err == nil && !info.IsDir() {
			u.prepareFile(p, sources[0], info.Size())
			return p, nil
		}
	}
	return p, u.prepareArchive(p, sources)
}

// resolvePaths makes the paths absolute and returns the paths to send; with -L it resolves
// symbolic links.
func (u *upload) resolvePaths() ([]string, error) {
	var sources []string
	for i, p := range u.paths {
		if rest, ok := strings.CutPrefix(p, "~"); ok && (rest == "" || rest[0] == '/') {
			p = u.Getenv("HOME") + rest // quoted, so that no shell has replaced it
		}
		absolute, err := filepath.Abs(p)
		if err != nil {
			return nil, refusef("%v", err)
		}
		u.paths[i] = absolute
		source, err := u.resolvePath(absolute)
		if err != nil {
			return nil, err
		}
		sources = append(sources, source)
	}
	return sources, nil
}

func (u *upload) resolvePath(p string) (string, error) {
	info, err := os.Lstat(p)
	if err == nil && info.Mode().Type() == fs.ModeSymlink {
		if !u.follow {
			return "", refusef("Not following symlinks: %s; -L follows them", p)
		}
		resolved, err := filepath.EvalSymlinks(p)
		if err != nil {
			return "", refusef("Broken symlink: %s", p)
		}
		return u.resolvePath(resolved)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", refusef("upload got non-existent path: %s", p)
	case err != nil:
		return "", refusef("%v", err)
	case !info.IsDir() && !info.Mode().IsRegular():
		return "", refusef("%s is neither a file nor a directory; cl upload - reads standard input", p)
	}
	return p, nil
}

func (u *upload) prepareFile(p *payload, file string, size int64) {
	open := func() (io.ReadCloser, error) {
		f, err := os.Open(file)
		if err != nil {
			return nil, refusef("%v", err)
		}
		return f, nil
	}
	p.name, p.size, p.need, p.open = filepath.Base(file), size, size, counted(open)
	p.measure = func(context.Context) error {
		f, err := open()
		if err != nil {
			return err
		}
		return f.Close()
	}
	switch {
	case archiveExt(file) != "":
		p.unpack = !u.pack
		if p.unpack {
			p.need = 0 // the server counts the unpacked files
		}
	case u.compress:
		plain := p.open
		p.name, p.unpack = p.name+".gz", true
		p.open = func(ctx context.Context, progress *progress) (io.ReadCloser, error) {
			r, err := plain(ctx, progress)
			if err != nil {
				return nil, err
			}
			return piped(func(w io.Writer) error {
				zw := pgzip.NewWriter(w)
				_, err := io.Copy(zw, r)
				return errors.Join(err, zw.Close(), r.Close())
			}), nil
		}
	}
}

// prepareArchive prepares one directory, or several paths, which become the entries of one.
func (u *upload) prepareArchive(p *payload, sources []string) error {
	inputs := []tarstream.Input{{Name: ".", Path: sources[0]}}
	p.name, p.unpack = filepath.Base(sources[0])+".tar.gz", true
	if len(sources) > 1 {
		p.name = "contents.tar.gz"
		inputs = nil
		names := map[string]bool{}
		for _, source := range sources {
			name := filepath.Base(source)
			if names[name] {
				return refusef("Two of the paths are called %s: a bundle can hold only one of them.", name)
			}
			names[name] = true
			inputs = append(inputs, tarstream.Input{Name: name, Path: source})
		}
	}
	x, err := u.exclusion(inputs)
	if err != nil {
		return err
	}
	options := tarstream.PathOptions{Follow: u.follow, PackOptions: tarstream.PackOptions{Exclude: x.excludes}}
	p.measure = func(ctx context.Context) error {
		u.printOnTerminal("Preparing upload archive...")
		var left leftOut
		options := options
		options.LeftOut = left.add
		size, err := tarstream.MeasurePaths(ctx, inputs, options)
		if err == nil {
			err = x.failure
		}
		if err != nil {
			return unlessEnded(ctx, err)
		}
		x.warn()
		left.warn(u.cli)
		p.size, p.need, p.files = size.Bytes, size.Bytes, size.Entries
		if len(sources) == 1 {
			p.files-- // the directory itself
		}
		return nil
	}
	p.open = func(ctx context.Context, progress *progress) (io.ReadCloser, error) {
		changed := &changes{}
		options := options
		options.Changed = changed.add
		options.Read = func(n int64) { progress.add(n) }
		options.Entry = func(string) { progress.addFile() }
		archive := piped(func(w io.Writer) error { return tarstream.PackPaths(ctx, w, inputs, options) })
		archive.after = func() { changed.warn(u.cli) }
		return archive, nil
	}
	return nil
}

// unlessEnded returns ctx's error if ctx has ended, else a refusal with err's text.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return refusef("%v", err)
}

// leftOut are the entries that no archive has: pipes, sockets and devices.
type leftOut []string

func (l *leftOut) add(path string) { *l = append(*l, path) }

// warn names a few of the entries, and their number.
func (l leftOut) warn(cli *cli) {
	const most = 3
	switch {
	case len(l) == 1:
		cli.warn("%s is left out: it is a pipe, a socket or a device, and no file.", l[0])
	case len(l) > most:
		cli.warn("%s and %d more are left out: they are pipes, sockets or devices, and no files.", strings.Join(l[:most], ", "), len(l)-most)
	case len(l) > 0:
		cli.warn("%s are left out: they are pipes, sockets or devices, and no files.", strings.Join(l, ", "))
	}
}

// changes are the files that other processes changed while they were packed.
type changes struct {
	count int
	first error
	path  string
}

func (c *changes) add(path string, err error) {
	if c.count++; c.count == 1 {
		c.path, c.first = path, err
	}
}

func (c *changes) warn(cli *cli) {
	if c.count == 0 {
		return
	}
	what := "was changed"
	if errors.Is(c.first, fs.ErrNotExist) {
		what = "was removed"
	}
	others := ""
	if c.count > 1 {
		others = " (the first of " + strconv.Itoa(c.count) + " such files)"
	}
	cli.warn("%s %s by another process while it was packed%s: the bundle may not be what you want.", c.path, what, others)
}

// counted returns an open function for a payload. Its stream counts the bytes that are read.
func counted(open func() (io.ReadCloser, error)) func(context.Context, *progress) (io.ReadCloser, error) {
	return func(_ context.Context, p *progress) (io.ReadCloser, error) {
		r, err := open()
		if err != nil {
			return nil, err
		}
		return countedBy(p, r), nil
	}
}

func countedBy(p *progress, r io.ReadCloser) io.ReadCloser {
	return &countedStream{Reader: io.TeeReader(r, p), Closer: r}
}

type countedStream struct {
	io.Reader
	io.Closer
}

// pipe is a stream that a goroutine writes while it is read.
type pipe struct {
	*io.PipeReader
	writer sync.WaitGroup
	after  func()
}

// piped returns the stream that write writes. Its error is the stream's.
func piped(write func(io.Writer) error) *pipe {
	r, w := io.Pipe()
	p := &pipe{PipeReader: r}
	p.writer.Go(func() { w.CloseWithError(write(w)) })
	return p
}

// Close ends the writing.
func (p *pipe) Close() error {
	err := p.PipeReader.Close()
	p.writer.Wait()
	if p.after != nil {
		p.after()
	}
	return err
}
