package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cl-slurm/cl-slurm/bridge/config"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging/images"
	"github.com/cl-slurm/cl-slurm/staging/inputs"
	"github.com/cl-slurm/cl-slurm/staging/results"
)

// serverStore is the server's own store; nil where the bridge does not share
// its disk.
func serverStore(c config.Config) *results.Store {
	if c.ServerStore == "" {
		return nil
	}
	return &results.Store{Dir: filepath.Clean(c.ServerStore)}
}

// mayRead fails where the server's store is configured and may not be read.
func mayRead(store string) error {
	if store == "" {
		return nil
	}
	d, err := os.Open(store)
	if err == nil {
		err = d.Close()
	}
	if err != nil {
		return fmt.Errorf("open server_store: %w", err)
	}
	return nil
}

// inPlace finds the data of links; nil where the site lists no directory.
func inPlace(c config.Config, cl *client.Client, layout spool.Layout, now func() time.Time) *inputs.Links {
	if len(c.Link) == 0 {
		return nil
	}
	p := &inputs.Links{Hidden: hidden(c), Catalog: cl, Records: layout.Link, Now: now}
	for _, l := range c.Link {
		p.Roots = append(p.Roots, inputs.LinkRoot{Path: filepath.Clean(l.Root), Users: l.Users})
	}
	return p
}

// imageFiles are the SIFs that bundles run in where they lie; nil where the site
// lists no directory.
func imageFiles(c config.Config, links *inputs.Links) *images.Files {
	if len(c.Image.Roots) == 0 && links == nil {
		return nil
	}
	files := &images.Files{Roots: c.Image.Roots, Hidden: hidden(c), Records: spool.Layout(c.Shared).ImageFiles()}
	if links != nil {
		files.OwnerRoots = links.RootsOf
	}
	return files
}

// hidden are the bridge's own files and directories, and those of every host that
// are nobody's data.
func hidden(c config.Config) []string {
	own := []string{c.Shared, c.PasswordFile, c.Path}
	for _, dir := range []string{c.ServerStore, c.Cache.Dir} {
		if dir != "" {
			own = append(own, dir)
		}
	}
	if !sqldb.IsURL(c.Ledger) {
		own = append(own, c.Ledger, c.Ledger+"-wal", c.Ledger+"-shm", c.Ledger+".lock")
	}
	hidden := config.SystemDirs()
	for _, path := range own {
		if absolute, err := filepath.Abs(path); err == nil {
			hidden = append(hidden, absolute)
		}
	}
	return hidden
}
