package apptainer

// Nicely calls f as a conversion with that nice value calls its parts.
func Nicely(nice int, f func()) { Converter{Nice: nice}.nicely(f) }

// XZError describes the error of a program as one of xz.
func XZError(err error) error { return xzError(err) }
