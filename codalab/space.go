package codalab

// BlockSize is the number of bytes that each file, directory or link of contents takes of a disk quota beside
// its size. An empty file takes a block and an inode of a real disk, too.
const BlockSize = 4096

// Extent is the amount of contents.
type Extent struct {
	// Bytes is the sum that data_size counts: files and links with their lengths, directories with 4096 each
	// (codalab/worker/file_util.py: get_path_size).
	Bytes int64
	// Entries is the number of files, directories and links. A file with several names counts once for each.
	Entries int64
}

// Space returns the space that contents take of a disk quota.
func (e Extent) Space() Space { return Space{Bytes: e.Bytes + BlockSize*e.Entries, Entries: e.Entries} }

// Space is a part of a disk quota.
type Space struct {
	Bytes int64
	// Entries are files, directories and links, and bundles.
	Entries int64
}

// Plus returns the sum of two spaces.
func (s Space) Plus(other Space) Space {
	return Space{s.Bytes + other.Bytes, s.Entries + other.Entries}
}

// Minus returns the difference of two spaces, which may be negative.
func (s Space) Minus(other Space) Space {
	return Space{s.Bytes - other.Bytes, s.Entries - other.Entries}
}

// AtLeast returns the space, with other's number where that is larger.
func (s Space) AtLeast(other Space) Space {
	return Space{max(s.Bytes, other.Bytes), max(s.Entries, other.Entries)}
}

// AtMost returns the space, with other's number where that is smaller.
func (s Space) AtMost(other Space) Space {
	return Space{min(s.Bytes, other.Bytes), min(s.Entries, other.Entries)}
}

// Within reports whether the space fits into another one.
func (s Space) Within(other Space) bool { return s.Bytes <= other.Bytes && s.Entries <= other.Entries }
