package source

import "bytes"

// Packing is the way in which a layer is compressed.
type Packing string

// The packings of layers that Docker unpacks (moby/go-archive compression/compression.go:
// DecompressStream).
const (
	Plain Packing = ""
	Gzip  Packing = "gzip"
	Zstd  Packing = "zstd"
	Bzip2 Packing = "bzip2"
	XZ    Packing = "xz"
)

// PackingBytes is the number of bytes from which PackingOf knows a packing.
const PackingBytes = 10

// PackingOf returns the packing of a layer with these first bytes; a short layer may have fewer than
// PackingBytes. It ignores the layer's media type, as Docker does.
func PackingOf(first []byte) Packing {
	switch {
	case bytes.HasPrefix(first, []byte{0x1f, 0x8b}): // RFC 1952
		return Gzip
	case isZstd(first):
		return Zstd
	case isBzip2(first):
		return Bzip2
	case bytes.HasPrefix(first, []byte("\xfd7zXZ\x00")): // the .xz file format, 2.1.1.1
		return XZ
	}
	return Plain
}

// isZstd also knows a skippable frame, which zstd:chunked puts first (RFC 8878, 3.1).
func isZstd(first []byte) bool {
	return bytes.HasPrefix(first, []byte{0x28, 0xb5, 0x2f, 0xfd}) ||
		len(first) >= 4 && first[0]&0xf0 == 0x50 && bytes.Equal(first[1:4], []byte{0x2a, 0x4d, 0x18})
}

// isBzip2 also reads the mark of the first block, or of an empty stream's end, because "BZh" may
// begin the name of a tar's first file.
func isBzip2(first []byte) bool {
	return len(first) >= PackingBytes && bytes.HasPrefix(first, []byte("BZh")) && first[3] >= '1' && first[3] <= '9' &&
		(bytes.Equal(first[4:10], []byte{0x31, 0x41, 0x59, 0x26, 0x53, 0x59}) || bytes.Equal(first[4:10], []byte{0x17, 0x72, 0x45, 0x38, 0x50, 0x90}))
}
