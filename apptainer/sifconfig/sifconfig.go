// Package sifconfig reads the configuration that is needed to run a SIF.
//
// It is separate from package apptainer so that a worker does not link the code that pulls and
// converts images, because the start of the worker takes a good part of a container's start.
package sifconfig

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/sylabs/sif/v2/pkg/sif"
)

// OCIConfigName is the name of a SIF's object with the image's configuration
// (Apptainer's pkg/image/sif.go).
const OCIConfigName = "oci-config.json"

// OthersName is the name of a SIF's object with the files of other owners than root, as a tar
// stream.
const OthersName = "other-owners.tar"

// DefaultPath is the PATH for Docker images without one.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Limits of the files of an image. They keep a small image from filling a disk, where it is converted and
// where it is unpacked.
const (
	MaxBytes   = 256 << 30
	MaxEntries = 2_000_000
)

// Config has the properties of a SIF that a runtime needs.
type Config struct {
	// Env is the image's environment, "NAME=value", in the image's order.
	Env []string
	// Architecture is the image's, in Go's spelling.
	Architecture string
	// Offset is the position of the root file system in the file, in bytes.
	Offset int64
	// Others is the object OthersName; it is empty if the SIF has none.
	Others Object
}

// Object is the place of an object in a SIF, in bytes.
type Object struct{ Offset, Size int64 }

// Read reads the configuration of the SIF at path. A SIF that was not made from a Docker or OCI
// image has no environment.
func Read(path string) (_ Config, err error) {
	f, err := os.Open(path)
	if err != nil {
		return Config{}, fmt.Errorf("read SIF %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return ReadFile(f)
}

// ReadFile is Read for a SIF that is open for reading. The caller closes it.
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
		return Config{}, fmt.Errorf("it is not a SIF, or damaged: %w", err)
	}
	return Of(container)
}

// Package sif allocates as much memory as a file demands. These limits protect against malicious
// files.
const (
	maxDescriptors = 1 << 12 // Apptainer makes 48
	maxConfigBytes = 8 << 20
)

// Load loads a SIF from a file that is open for reading. The caller closes the file.
func Load(f *os.File) (*sif.FileImage, error) {
	// After the launch script, magic, version, architecture, id and two dates
	// (pkg/sif/sif.go: header).
	const descriptorsTotal = 32 + 10 + 3 + 3 + 16 + 3*8
	var total [8]byte
	if _, err := f.ReadAt(total[:], descriptorsTotal); err != nil {
		return nil, fmt.Errorf("read its header: %w", err)
	}
	if n := binary.LittleEndian.Uint64(total[:]); n > maxDescriptors {
		return nil, fmt.Errorf("its header claims %d objects", n)
	}
	return sif.LoadContainer(f, sif.OptLoadWithFlag(os.O_RDONLY), sif.OptLoadWithCloseOnUnload(false)) //nolint:wrapcheck // callers word it
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
	if others, err := f.GetDescriptor(sif.WithDataType(sif.DataGeneric), named(OthersName)); err == nil {
		config.Others = Object{others.Offset(), others.Size()}
	}
	config.Env, err = readEnv(f)
	return config, err
}

// named selects objects by their name.
func named(name string) sif.DescriptorSelectorFunc {
	return func(d sif.Descriptor) (bool, error) { return d.Name() == name, nil }
}

// readEnv reads the environment from the place where Apptainer stores it for images from a
// registry.
func readEnv(f *sif.FileImage) ([]string, error) {
	objects, err := f.GetDescriptors(sif.WithDataType(sif.DataGenericJSON), named(OCIConfigName))
	if err != nil || len(objects) == 0 {
		return nil, err //nolint:wrapcheck // Read words it
	}
	if n := objects[0].Size(); n < 0 || n > maxConfigBytes {
		return nil, fmt.Errorf("%s in it claims to have %d bytes", OCIConfigName, n)
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
