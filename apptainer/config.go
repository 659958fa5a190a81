package apptainer

import "errors"

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
	return ImageConfig{}, errors.New("not implemented")
}
