package provenance

import (
	"context"
	"fmt"
	"net/url"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// Server has the bundles.
type Server interface {
	Bundle(ctx context.Context, uuid string, include ...string) (client.BundleInfo, error)
	ContentsInfo(ctx context.Context, t codalab.Target, depth int) (codalab.TargetInfo, error)
}

// Read returns a bundle with its owner and the tags of its inputs, as far as the user of the server may read them.
func Read(ctx context.Context, from Server, uuid string) (Run, error) {
	b, err := from.Bundle(ctx, uuid, client.IncludeOwner)
	if err != nil {
		return Run{}, fmt.Errorf("read provenance: %w", err)
	}
	r := Run{Bundle: b.Bundle}
	if b.Owner != nil {
		r.Owner = b.Owner.UserName
	}
	for _, d := range b.Dependencies {
		in := Input{Dependency: d}
		parent, err := from.Bundle(ctx, d.ParentUUID)
		if err == nil {
			in.Tags = parent.Metadata.Strings("tags")
			in.File, err = isFile(ctx, from, parent.Bundle, d.ParentPath)
		}
		if err != nil && !absent(err) {
			return Run{}, fmt.Errorf("read provenance: %w", err)
		}
		r.Inputs = append(r.Inputs, in)
	}
	if r.File, err = isFile(ctx, from, r.Bundle, ""); err != nil {
		return Run{}, fmt.Errorf("read provenance: %w", err)
	}
	return r, nil
}

// absent reports whether err is that of something that is gone, or another user's.
func absent(err error) bool { return codalab.IsStatus(err, 403, 404) }

// isFile reports whether a place in a bundle that has ended is a file. Others are at workers, which may not answer.
func isFile(ctx context.Context, from Server, b codalab.Bundle, subpath string) (bool, error) {
	if !b.State.Final() {
		return false, nil
	}
	info, err := from.ContentsInfo(ctx, codalab.Target{BundleUUID: b.UUID, Subpath: subpath}, 0)
	if absent(err) {
		return false, nil
	}
	return info.Type == codalab.TargetFile, err
}

// OnServer returns a function that tells where bundles are on the server with this address.
func OnServer(address string) func(codalab.Target) Place {
	return func(t codalab.Target) Place {
		u := url.URL{Path: "/rest/bundles/" + t.BundleUUID + "/contents/blob/" + t.Subpath}
		return Place{ID: address + u.EscapedPath()}
	}
}

// Of returns the document of bundles, of which there is at least one. Their contents stay on their server, which has this
// address.
func Of(ctx context.Context, from Server, address string, uuids ...string) ([]byte, error) {
	var c *Crate
	for _, uuid := range uuids {
		r, err := Read(ctx, from, uuid)
		if err != nil {
			return nil, err
		}
		if c == nil {
			c = New(bundleName(r.Bundle), "Where bundles on "+address+" came from", OnServer(address))
		}
		c.AddRun(r)
	}
	return c.JSON()
}
