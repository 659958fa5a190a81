package apptainer

import "cmp"

// What the zero values of a Converter's fields mean. Its writer takes no less
// processor time with more memory than this.
const (
	DefaultProcessors = 2
	DefaultMemoryMiB  = 128
)

func (c Converter) compression() string { return cmp.Or(c.Compression, "zstd") }

// levels says whether the compression has levels.
func (c Converter) levels() bool { return c.compression() == "zstd" || c.compression() == "gzip" }

func (c Converter) level() int { return cmp.Or(c.Level, 1) }

func (c Converter) blockSize() int { return cmp.Or(c.BlockSize, 128<<10) }

func (c Converter) processors() int { return cmp.Or(c.Processors, DefaultProcessors) }

func (c Converter) mksquashfsProgram() string { return cmp.Or(c.Mksquashfs, "mksquashfs") }

func (c Converter) tar2sqfsProgram() string { return cmp.Or(c.Tar2sqfs, "tar2sqfs") }

func (c Converter) memoryMiB() int { return cmp.Or(c.MemoryMiB, DefaultMemoryMiB) }

func (c Converter) maxBytes() int64 { return cmp.Or(c.MaxBytes, 256<<30) }

// room is how many bytes the layers may be of, packed or not, with all that
// frames the files in them. Nothing that fits the other limits comes near it.
func (c Converter) room() int64 { return 2*c.maxBytes() + maxNameBytes }

func (c Converter) maxEntries() int { return cmp.Or(c.MaxEntries, 2_000_000) }
