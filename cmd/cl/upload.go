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
	"sync"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

const uploadHelp = `Create a bundle from a file or a directory, and print its uuid.

  cl upload <path>      a file, or a directory with all of its contents
  cl upload <path>...   a directory of these files and directories
  cl upload -c <text>   a file with this text
  cl upload -l <path>   data that stays where it is: runs read it in place

The server unpacks an archive (.tar.gz, .tgz, .tar.bz2, .zip, .gz, .bz2), unless
-p is given. With -l cl sends nothing and copies nothing: the path must exist on
the machines where runs are, not necessarily on this one.`

// uploadCommand is bundle_cli.py: do_upload_command.
func (c *cli) uploadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "upload <path>... | -c <text> | -l <path>",
		Aliases: []string{"up"},
		Short:   "Create a bundle from a file or a directory",
		Long:    uploadHelp,
	}
	var u upload
	u.cli = c
	worksheet := c.worksheetFlag(cmd)
	cmd.Flags().StringVarP(&u.text, "contents", "c", "", "the text of the bundle")
	cmd.Flags().BoolVarP(&u.pack, "pack", "p", false, "keep an archive as it is")
	exclude := wordsFlag(cmd.Flags(), "exclude-patterns", "x", "leave out files with matching names")
	cmd.Flags().BoolVarP(&u.link, "link", "l", false, "send nothing: the bundle is a link to the path")
	metadata := metadataFlags(cmd.Flags(), codalab.TypeDataset, "link_url", "link_format", "store")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		u.paths, u.metadata, u.exclude = args, metadata(), exclude.list
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

// payload is the stream to send. The ending of its name tells the server whether it is an
// archive.
type payload struct {
	name   string
	unpack bool
	// size is the stream's size, -1 if unknown.
	size int64
	open func(ctx context.Context) (io.ReadCloser, error)
}

func (u *upload) run(ctx context.Context, worksheet string) error {
	if u.link {
		return u.createLink(ctx, worksheet)
	}
	p, err := u.prepare()
	if err != nil {
		return err
	}
	at, sheet, err := u.prepareMetadata(ctx, worksheet)
	if err != nil {
		return err
	}
	// Open before creating a bundle, so that a local error leaves no bundle behind.
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
		Filename: p.name, Unpack: p.unpack, Finalize: true,
	}, io.TeeReader(body, progress))
	progress.end()
	if err != nil {
		return fmt.Errorf("%w (bundle %s was created, but has no contents)", explain(err), b.UUID)
	}
	return u.printUUID(b.UUID)
}

// prepareMetadata completes and checks the metadata, and returns the worksheet that gets the
// bundle.
func (u *upload) prepareMetadata(ctx context.Context, worksheet string) (*workspace, string, error) {
	name := u.metadata.String("name")
	if name == "" {
		name = u.defaultName()
	}
	if !u.pack && !u.isText {
		name = strings.TrimSuffix(name, archiveExt(name))
	}
	u.metadata["name"] = name
	if err := codalab.CheckMetadata(codalab.TypeDataset, u.metadata, true); err != nil {
		return nil, "", usagef("%v", err)
	}
	return u.openWorksheet(ctx, worksheet)
}

// prepare returns the payload, after checking that it can be read.
func (u *upload) prepare() (payload, error) {
	switch {
	case u.isText && len(u.paths) > 0:
		return payload{}, usagef("Upload does not support mixing content strings and paths.")
	case u.isText:
		return payload{name: "contents", size: int64(len(u.text)), open: func(context.Context) (io.ReadCloser, error) {
			return io.NopCloser(strings.NewReader(u.text)), nil
		}}, nil
	case len(u.paths) == 0:
		return payload{}, usagef("Nothing to upload.")
	}
	for i, p := range u.paths {
		if strings.Contains(p, "://") {
			return payload{}, usagef("%s: uploading from a URL is not supported; download it first", p)
		}
		absolute, err := filepath.Abs(p)
		if err != nil {
			return payload{}, fmt.Errorf("upload %s: %w", p, err)
		}
		u.paths[i] = absolute
	}
	if len(u.paths) > 1 {
		return u.preparePaths()
	}
	return u.preparePath(u.paths[0])
}

func (u *upload) preparePath(name string) (payload, error) {
	info, err := os.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return payload{}, usagef("upload got non-existent path: %s", name)
	case err != nil:
		return payload{}, fmt.Errorf("upload: %w", err)
	case info.Mode().Type() == fs.ModeSymlink:
		return payload{}, usagef("Not following symlinks: %s", name)
	case info.IsDir():
		return payload{
			name: filepath.Base(name) + ".tar.gz", unpack: true, size: -1,
			open: u.packed(name, nil),
		}, nil
	case !info.Mode().IsRegular():
		return payload{}, usagef("%s is neither a file nor a directory", name)
	}
	return payload{
		name: filepath.Base(name), unpack: !u.pack && archiveExt(name) != "", size: info.Size(),
		open: func(context.Context) (io.ReadCloser, error) {
			f, err := os.Open(name)
			if err != nil {
				return nil, refusef("%v", err)
			}
			return f, nil
		},
	}, nil
}

// preparePaths prepares several paths, which must be in one directory: cl packs one directory.
func (u *upload) preparePaths() (payload, error) {
	dir := filepath.Dir(u.paths[0])
	names := map[string]bool{}
	for _, p := range u.paths {
		if _, err := u.preparePath(p); err != nil {
			return payload{}, err
		}
		if filepath.Dir(p) != dir {
			return payload{}, usagef("Several paths must lie in one directory: %s and %s do not.", u.paths[0], p)
		}
		names[filepath.Base(p)] = true
	}
	return payload{name: "contents.tar.gz", unpack: true, size: -1, open: u.packed(dir, names)}, nil
}

// packed returns a function that opens dir as an archive, which is packed while it is read:
// the entries in only, or all of them if that is nil.
func (u *upload) packed(dir string, only map[string]bool) func(context.Context) (io.ReadCloser, error) {
	return func(ctx context.Context) (io.ReadCloser, error) {
		root, err := os.OpenRoot(dir)
		if err != nil {
			return nil, refusef("%v", err)
		}
		r, w := io.Pipe()
		archive := &packing{PipeReader: r}
		archive.packer.Go(func() {
			err := tarstream.Pack(ctx, w, root, ".", tarstream.PackOptions{
				Exclude: func(below string, _ fs.DirEntry) bool {
					top, _, _ := strings.Cut(below, "/")
					return only != nil && !only[top] || u.excluded(below)
				},
			})
			w.CloseWithError(errors.Join(err, root.Close()))
		})
		return archive, nil
	}
}

// packing is an archive that a goroutine packs.
type packing struct {
	*io.PipeReader
	packer sync.WaitGroup
}

// Close ends the packing.
func (p *packing) Close() error {
	err := p.PipeReader.Close()
	p.packer.Wait()
	return err
}

// excluded reports whether a pattern excludes a file. As with tar's --exclude a pattern matches
// the end of a path.
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

// defaultName joins the names of the uploaded files (codalab/lib/metadata_defaults.py:
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

// archiveExt is the ending of an archive's name, or empty (codalab/lib/zip_util.py:
// ARCHIVE_EXTS).
func archiveExt(name string) string {
	for _, ext := range []string{".tar.gz", ".tgz", ".tar.bz2", ".zip", ".gz", ".bz2"} {
		if strings.HasSuffix(name, ext) {
			return ext
		}
	}
	return ""
}
