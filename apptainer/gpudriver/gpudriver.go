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

// Vendor is whose GPUs a host has. The zero value stands for no GPU.
type Vendor string

// The makers whose drivers are known.
const (
	NVIDIA Vendor = "nvidia"
	AMD    Vendor = "amd"
)

// Driver is what there is of a driver on a host.
type Driver struct {
	Libraries []Library
	// Programs are paths on the host.
	Programs []string
	// Files are data and sockets of daemons, to be shown in a container where
	// every program looks for them.
	Files []File
}

// File is a file of the host, and the absolute path by which programs know it.
type File struct{ Path, Name string }

// Library is a shared library.
type Library struct {
	// Name is how programs ask for it, such as libcuda.so.1.
	Name string
	Path string
	// Common libraries are not the driver's alone: an image that has its own
	// keeps it.
	Common bool
}

// Host is where to look for a driver.
type Host struct {
	// Root is the directory that holds the host's /etc and /usr; empty means
	// "/".
	Root string
}

// cacheFile is the dynamic linker's cache.
const cacheFile = "/etc/ld.so.cache"

// Hosts whose dynamic linker has no cache, or does not know the driver, keep it
// in a directory of its own.
func ownDirectories() []string {
	return []string{"/usr/local/nvidia/lib64", "/run/opengl-driver/lib"}
}

// programDirectories are looked at in turn.
func programDirectories() []string {
	return []string{"/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin", "/opt/rocm/bin", "/usr/local/nvidia/bin", "/run/opengl-driver/bin"}
}

// Find finds the driver of a maker's GPUs. A host that has none gives an empty
// Driver: GPUs may be there without it. An error says that the host cannot be
// read.
func (h Host) Find(maker Vendor) (Driver, error) {
	var want list
	switch maker {
	case NVIDIA:
		want = nvidia()
	case AMD:
		want = amd()
	default:
		return Driver{}, fmt.Errorf("find the driver of the GPUs: nobody makes %q", maker)
	}
	libraries, err := h.libraries(want)
	if err != nil {
		return Driver{}, fmt.Errorf("find the driver of the GPUs: %w", err)
	}
	return Driver{Libraries: libraries, Programs: h.programs(want.programs), Files: h.files(want.files)}, nil
}

// at is where a file of the host lies.
func (h Host) at(name string) string { return filepath.Join("/", h.Root, name) }

// files finds those of the names that there are.
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

// libraries finds those of a list. Of several with one name the first counts
// that is made for this machine, as for the linker.
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

// known lists the libraries of the host that a program would find, and after
// them those in directories that only drivers have.
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
			continue // few hosts have it
		}
		for _, e := range entries {
			known = append(known, cached{e.Name(), filepath.Join(dir, e.Name())})
		}
	}
	return known, nil
}

// isListed says whether a library is one of those listed, in any version.
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

// Program is the path of one of a driver's programs, or nothing where the host
// has none.
func (h Host) Program(name string) string {
	for _, dir := range programDirectories() {
		file := h.at(filepath.Join(dir, name))
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file
		}
	}
	return ""
}

// header is what the first bytes of a program or library say of the machine
// that it is made for (elf(5): e_ident's class and byte order, e_machine).
type header struct {
	class, order byte
	machine      [2]byte
}

// readHeader reads the first bytes of a program or library.
func readHeader(file string) (header, error) {
	f, err := os.Open(file)
	if err != nil {
		return header{}, fmt.Errorf("look at a library: %w", err)
	}
	defer func() { _ = f.Close() }()
	var b [20]byte
	if _, err := io.ReadFull(f, b[:]); err != nil || !bytes.HasPrefix(b[:], []byte("\x7fELF")) {
		return header{}, fmt.Errorf("%s is no library", file)
	}
	return header{class: b[4], order: b[5], machine: [2]byte(b[18:20])}, nil
}

// Names lists the libraries that programs in an image find by themselves, given
// the image's own ld.so.cache; none when that is no such cache.
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
