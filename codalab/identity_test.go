package codalab_test

import (
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

func TestI9IdentityTellsBundlesOfOneUUIDApart(t *testing.T) {
	t.Parallel()
	with := func(change func(id *codalab.Identity)) codalab.Identity {
		id := codalab.Identity{UUID: "0x1", OwnerID: "1", Created: 100, Command: "true"}
		change(&id)
		return id
	}
	known := with(func(*codalab.Identity) {})
	for name, c := range map[string]struct {
		other codalab.Identity
		same  bool
	}{
		"itself":                 {known, true},
		"another UUID":           {with(func(id *codalab.Identity) { id.UUID = "0x2" }), false},
		"another owner":          {with(func(id *codalab.Identity) { id.OwnerID = "2" }), false},
		"another creation":       {with(func(id *codalab.Identity) { id.Created = 101 }), false},
		"another command":        {with(func(id *codalab.Identity) { id.Command = "false" }), false},
		"no command":             {with(func(id *codalab.Identity) { id.Command = "" }), false},
		"an owner not told":      {with(func(id *codalab.Identity) { id.OwnerID = "" }), true},
		"a creation not told":    {with(func(id *codalab.Identity) { id.Created = 0 }), true},
		"an identity of nothing": {codalab.Identity{}, true},
	} {
		if known.Same(c.other) != c.same || c.other.Same(known) != c.same {
			t.Errorf("%s: the same %t and %t, want %t", name, known.Same(c.other), c.other.Same(known), c.same)
		}
		if (known.Digest() == c.other.Digest()) != (known == c.other) {
			t.Errorf("%s: the digests are %s and %s", name, known.Digest(), c.other.Digest())
		}
	}
}
