package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
)

// createLink creates a bundle for data that stays in its place. Like CodaLab's own cl it
// accepts a path that this machine does not have, because only the machines that run commands
// need the data; it prints a warning then.
func (u *upload) createLink(ctx context.Context, worksheet string) error {
	path, err := filepath.Abs(strings.TrimPrefix(u.paths[0], "file://"))
	if err != nil {
		return fmt.Errorf("link %s: %w", u.paths[0], err)
	}
	u.paths[0] = path
	u.metadata["link_url"], u.metadata["link_format"] = path, "raw" // codalab/worker/bundle_state.py: LinkFormat
	at, sheet, err := u.prepareMetadata(ctx, worksheet)
	if err != nil {
		return err
	}
	uuid, err := u.create(ctx, at, client.NewBundle{Worksheet: sheet, Type: codalab.TypeDataset, Metadata: u.metadata})
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		u.warn("%s is not on this machine: it must be on the machines where runs use it.", path)
	}
	return u.printUUID(uuid)
}

func (u *upload) checkLink() error {
	switch {
	case u.isText:
		return refusef("A text cannot be linked: -c and --link exclude each other.")
	case len(u.paths) != 1:
		return refusef("Only a single path can be uploaded when using --link.")
	case len(u.exclude) > 0 || u.ignore != "" || u.pack:
		return refusef("With --link the data stays as it is: -x, -i and -p cannot be used.")
	case u.git || strings.Contains(strings.TrimPrefix(u.paths[0], "file://"), "://"):
		return refusef("%s: only a path can be linked, not a URL.", u.paths[0])
	case u.paths[0] == standardInput:
		return refusef("Standard input (-) cannot be linked.")
	}
	return nil
}
