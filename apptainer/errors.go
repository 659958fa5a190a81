package apptainer

import (
	"fmt"
)

// ImageError says why an image could not be brought here. It reads as one
// sentence with the image's name.
type ImageError struct {
	// Image is the reference as the user wrote it.
	Image string
	// Op is what was being done, as a verb and its object ("pull layer 3").
	Op string
	// Err is the cause.
	Err error

	transient bool
}

// Error gives the sentence.
func (e *ImageError) Error() string { return fmt.Sprintf("image %q: %v", e.Image, e.Err) }

// Unwrap returns the cause.
func (e *ImageError) Unwrap() error { return e.Err }

// Transient says whether the same request may succeed later without anybody
// changing it: trouble with the network, the registry or the local disk. An
// unknown image, a missing platform or an unsupported layer is not.
func (e *ImageError) Transient() bool { return e.transient }
