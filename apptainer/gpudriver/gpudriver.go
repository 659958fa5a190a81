package gpudriver

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Vendor is the vendor of a host's GPUs; empty means no GPU.
type Vendor string

// The vendors with known drivers.
const (
	NVIDIA Vendor = "nvidia"
	AMD    Vendor = "amd"
)

// Driver lists the parts of a driver on a host.
type Driver struct {
	Libraries []Library
	// Programs are paths on the host.
	Programs []string
	// Files are data, and sockets of daemons. A container must have them at the same paths, where
	// programs expect them.
	Files []File
}

// IsEmpty reports whether the host has no part of the driver that a program could use.
func (d Driver) IsEmpty() bool { return len(d.Libraries)+len(d.Programs) == 0 }

// File is a file of the host, and the absolute path at which programs expect it.
type File struct{ Path, Name string }

// Library is a shared library.
type Library struct {
	// Name is the name that programs load, such as libcuda.so.1.
	Name string
	Path string
	// Common libraries do not belong to the driver alone: an image keeps its own.
	Common bool
}

// Host is a host that may have a driver.
type Host struct {
	// Root is the directory with the host's /etc and /usr; empty means "/".
	Root string
}

// cacheFile is the dynamic linker's cache.
const cacheFile = "/etc/ld.so.cache"

// ownDirectories returns the directories of the driver on hosts whose dynamic linker has no cache,
// or one without the driver.
func ownDirectories() []string {
	return []string{"/usr/local/nvidia/lib64", "/run/opengl-driver/lib"}
}

// programDirectories returns the directories to search, in this order.
func programDirectories() []string {
	return []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin", "/opt/rocm/bin", "/usr/local/nvidia/bin", "/run/opengl-driver/bin"}
}

// Find finds the driver of a vendor's GPUs. It returns an empty Driver if the host has none, even
// if it has GPUs. An error means that the host cannot be read.
func (h Host) Find(vendor Vendor) (Driver, error) {
	var want list
	switch vendor {
	case "":
		return Driver{}, nil
	case NVIDIA:
		want = nvidia()
	case AMD:
		want = amd()
	default:
		return Driver{}, fmt.Errorf("find the driver of the GPUs: %q is not a known vendor", vendor)
	}
	libraries, err := h.libraries(want)
	if err != nil {
		return Driver{}, fmt.Errorf("find the driver of the GPUs: %w", err)
	}
	return Driver{Libraries: libraries, Programs: h.programs(want.programs), Files: h.files(want.files)}, nil
}

func (h Host) at(name string) string { return filepath.Join("/", h.Root, name) }

func (h Host) files(names []string) []File {
	var found []File
	for _, name := range names {
		info, err := os.Stat(h.at(name))
		if err == nil && (info.Mode().IsRegular() || info.Mode().Type() == fs.ModeSocket) {
			found = append(found, File{Path: h.at(name), Name: name})
		}
	}
	return found
}

// libraries finds the libraries of a list. Like the linker, it uses the first library of a name
// that is made for this machine.
func (h Host) libraries(want list) ([]Library, error) {
	known, err := h.known()
	if err != nil {
		return nil, err
	}
	own, err := readHeader("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	var found []Library
	for _, c := range known {
		lib := Library{Name: c.name, Path: h.at(c.path), Common: isListed(want.common, c.name)}
		if !lib.Common && !isListed(want.libraries, c.name) {
			continue
		}
		if slices.ContainsFunc(found, func(l Library) bool { return l.Name == c.name }) {
			continue
		}
		if header, err := readHeader(lib.Path); err == nil && header == own {
			found = append(found, lib)
		}
	}
	slices.SortFunc(found, func(a, b Library) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// known lists the libraries that a program of the host would find, followed by those in
// ownDirectories.
func (h Host) known() ([]cached, error) {
	data, err := os.ReadFile(h.at(cacheFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the dynamic linker's cache: %w", err)
	}
	var known []cached
	if err == nil {
		if known, err = parseCache(data); err != nil {
			return nil, fmt.Errorf("read %s: %w", h.at(cacheFile), err)
		}
	}
	for _, dir := range ownDirectories() {
		entries, err := os.ReadDir(h.at(dir))
		if err != nil {
			continue // most hosts do not have it
		}
		for _, e := range entries {
			known = append(known, cached{e.Name(), filepath.Join(dir, e.Name())})
		}
	}
	return known, nil
}

// isListed reports whether a list has a library, in any version.
func isListed(names []string, library string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		version, ok := strings.CutPrefix(library, name)
		return ok && (version == "" || version[0] == '.')
	})
}

func (h Host) programs(names []string) []string {
	var found []string
	for _, name := range names {
		if file := h.Program(name); file != "" {
			found = append(found, file)
		}
	}
	return found
}

// Program returns the path of a driver's program, or "" if the host does not have it.
func (h Host) Program(name string) string {
	for _, dir := range programDirectories() {
		file := h.at(filepath.Join(dir, name))
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// header has the fields of a program's or library's first bytes that name its machine (elf(5):
// e_ident's class and byte order, e_machine).
type header struct {
	class, order byte
	machine      [2]byte
}

func readHeader(file string) (header, error) {
	f, err := os.Open(file)
	if err != nil {
		return header{}, fmt.Errorf("read a library: %w", err)
	}
	defer func() { _ = f.Close() }()
	var b [20]byte
	if _, err := io.ReadFull(f, b[:]); err != nil || !bytes.HasPrefix(b[:], []byte("\x7fELF")) {
		return header{}, fmt.Errorf("%s is not a library", file)
	}
	return header{class: b[4], order: b[5], machine: [2]byte(b[18:20])}, nil
}

// Names lists the libraries in an image's ld.so.cache. It returns none if the text is not such a
// cache.
func Names(cache []byte) map[string]bool {
	names := map[string]bool{}
	libraries, err := parseCache(cache)
	if err != nil {
		return names
	}
	for _, l := range libraries {
		names[l.name] = true
	}
	return names
}
