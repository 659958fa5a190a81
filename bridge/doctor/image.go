package doctor

// Converter judges whether this host can convert images.
func Converter(err error) []Check {
	if err == nil {
		return nil
	}
	return []Check{failed("image", err.Error(), "or name image.queue, in whose jobs images are converted")}
}

// Image judges the image of runs that name none: whether it is kept here, and else
// why its registry does not give it. Runs may name another image, so a missing one
// is a warning.
func Image(name string, kept bool, err error) Check {
	found := name + ", of runs that name none, "
	switch {
	case kept:
		return ok("image", "%s", found+"is kept here")
	case err == nil:
		return ok("image", "%s", found+"can be had from its registry")
	}
	return warning("image", found+"cannot be had: "+err.Error(), "bring it in with cl-bridge image pull, or name a mirror (image.registry) or another image (image.default_cpu)")
}
