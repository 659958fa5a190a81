package codalab

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Identity distinguishes a bundle from all others. A UUID is not enough: clients choose UUIDs, so after
// a bundle was deleted, another one may get its UUID (codalab/rest/bundles.py: _create_bundles). A
// server changes none of these fields by itself as long as the bundle exists. People may change the
// owner (cl chown) and, on CodaLab's own server, the creation time of their own bundles.
type Identity struct {
	UUID    string
	OwnerID string
	// Created is the creation time in Unix seconds.
	Created int64
	Command string
}

// Identity returns the bundle's identity; fields that the server did not send are empty.
func (b Bundle) Identity() Identity {
	id := Identity{UUID: b.UUID, OwnerID: b.OwnerID, Created: b.Metadata.Int("created")}
	if b.Command != nil {
		id.Command = *b.Command
	}
	return id
}

// Identity returns the bundle's identity; fields that the server did not send are empty.
func (b RunBundle) Identity() Identity {
	return Identity{UUID: b.UUID, OwnerID: b.OwnerID, Created: b.Metadata.Int("created"), Command: b.Command}
}

// Same reports whether two identities may be of one bundle. Unknown fields count as equal: an empty
// owner or time, and all fields of an identity without a UUID.
func (i Identity) Same(other Identity) bool {
	if i.UUID == "" || other.UUID == "" {
		return true
	}
	return i.UUID == other.UUID && i.Command == other.Command &&
		(i.OwnerID == other.OwnerID || i.OwnerID == "" || other.OwnerID == "") &&
		(i.Created == other.Created || i.Created == 0 || other.Created == 0)
}

// Lasting is the digest of the identity without the owner, who may give the bundle to another user. It is empty if the UUID or
// the creation time is not known.
func (i Identity) Lasting() string {
	if i.OwnerID = ""; i.UUID == "" || i.Created == 0 {
		return ""
	}
	return i.Digest()
}

// Digest is the identity in 16 hexadecimal digits, for names. The UUID is part of it.
func (i Identity) Digest() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%s", i.UUID, i.OwnerID, i.Created, i.Command))
	return hex.EncodeToString(sum[:8])
}
