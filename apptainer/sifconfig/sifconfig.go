// Package sifconfig reads from a SIF what running it takes.
//
// It is apart from package apptainer so that who only runs containers, such as a
// worker on a node, does not start with what images are pulled and converted by:
// a program's start is a good part of a container's.
package sifconfig

import (
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
func Read(path string) (Config, error) {
	config, err := readConfig(path)
	if err != nil {
		return Config{}, fmt.Errorf("read SIF %s: %w", path, err)
	}
	return config, nil
}

func readConfig(path string) (_ Config, err error) {
	f, err := sif.LoadContainerFromPath(path, sif.OptLoadWithFlag(os.O_RDONLY))
	if err != nil {
		return Config{}, err //nolint:wrapcheck // worded by Read
	}
	defer func() { err = errors.Join(err, f.UnloadContainer()) }()
	return Of(f)
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
