package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// loaded are the libraries that glibc loads itself, without a program's naming them: names of users and hosts
// (nsswitch.conf(5)), and the unwinder of a thread that is cancelled (pthread_cancel(3)).
func loaded() []string { return []string{"libnss_", "libgcc_s.so."} }

// prune removes what the programs of the tree do not load from the directories of libraries, programs of those packages
// among it. A package of Debian has all libraries of its source: that of GLib has GIO, which needs five more packages.
func (t tree) prune(triplet string) error {
	needed := map[string]bool{}
	var need func(name string) error
	need = func(name string) error {
		f, known := t[name]
		if !known || needed[name] {
			return nil
		}
		needed[name] = true
		if f.kind == tar.TypeSymlink {
			return need(merged(path.Join(path.Dir(name), f.target)))
		}
		libraries, err := f.libraries()
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		for _, l := range libraries {
			for _, dir := range []string{"usr/lib/" + triplet, "usr/lib", "usr/lib64"} {
				if err := need(path.Join(dir, l)); err != nil {
					return err
				}
			}
		}
		return nil
	}
	for name := range t {
		if !strings.HasPrefix(name, "usr/lib/") || isLoaded(name) {
			if err := need(name); err != nil {
				return err
			}
		}
	}
	maps.DeleteFunc(t, func(name string, _ file) bool {
		return strings.HasPrefix(name, "usr/lib/"+triplet+"/") && !needed[name]
	})
	return nil
}

func isLoaded(name string) bool {
	return slices.ContainsFunc(loaded(), func(prefix string) bool { return strings.HasPrefix(path.Base(name), prefix) })
}

// libraries returns the names of the libraries that a program or library loads, its interpreter among them (elf(5):
// DT_NEEDED, PT_INTERP). Another file has none.
func (f file) libraries() ([]string, error) {
	if !bytes.HasPrefix(f.content, []byte(elf.ELFMAG)) {
		return nil, nil
	}
	binary, err := elf.NewFile(bytes.NewReader(f.content))
	if err != nil {
		return nil, err
	}
	all, err := binary.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	for _, p := range binary.Progs {
		if p.Type == elf.PT_INTERP {
			interpreter := make([]byte, p.Filesz)
			if _, err := p.ReadAt(interpreter, 0); err != nil {
				return nil, err
			}
			all = append(all, path.Base(strings.TrimRight(string(interpreter), "\x00")))
		}
	}
	return all, nil
}
