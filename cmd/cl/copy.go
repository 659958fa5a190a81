package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

type copyOptions struct {
	// dependencies also copies the bundle's dependencies.
	dependencies bool
	// add shows the bundle on the destination worksheet.
	add bool
}

// copyBundle makes sure that a bundle is on another server, and shows it on a worksheet there if that is
// asked for (bundle_cli.py: copy_bundle).
func (c *cli) copyBundle(ctx context.Context, from *workspace, uuid string, to *workspace, worksheet string, o copyOptions) error {
	if o.dependencies {
		b, err := from.Bundle(ctx, uuid)
		if err != nil {
			return err
		}
		for _, d := range b.Dependencies {
			if err := c.copyBundle(ctx, from, d.ParentUUID, to, worksheet, copyOptions{add: o.add}); err != nil {
				return err
			}
		}
	}
	_, err := to.Bundle(ctx, uuid)
	switch {
	case err == nil && o.add:
		return to.AddItems(ctx, worksheet, []client.Item{bundleItem(uuid)}, false)
	case err == nil || !isNotFound(err):
		return err
	case from.Address() == to.Address():
		return err
	}
	b, err := from.Bundle(ctx, uuid)
	switch {
	case err != nil:
		return err
	case b.Type == codalab.TypePrivate:
		return c.say("Unable to read bundle %s", uuid)
	case b.State != codalab.StateReady && b.State != codalab.StateFailed:
		return c.say("Not copying %s because it has non-final state %s", bundleText(b.Bundle), pythonState(b.State))
	}
	if err := c.say("Copying %s...", bundleText(b.Bundle)); err != nil {
		return err
	}
	return c.sendCopy(ctx, from, b, to, worksheet, o)
}

// sendCopy creates a bundle of another server with its id and its contents.
func (c *cli) sendCopy(ctx context.Context, from *workspace, b client.BundleInfo, to *workspace, worksheet string, o copyOptions) error {
	copied := client.NewBundle{
		UUID: b.UUID, Worksheet: worksheet, Type: b.Type, Metadata: b.Metadata, Dependencies: b.Dependencies,
		WaitForUpload: true, Detached: !o.add,
	}
	if b.Command != nil {
		copied.Command = *b.Command
	}
	if _, err := to.CreateBundle(ctx, copied); err != nil {
		return err
	}
	contents, err := from.OpenContents(ctx, codalab.Target{BundleUUID: b.UUID}, nil)
	switch {
	case isNotFound(err):
		err = to.UploadContents(ctx, b.UUID, client.UploadOptions{Finalize: true, State: b.State}, nil)
	case err == nil:
		upload := client.UploadOptions{Filename: b.Metadata.String("name"), Finalize: true, State: b.State}
		size := contents.Size
		if contents.Type == codalab.TargetDirectory {
			upload.Filename, upload.Unpack, size = upload.Filename+".tar.gz", true, -1
		}
		progress := c.progress("Copied", size)
		err = to.UploadContents(ctx, b.UUID, upload, io.TeeReader(contents, progress))
		progress.end()
		err = errors.Join(err, contents.Close())
	}
	if err != nil {
		undo, done := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
		defer done()
		if _, undone := to.DeleteBundles(undo, []string{b.UUID}, client.DeleteOptions{Force: true}); undone != nil {
			return fmt.Errorf("%w (a part of %s may be at %s: cl rm %s removes it)", explain(err), b.UUID, to.Address(), b.UUID)
		}
		return err
	}
	return nil
}
