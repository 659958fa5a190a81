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

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/tarstream"
)

// downloadCommand is bundle_cli.py: do_download_command.
func (c *cli) downloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "download <bundle>[/<path>]",
		Aliases: []string{"down"},
		Short:   "Download a bundle, or a file or directory of it",
		Args:    cobra.ExactArgs(1),
	}
	worksheet := c.worksheetFlag(cmd)
	output := cmd.Flags().StringP("output-path", "o", "", "path of the download; default: its name in the current directory")
	force := cmd.Flags().BoolP("force", "f", false, "replace an existing file or directory")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		at, target, err := c.target(cmd.Context(), *worksheet, args[0])
		if err != nil {
			return err
		}
		return c.download(cmd.Context(), at, target, *output, *force)
	}
	cmd.ValidArgsFunction = c.completeBundles
	return cmd
}

func (c *cli) download(ctx context.Context, at *workspace, target codalab.Target, output string, force bool) error {
	b, err := at.Bundle(ctx, target.BundleUUID)
	if err != nil {
		return err
	}
	name := b.Metadata.String("name")
	if output == "" {
		// The server chooses the name, which must not lead to another directory.
		output = path.Base("/" + name)
		if target.Subpath != "" {
			output = path.Base("/" + target.Subpath)
		}
		if output == "/" {
			output = "untitled"
		}
	}
	final, err := filepath.Abs(output)
	if err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if _, err := os.Lstat(final); !force && !errors.Is(err, fs.ErrNotExist) {
		return refusef("Local file/directory '%s' already exists.", output)
	}
	info, err := at.ContentsInfo(ctx, target, 0)
	if err != nil {
		return err
	}
	if info.Type == codalab.TargetLink {
		return refusef("Downloading symlinks is not allowed.")
	}
	if info.Resolved != nil {
		target = *info.Resolved
	}
	err = c.print(fmt.Sprintf("Downloading %s(%s)/%s => %s", name, b.UUID, target.Subpath, final))
	if err != nil {
		return err
	}
	contents, err := at.OpenContents(ctx, target, nil)
	if err != nil {
		return err
	}
	defer contents.Close() //nolint:errcheck // only read
	size := int64(-1)
	if contents.Type == codalab.TargetFile {
		size = contents.Size
	}
	progress := c.progress("Received", size)
	err = receive(ctx, contents, io.TeeReader(contents, progress), final)
	progress.end()
	return err
}

// receive writes contents to a temporary directory beside final, and renames them to final
// when they are complete. Until then an existing file stays.
func receive(ctx context.Context, contents *client.Contents, r io.Reader, final string) (err error) {
	tmp, err := os.MkdirTemp(filepath.Dir(final), "."+filepath.Base(final)+".part-*")
	if err != nil {
		return refusef("%v", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	whole := filepath.Join(tmp, "new")
	if contents.Type == codalab.TargetDirectory {
		err = receiveTree(ctx, r, whole)
	} else {
		err = receiveFile(r, whole)
	}
	if err != nil {
		return fmt.Errorf("download to %s: %w", final, err)
	}
	// A rename does not replace a directory.
	old := filepath.Join(tmp, "old")
	err = os.Rename(final, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace %s: %w", final, err)
	}
	if err := os.Rename(whole, final); err != nil {
		_ = os.Rename(old, final) // if there was one
		return fmt.Errorf("download to %s: %w", final, err)
	}
	return nil
}

func receiveFile(r io.Reader, name string) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	_, err = io.Copy(f, r)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	return nil
}

// receiveTree unpacks without limits, since the user asked for it on their own disk.
func receiveTree(ctx context.Context, r io.Reader, dir string) error {
	if err := os.Mkdir(dir, 0o777); err != nil { //nolint:gosec // as the user's umask says
		return fmt.Errorf("create: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	_, err = tarstream.Unpack(ctx, r, root, tarstream.Limits{})
	return errors.Join(err, root.Close())
}
