package apptainer

// Nicely runs f as a conversion of that nice value runs its parts.
func Nicely(nice int, f func()) { Converter{Nice: nice}.nicely(f) }
