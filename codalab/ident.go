package codalab

import (
	"encoding/hex"

	"github.com/google/uuid"

	"github.com/cl-slurm/cl-slurm/internal/lazyregexp"
)

var (
	uuidForm   = lazyregexp.New(`^0x[0-9a-f]{32}$`)
	prefixForm = lazyregexp.New(`^0x[0-9a-f]{1,31}$`)
	nameForm   = lazyregexp.New(`^[a-zA-Z_][a-zA-Z0-9_.-]*$`)
)

// NewUUID returns a fresh random identifier of a bundle, worksheet or user: "0x" and 32
// lower-case hexadecimal digits.
func NewUUID() string {
	id := uuid.New()
	return "0x" + hex.EncodeToString(id[:])
}

// IsUUID reports whether s is a whole identifier.
func IsUUID(s string) bool { return uuidForm().MatchString(s) }

// IsUUIDPrefix reports whether s is the beginning of an identifier, shorter than a whole one.
func IsUUIDPrefix(s string) bool { return prefixForm().MatchString(s) }

// IsName reports whether s may name a bundle, a worksheet or a user.
func IsName(s string) bool { return nameForm().MatchString(s) }
