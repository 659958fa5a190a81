// Package sifconfig reads from a SIF what running it takes.
//
// It is apart from package apptainer so that who only runs containers, such as a
// worker on a node, does not start with what images are pulled and converted by:
// a program's start is a good part of a container's.
package sifconfig

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/sylabs/sif/v2/pkg/sif"
)

// OCIConfigName is the name of the object of a SIF that holds the image's
// configuration (Apptainer's pkg/image/sif.go).
const OCIConfigName = "oci-config.json"

// DefaultPath is the PATH of a Docker image that sets none.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Config is what running a SIF needs to know of it.
type Config struct {
	// Env is the image's environment, "NAME=value", in the image's order.
	Env []string
	// Architecture is that of the image, in Go's spelling.
	Architecture string
	// Offset is where in the file the root file system begins, in bytes.
	Offset int64
}

// Read reads the configuration of the SIF at path. A SIF that was not made
// from a Docker or OCI image has no environment of its own.
func Read(path string) (_ Config, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("read SIF %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return ReadFile(f)
}

// ReadFile is Read for a SIF that is open for reading, which stays its caller's
// to close.
func ReadFile(f *os.File) (Config, error) {
	config, err := readConfig(f)
	if err != nil {
		return Config{}, fmt.Errorf("read SIF %s: %w", f.Name(), err)
	}
	return config, nil
}

func readConfig(f *os.File) (Config, error) {
	container, err := Load(f)
	if err != nil {
		return Config{}, fmt.Errorf("it is no SIF, or damaged: %w", err)
	}
	return Of(container)
}

// What package sif reads it makes room for first, as much as the file asks for.
// A file may be anybody's.
const (
	maxDescriptors = 1 << 12 // Apptainer makes 48
	maxConfigBytes = 8 << 20
)

// Load opens a SIF that is open for reading, which stays its caller's to close.
func Load(f *os.File) (*sif.FileImage, error) {
	// After the launch script, magic, version, architecture, id and two dates
	// (pkg/sif/sif.go: header).
	const descriptorsTotal = 32 + 10 + 3 + 3 + 16 + 3*8
	var total [8]byte
	if _, err := f.ReadAt(total[:], descriptorsTotal); err != nil {
		return nil, fmt.Errorf("read its header: %w", err)
	}
	if n := binary.LittleEndian.Uint64(total[:]); n > maxDescriptors {
		return nil, fmt.Errorf("its header tells of %d objects", n)
	}
	return sif.LoadContainer(f, sif.OptLoadWithFlag(os.O_RDONLY), sif.OptLoadWithCloseOnUnload(false)) //nolint:wrapcheck // worded by callers
}

// Of reads the configuration of an open SIF.
func Of(f *sif.FileImage) (Config, error) {
	root, err := f.GetDescriptor(sif.WithPartitionType(sif.PartPrimSys))
	if err != nil {
		return Config{}, fmt.Errorf("find its file system: %w", err)
	}
	kind, _, architecture, err := root.PartitionMetadata()
	if err != nil {
		return Config{}, fmt.Errorf("find its file system: %w", err)
	}
	if kind != sif.FsSquash {
		return Config{}, fmt.Errorf("its file system is of type %s, and only squashfs is handled", kind)
	}
	config := Config{Architecture: architecture, Offset: root.Offset()}
	config.Env, err = readEnv(f)
	return config, err
}

// readEnv reads the environment as Apptainer keeps it for images that came
// from a registry.
func readEnv(f *sif.FileImage) ([]string, error) {
	objects, err := f.GetDescriptors(sif.WithDataType(sif.DataGenericJSON), func(d sif.Descriptor) (bool, error) {
		return d.Name() == OCIConfigName, nil
	})
	if err != nil || len(objects) == 0 {
		return nil, err //nolint:wrapcheck // worded by Read
	}
	if n := objects[0].Size(); n < 0 || n > maxConfigBytes {
		return nil, fmt.Errorf("%s in it is said to have %d bytes", OCIConfigName, n)
	}
	data, err := objects[0].GetData()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", OCIConfigName, err)
	}
	var config struct{ Env []string }
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("read %s: %w", OCIConfigName, err)
	}
	return config.Env, nil
}
