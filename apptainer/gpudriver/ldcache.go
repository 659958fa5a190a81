package gpudriver

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
)

// Format of the dynamic linker's cache (glibc, sysdeps/generic/dl-cache.h: struct cache_file and
// struct cache_file_new), in this machine's byte order. Up to glibc 2.31 it begins with a table of
// an older format, followed by the newer one.
const (
	oldMagic     = "ld.so-1.7.0\x00"
	oldHeader    = len(oldMagic) + 4
	oldEntry     = 12
	newMagic     = "glibc-ld.so.cache1.1"
	newHeader    = 48
	newEntry     = 24
	newAlignment = 8
)

// maxCached is larger than the number of entries of any real cache.
const maxCached = 1 << 20

var errNoCache = errors.New("this is not a cache of the dynamic linker")

// cached is one library in the cache.
type cached struct{ name, path string }

// parseCache lists the libraries in a cache, in the linker's order.
func parseCache(data []byte) ([]cached, error) {
	if rest, ok := bytes.CutPrefix(data, []byte(oldMagic)); ok {
		if len(rest) < 4 {
			return nil, errNoCache
		}
		n := int64(binary.NativeEndian.Uint32(rest))
		end := (int64(oldHeader) + n*oldEntry + newAlignment - 1) / newAlignment * newAlignment
		if n > maxCached || end > int64(len(data)) {
			return nil, errNoCache
		}
		data = data[end:]
	}
	if !bytes.HasPrefix(data, []byte(newMagic)) || len(data) < newHeader {
		return nil, errNoCache
	}
	n := binary.NativeEndian.Uint32(data[len(newMagic):])
	if n > maxCached || newHeader+int64(n)*newEntry > int64(len(data)) {
		return nil, errNoCache
	}
	entries := data[newHeader : newHeader+int(n)*newEntry]
	var libraries []cached
	for entry := range slices.Chunk(entries, newEntry) {
		name, nameErr := text(data, binary.NativeEndian.Uint32(entry[4:]))
		path, pathErr := text(data, binary.NativeEndian.Uint32(entry[8:]))
		if nameErr != nil || pathErr != nil {
			return nil, errNoCache
		}
		libraries = append(libraries, cached{name, path})
	}
	return libraries, nil
}

func text(data []byte, offset uint32) (string, error) {
	if int64(offset) >= int64(len(data)) {
		return "", errNoCache
	}
	end := bytes.IndexByte(data[offset:], 0)
	if end < 0 {
		return "", errNoCache
	}
	return string(data[offset:][:end]), nil
}
