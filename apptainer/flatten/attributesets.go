package flatten

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
)

// maxAttributes limits the different extended attributes, and sets of them, in all layers. mksquashfs compares each
// one with all others that have the same checksum of 16 bits, so that a layer of a few megabytes could take days
// (squashfs-tools, xattr.c: check_value_dupl, check_id_dupl).
const maxAttributes = 100_000

// attributeSets counts the different extended attributes of an image, and the different sets that files have.
type attributeSets struct {
	seed maphash.Seed
	seen map[uint64]struct{}
}

func (s *attributeSets) add(attributes map[string]string) error {
	if len(attributes) == 0 {
		return nil
	}
	if s.seen == nil {
		s.seed, s.seen = maphash.MakeSeed(), map[uint64]struct{}{}
	}
	var all []byte
	for _, name := range slices.Sorted(maps.Keys(attributes)) {
		one := name + "\x00" + attributes[name] + "\x00"
		s.seen[maphash.String(s.seed, one)] = struct{}{}
		all = append(all, one...)
	}
	s.seen[maphash.Bytes(s.seed, append(all, 0))] = struct{}{}
	if len(s.seen) > maxAttributes {
		return fmt.Errorf("%w: more than %d different extended attributes", ErrTooLarge, maxAttributes)
	}
	return nil
}
