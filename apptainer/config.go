package apptainer

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/sylabs/sif/v2/pkg/sif"
)

// ImageConfig is what running a SIF needs to know of it.
type ImageConfig struct {
	// Env is the image's environment, "NAME=value", in the image's order.
	Env []string
	// Architecture is that of the image, in Go's spelling.
	Architecture string
	// Offset is where in the file the root file system begins, in bytes.
	Offset int64
}

// Config reads the configuration of the SIF at path. A SIF that was not made
// from a Docker or OCI image has no environment of its own.
func Config(path string) (ImageConfig, error) {
	config, err := readConfig(path)
	if err != nil {
		return ImageConfig{}, fmt.Errorf("read SIF %s: %w", path, err)
	}
	return config, nil
}

func readConfig(path string) (_ ImageConfig, err error) {
	f, err := sif.LoadContainerFromPath(path, sif.OptLoadWithFlag(os.O_RDONLY))
	if err != nil {
		return ImageConfig{}, err //nolint:wrapcheck // worded by Config
	}
	defer func() { err = errors.Join(err, f.UnloadContainer()) }()
	return configOf(f)
}

func configOf(f *sif.FileImage) (ImageConfig, error) {
	root, err := f.GetDescriptor(sif.WithPartitionType(sif.PartPrimSys))
	if err != nil {
		return ImageConfig{}, fmt.Errorf("find its file system: %w", err)
	}
	kind, _, architecture, err := root.PartitionMetadata()
	if err != nil {
		return ImageConfig{}, fmt.Errorf("find its file system: %w", err)
	}
	if kind != sif.FsSquash {
		return ImageConfig{}, fmt.Errorf("its file system is of type %s, and only squashfs is handled", kind)
	}
	config := ImageConfig{Architecture: architecture, Offset: root.Offset()}
	config.Env, err = readEnv(f)
	return config, err
}

// readEnv reads the environment as Apptainer keeps it for images that came
// from a registry.
func readEnv(f *sif.FileImage) ([]string, error) {
	objects, err := f.GetDescriptors(sif.WithDataType(sif.DataGenericJSON), func(d sif.Descriptor) (bool, error) {
		return d.Name() == ociConfigName, nil
	})
	if err != nil || len(objects) == 0 {
		return nil, err //nolint:wrapcheck // worded by Config
	}
	data, err := objects[0].GetData()
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", ociConfigName, err)
	}
	var config v1.Config
	if err := json.Unmarshal(data, &config); err != nil {
		return nil, fmt.Errorf("read %s: %w", ociConfigName, err)
	}
	return config.Env, nil
}
