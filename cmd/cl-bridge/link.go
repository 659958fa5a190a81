package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/internal/sqldb"
	"github.com/cl-slurm/cl-slurm/spool"
	"github.com/cl-slurm/cl-slurm/staging"
)

// machine are the parts of every host that are nobody's data.
func machine() []string { return []string{"/proc", "/sys", "/dev", "/run"} }

func (l linkConfig) check(shared string) error {
	if l.Root == "" {
		return errors.New("[[link]]: root is missing: a directory whose data bundles may use in place")
	}
	if err := checkRoot("[[link]]: root", l.Root, shared); err != nil {
		return err
	}
	if slices.Contains(l.Users, "") {
		return fmt.Errorf("[[link]]: root = %q: users has an empty name", l.Root)
	}
	return nil
}

// checkRoot refuses a directory, configured as what, in which bundles may not use
// anything.
func checkRoot(what, given, shared string) error {
	root := filepath.Clean(given)
	switch {
	case !filepath.IsAbs(root):
		return fmt.Errorf("%s = %q: want an absolute path", what, given)
	case root == "/":
		return fmt.Errorf("%s = \"/\": list the directories that hold data, not the whole machine", what)
	case below(root, shared):
		return fmt.Errorf("%s = %q lies in the bridge's own directory %s", what, given, shared)
	}
	for _, dir := range machine() {
		if below(root, dir) {
			return fmt.Errorf("%s = %q: there is no data in %s", what, given, dir)
		}
	}
	return nil
}

// below says whether a path is dir or lies in it.
func below(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && filepath.IsLocal(rel)
}

// serverStore is the server's own store; nil where the bridge does not share
// its disk.
func serverStore(c config) *staging.ServerStore {
	if c.ServerStore == "" {
		return nil
	}
	return &staging.ServerStore{Dir: filepath.Clean(c.ServerStore)}
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
func inPlace(c config, cl *client.Client, layout spool.Layout, now func() time.Time) *staging.InPlace {
	if len(c.Link) == 0 {
		return nil
	}
	p := &staging.InPlace{Hidden: c.hidden(), Catalog: cl, Records: layout.Link, Now: now}
	for _, l := range c.Link {
		p.Roots = append(p.Roots, staging.LinkRoot{Path: filepath.Clean(l.Root), Users: l.Users})
	}
	return p
}

// imageFiles are the SIFs that bundles run in where they lie; nil where the site
// lists no directory.
func imageFiles(c config, links *staging.InPlace) *staging.ImageFiles {
	if len(c.Image.Roots) == 0 && links == nil {
		return nil
	}
	return &staging.ImageFiles{Roots: c.Image.Roots, Hidden: c.hidden(), InPlace: links, Records: spool.Layout(c.Shared).ImageFiles()}
}

// hidden are the bridge's own files and directories, and those of every host that
// are nobody's data.
func (c config) hidden() []string {
	own := []string{c.Shared, c.PasswordFile, c.path}
	for _, dir := range []string{c.ServerStore, c.Cache.Dir} {
		if dir != "" {
			own = append(own, dir)
		}
	}
	if !sqldb.IsURL(c.Ledger) {
		own = append(own, c.Ledger, c.Ledger+"-wal", c.Ledger+"-shm", c.Ledger+".lock")
	}
	hidden := machine()
	for _, path := range own {
		if absolute, err := filepath.Abs(path); err == nil {
			hidden = append(hidden, absolute)
		}
	}
	return hidden
}
