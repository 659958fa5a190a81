package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

const uploadHelp = `Make a bundle of a file or a directory, and print its uuid.

  cl upload <path>      a file, or a directory with all that is in it
  cl upload <path>...   a directory that holds these files and directories
  cl upload -c <text>   a file with this text
  cl upload -l <path>   data that stays where it is: runs read it in place

An archive (.tar.gz, .tgz, .tar.bz2, .zip, .gz, .bz2) is unpacked, unless -p is
given. With -l nothing is sent: the path is that on the machines where runs
are, which need not be this one, and what is there is not copied.`

// uploadCommand is bundle_cli.py: do_upload_command.
func (c *cli) uploadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "upload <path>... | -c <text> | -l <path>",
		Aliases: []string{"up"},
		Short:   "Make a bundle of a file or a directory",
		Long:    uploadHelp,
	}
	var u upload
	u.cli = c
	worksheet := worksheetFlag(cmd)
	cmd.Flags().StringVarP(&u.text, "contents", "c", "", "the text of the bundle")
	cmd.Flags().BoolVarP(&u.pack, "pack", "p", false, "keep an archive as it is")
	cmd.Flags().StringArrayVarP(&u.exclude, "exclude-patterns", "x", nil, "leave out files whose names match (several words)")
	cmd.Flags().BoolVarP(&u.link, "link", "l", false, "send nothing: the bundle is what lies at the path")
	metadata := metadataFlags(cmd.Flags(), codalab.TypeDataset, "link_url", "link_format", "store")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		u.paths, u.metadata = args, metadata()
		u.isText = cmd.Flags().Changed("contents")
		return u.run(cmd.Context(), *worksheet)
	}
	return cmd
}

// upload is one call of `cl upload`.
type upload struct {
	*cli
	paths    []string
	text     string
	isText   bool
	pack     bool
	link     bool
	exclude  []string
	metadata codalab.Metadata
}

// parcel is what is sent: a stream, under a name that tells its kind.
type parcel struct {
	name   string
	unpack bool
	// size is that of the stream, or -1 where it is not known beforehand.
	size int64
	open func(ctx context.Context) (io.ReadCloser, error)
}

func (u *upload) run(ctx context.Context, worksheet string) error {
	if u.link {
		return u.linked(ctx, worksheet)
	}
	p, err := u.prepare()
	if err != nil {
		return err
	}
	at, sheet, err := u.describe(ctx, worksheet)
	if err != nil {
		return err
	}
	// What can go wrong here has: from now on there is a bundle.
	body, err := p.open(ctx)
	if err != nil {
		return err
	}
	defer body.Close() //nolint:errcheck // only read
	b, err := at.CreateBundle(ctx, client.NewBundle{
		Worksheet: sheet, Type: codalab.TypeDataset, Metadata: u.metadata, WaitForUpload: !u.isText,
	})
	if err != nil {
		return err
	}
	progress := u.progress("Sent", p.size)
	err = at.UploadContents(ctx, b.UUID, client.UploadOptions{
		Filename: p.name, Unpack: p.unpack,
		StateOnSuccess: codalab.StateReady, FinalizeOnSuccess: true, FinalizeOnFailure: true,
	}, io.TeeReader(body, progress))
	progress.end()
	if err != nil {
		return fmt.Errorf("%w (the bundle %s was made, but has no contents)", explain(err), b.UUID)
	}
	return u.print(b.UUID)
}

// describe completes and checks the metadata, and finds the worksheet that the bundle is put
// on.
func (u *upload) describe(ctx context.Context, worksheet string) (at *place, sheet string, err error) {
	name := u.metadata.String("name")
	if name == "" {
		name = u.defaultName()
	}
	if !u.pack && !u.isText {
		name = strings.TrimSuffix(name, archiveExt(name))
	}
	u.metadata["name"] = name
	if err := codalab.CheckMetadata(codalab.TypeDataset, u.metadata, true); err != nil {
		return nil, "", usageError(err.Error())
	}
	if at, err = u.place(worksheet); err != nil {
		return nil, "", err
	}
	sheet, err = at.worksheet(ctx)
	return at, sheet, err
}

// prepare finds out what to send, and that it can be read.
func (u *upload) prepare() (parcel, error) {
	switch {
	case u.isText && len(u.paths) > 0:
		return parcel{}, usageError("Upload does not support mixing content strings and paths.")
	case u.isText:
		return parcel{name: "contents", size: int64(len(u.text)), open: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(u.text)), nil
		}}, nil
	case len(u.paths) == 0:
		return parcel{}, usageError("Nothing to upload.")
	}
	for i, p := range u.paths {
		if strings.Contains(p, "://") {
			return parcel{}, usagef("%s: uploading from a URL is not supported; download it first", p)
		}
		absolute, err := filepath.Abs(p)
		if err != nil {
			return parcel{}, fmt.Errorf("upload %s: %w", p, err)
		}
		u.paths[i] = absolute
	}
	if len(u.paths) > 1 {
		return u.several()
	}
	return u.one(u.paths[0])
}

func (u *upload) one(name string) (parcel, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return parcel{}, usagef("upload got non-existent path: %s", name)
	case err != nil:
		return parcel{}, fmt.Errorf("upload: %w", err)
	case info.Mode().Type() == fs.ModeSymlink:
		return parcel{}, usagef("Not following symlinks: %s", name)
	case info.IsDir():
		return parcel{
			name: filepath.Base(name) + ".tar.gz", unpack: true, size: -1,
			open: u.packed(name, nil),
		}, nil
	case !info.Mode().IsRegular():
		return parcel{}, usagef("%s is neither a file nor a directory", name)
	}
	return parcel{
		name: filepath.Base(name), unpack: !u.pack && archiveExt(name) != "", size: info.Size(),
		open: func(context.Context) (io.ReadCloser, error) {
			f, err := os.Open(name)
			if err != nil {
				return nil, usageError(err.Error())
			}
			return f, nil
		},
	}, nil
}

// several packs paths that lie in one directory, which is all that can be packed as it is
// read.
func (u *upload) several() (parcel, error) {
	dir := filepath.Dir(u.paths[0])
	names := map[string]bool{}
	for _, p := range u.paths {
		if _, err := u.one(p); err != nil {
			return parcel{}, err
		}
		if filepath.Dir(p) != dir {
			return parcel{}, usagef("Several paths must lie in one directory: %s and %s do not.", u.paths[0], p)
		}
		names[filepath.Base(p)] = true
	}
	return parcel{name: "contents.tar.gz", unpack: true, size: -1, open: u.packed(dir, names)}, nil
}

// packed returns what opens dir as an archive that is made while it is read, of the entries in
// only, or all where that is nil.
func (u *upload) packed(dir string, only map[string]bool) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, usageError(err.Error())
		}
		r, w := io.Pipe()
		go func() { // ends when its reader is closed
			err := tarstream.Pack(ctx, w, root, ".", tarstream.PackOptions{
				Exclude: func(below string, _ fs.DirEntry) bool {
					top, _, _ := strings.Cut(below, "/")
					return only != nil && !only[top] || u.excluded(below)
				},
			})
			w.CloseWithError(errors.Join(err, root.Close()))
		}()
		return r, nil
	}
}

// excluded says whether a pattern leaves a file out, as tar's --exclude does: by its name, or
// by the end of its path.
func (u *upload) excluded(below string) bool {
	return slices.ContainsFunc(u.exclude, func(pattern string) bool {
		rest := below
		for {
			if ok, err := path.Match(pattern, rest); ok && err == nil {
				return true
			}
			var more bool
			if _, rest, more = strings.Cut(rest, "/"); !more {
				return false
			}
		}
	})
}

// defaultName joins the names of what is uploaded (codalab/lib/ metadata_defaults.py:
// get_default_name).
func (u *upload) defaultName() string {
	if u.isText {
		return "contents"
	}
	var names []string
	for _, p := range u.paths {
		names = append(names, filepath.Base(p))
	}
	return defaultName(codalab.TypeDataset, strings.Join(names, "-"))
}

// archiveExt is the ending that makes a file an archive, or nothing (codalab/lib/zip_util.py:
// ARCHIVE_EXTS).
func archiveExt(name string) string {
	for _, ext := range []string{".tar.gz", ".tgz", ".tar.bz2", ".zip", ".gz", ".bz2"} {
		if strings.HasSuffix(name, ext) {
			return ext
		}
	}
	return ""
}
