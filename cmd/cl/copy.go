package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

type copyOptions struct {
	// dependencies also copies the bundle's dependencies.
	dependencies bool
	// add shows the bundle on the destination worksheet.
	add bool
	// killed also copies runs that were killed, which CodaLab's cl does not.
	killed bool
}

// copySource has bundles to copy: a server, or an exported worksheet.
type copySource interface {
	Bundle(ctx context.Context, uuid string, include ...string) (client.BundleInfo, error)
	OpenContents(ctx context.Context, t codalab.Target, r *client.Range) (*client.Contents, error)
}

// copyBundle copies a bundle to another server unless that has it, and adds it to a worksheet there if
// o.add is set (bundle_cli.py: copy_bundle). An interrupted copy leaves the bundle in state uploading, and
// the next call resumes it, because cl-server never reuses an id.
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
	if from.Address() != to.Address() {
		added, err := c.copyUnlessPresent(ctx, from, uuid, to, worksheet, o)
		if err != nil || added {
			return err
		}
	} else if _, err := to.Bundle(ctx, uuid); err != nil {
		return err
	}
	if !o.add {
		return nil
	}
	return to.AddItems(ctx, worksheet, []client.Item{bundleItem(uuid)}, false)
}

// copyUnlessPresent copies a bundle to another server unless that has it. It reports whether the worksheet shows the
// bundle already, or cannot show it.
func (c *cli) copyUnlessPresent(ctx context.Context, from copySource, uuid string, to *workspace, worksheet string, o copyOptions) (done bool, err error) {
	there, err := to.Bundle(ctx, uuid)
	begun := err == nil && there.State == codalab.StateUploading
	failed := err == nil && there.UploadFailure() != ""
	if err != nil && !isNotFound(err) || err == nil && !begun && !failed {
		return false, err
	}
	b, err := from.Bundle(ctx, uuid)
	switch {
	case err != nil && !isNotFound(err):
		return false, err
	case err != nil, b.Type == codalab.TypePrivate:
		return true, c.printUnlessJSON("Unable to read bundle %s", uuid)
	}
	if failed && !begun {
		return false, c.warnBroken(ctx, there.Bundle, b.Bundle, to)
	}
	if begun {
		me, err := to.User(ctx)
		if err != nil {
			return false, err
		}
		if !sameUpload(there.Bundle, b.Bundle, me.ID) {
			c.warn("Another upload of %s is under way at %s: the bundle is shown, and not copied.", bundleText(b.Bundle), to.Address())
			return false, nil
		}
	}
	return c.copyMissing(ctx, from, b, to, worksheet, o, begun)
}

// warnBroken says so if a server has no contents of a bundle, as an upload of it broke off.
func (c *cli) warnBroken(ctx context.Context, there, b codalab.Bundle, to *workspace) error {
	if !brokenUpload(there, b) {
		return nil
	}
	keeps, err := keepsUUIDs(ctx, to)
	if err != nil {
		return err
	}
	advice := "cl rm " + b.UUID + " removes it there, and the same command copies it again."
	if keeps {
		advice = "cl-server gives no uuid out twice: cl export and cl import --new-uuids make copies."
	}
	c.warn("An earlier upload of %s has failed at %s: the bundle there has no contents. %s", bundleText(b), to.Address(), advice)
	return nil
}

// keepsUUIDs reports whether a server is a cl-server, which never reuses a uuid. CodaLab's own does.
func keepsUUIDs(ctx context.Context, at *workspace) (bool, error) {
	_, err := at.Queues(ctx)
	if errors.Is(err, errors.ErrUnsupported) {
		return false, nil
	}
	return err == nil, err
}

// brokenUpload reports whether a server has no contents of a bundle, as an upload of it broke off. A server makes such a
// bundle failed, and takes no other contents (codalab/rest/bundles.py: _update_bundle_contents_blob).
func brokenUpload(there, b codalab.Bundle) bool {
	return there.State == codalab.StateFailed && there.UploadFailure() != "" && b.UploadFailure() == ""
}

// sameUpload reports whether an upload that has begun on a server is one of a bundle by a user. An upload by others, or of
// something else, gets other bytes.
func sameUpload(there, b codalab.Bundle, owner string) bool {
	return there.OwnerID == owner && there.Type == b.Type && there.Metadata.String("name") == b.Metadata.String("name") &&
		there.CommandText() == b.CommandText() && slices.Equal(inputKeys(there.Dependencies), inputKeys(b.Dependencies))
}

// inputKeys tell whether two bundles have the same dependencies, in any order.
func inputKeys(inputs []codalab.Dependency) []string {
	var keys []string
	for _, in := range inputs {
		keys = append(keys, fmt.Sprintf("%q %q %q", in.ChildPath, in.ParentUUID, in.ParentPath))
	}
	slices.Sort(keys)
	return keys
}

// copyMissing is copyUnlessPresent for a bundle that the other server does not have, or of which the same upload has begun there.
func (c *cli) copyMissing(ctx context.Context, from copySource, b client.BundleInfo, to *workspace, worksheet string, o copyOptions, begun bool) (done bool, err error) {
	if b.State != codalab.StateReady && b.State != codalab.StateFailed && (!o.killed || b.State != codalab.StateKilled) {
		return true, c.printUnlessJSON("Not copying %s because it has non-final state %s", bundleText(b.Bundle), pythonState(b.State))
	}
	if err := c.printUnlessJSON("Copying %s...", bundleText(b.Bundle)); err != nil {
		return false, err
	}
	if !begun {
		metadata := maps.Clone(b.Metadata)
		delete(metadata, codalab.SecretsKey) // names of secrets on the other server
		copied := client.NewBundle{
			UUID: b.UUID, Worksheet: worksheet, Type: b.Type, Metadata: metadata, Dependencies: b.Dependencies,
			WaitForUpload: true, Detached: !o.add, Command: b.CommandText(), Platform: b.Platform.Copied(),
		}
		made, err := to.CreateBundle(ctx, copied)
		if err != nil {
			return false, err
		}
		c.noteReaders(ctx, to, made)
	}
	if err := c.sendCopy(ctx, from, b, to); err != nil {
		c.warn("The copy of %s is not complete: the same command goes on with it, and cl rm %s removes it.", bundleText(b.Bundle), b.UUID)
		return false, err
	}
	return !begun, nil
}

// sendCopy sends a bundle's contents to another server, which has the bundle in state uploading.
func (c *cli) sendCopy(ctx context.Context, from copySource, b client.BundleInfo, to *workspace) error {
	o := client.UploadOptions{Finalize: true, State: b.State, Retry: true}
	contents, err := from.OpenContents(ctx, codalab.Target{BundleUUID: b.UUID}, nil)
	switch {
	case isNotFound(err):
		return to.UploadContents(ctx, b.UUID, o, nil)
	case err != nil:
		return err
	}
	o.Filename = b.Metadata.String("name")
	size := contents.Size
	if contents.Type == codalab.TargetDirectory {
		o.Filename, o.Unpack, size = o.Filename+".tar.gz", true, -1
	}
	progress := c.progress("Copied", size)
	err = to.UploadContents(ctx, b.UUID, o, io.TeeReader(contents, progress))
	progress.end()
	return errors.Join(err, contents.Close())
}
