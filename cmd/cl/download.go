package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/diskspace"
)

const downloadHelp = `Download a bundle, or a file or directory of it.

If the connection breaks, cl tries again for a minute. The download of a single
file of a bundle that has ended continues at the break, also in a later call:
until then its part is in a hidden file in the same directory. A directory
begins anew. The path of the download appears when the download is complete.`

// downloadCommand is bundle_cli.py: do_download_command.
func (c *cli) downloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "download <bundle>[/<path>]",
		Aliases: []string{"down"},
		Short:   "Download a bundle, or a file or directory of it",
		Long:    downloadHelp,
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

// download is one call of `cl download`.
type download struct {
	*cli
	at *workspace
	// target is the path after the server resolved it; it may be in another bundle.
	target codalab.Target
	info   codalab.TargetInfo
	// final is the absolute path of the download.
	final string
	force bool
	// steady means that the contents cannot change any more.
	steady bool
}

// downloaded is a download in JSON.
type downloaded struct {
	UUID    string             `json:"uuid"`
	Subpath string             `json:"subpath"`
	Path    string             `json:"path"`
	Type    codalab.TargetType `json:"type"`
	// Size is the total size of all files in bytes.
	Size int64 `json:"size"`
}

func (c *cli) download(ctx context.Context, at *workspace, target codalab.Target, output string, force bool) error {
	b, err := at.Bundle(ctx, target.BundleUUID)
	if err != nil {
		return err
	}
	name := b.Metadata.String("name")
	if output == "" {
		output = localName(name, target.Subpath)
	}
	d := download{cli: c, at: at, target: target, force: force}
	if d.final, err = filepath.Abs(output); err != nil {
		return fmt.Errorf("download: %w", err)
	}
	if err := d.checkFree(output); err != nil {
		return err
	}
	if err := d.describe(ctx, b.Bundle); err != nil {
		return err
	}
	if !c.asJSON {
		err := c.print(fmt.Sprintf("Downloading %s(%s)/%s => %s", name, b.UUID, target.Subpath, d.final))
		if err != nil {
			return err
		}
	}
	var size int64
	if d.info.Type == codalab.TargetDirectory {
		size, err = d.directory(ctx)
	} else {
		size, err = d.file(ctx)
	}
	if err != nil || !c.asJSON {
		return err
	}
	return c.printJSON(downloaded{b.UUID, target.Subpath, d.final, d.info.Type, size})
}

// localName returns the local name of a download. The server chooses it, so it must not lead to
// another directory.
func localName(bundleName, subpath string) string {
	name := path.Base("/" + bundleName)
	if subpath != "" {
		name = path.Base("/" + subpath)
	}
	if name == "/" || name == "." || name == ".." {
		return "untitled"
	}
	return name
}

// checkFree fails if the destination exists and --force is not set.
func (d *download) checkFree(output string) error {
	if _, err := os.Lstat(d.final); !d.force && !errors.Is(err, fs.ErrNotExist) {
		return refusef("Local file/directory '%s' already exists.", output)
	}
	return nil
}

// describe gets the target's type and size from the server.
func (d *download) describe(ctx context.Context, b codalab.Bundle) error {
	info, err := d.at.ContentsInfo(ctx, d.target, 0)
	if err != nil {
		return err
	}
	if info.Type == codalab.TargetLink {
		return refusef("Downloading symlinks is not allowed.")
	}
	d.info = info
	if info.Resolved != nil {
		d.target = *info.Resolved
	}
	if d.target.BundleUUID != b.UUID {
		parent, err := d.at.Bundle(ctx, d.target.BundleUUID)
		if err != nil {
			return err
		}
		b = parent.Bundle
	}
	d.steady = b.State.Final() && b.Metadata.String("link_url") == ""
	return nil
}

// checkDisk fails if the disk has too little room.
func (d *download) checkDisk(need int64) error {
	dir := filepath.Dir(d.final)
	if space, err := diskspace.Of(dir); err == nil && space.Free < need {
		return refusef("%s more are needed, but the disk of %s has only %s free: free some, or choose another path with -o.",
			codalab.FormatSize(need), dir, codalab.FormatSize(space.Free))
	}
	return nil
}

// moveToDestination moves the complete download to its destination and replaces an existing file or directory.
// old is an unused path on the same disk.
func (d *download) moveToDestination(whole, old string) error {
	if err := d.checkFree(d.final); err != nil {
		return err
	}
	err := os.Rename(d.final, old) // since a rename replaces no directory
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("replace %s: %w", d.final, err)
	}
	if err := os.Rename(whole, d.final); err != nil {
		_ = os.Rename(old, d.final) // if there was one
		return fmt.Errorf("download to %s: %w", d.final, err)
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("remove what the download has replaced: %w", err)
	}
	return nil
}
