package codalabimport

import (
	"strconv"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Bounds of a data directory's texts; indexes of PostgreSQL hold rows of 2.7 kB.
const (
	longestName = 255
	longestKey  = 1024
)

// bundle converts a bundle without its contents; false if cl-server has no bundles of its type.
func (c *converter) bundle(row bundleRow) (store.Bundle, []store.Permission, bool) {
	if codalab.MetadataKeys(row.Type) == nil {
		c.notes.note(ProblemRow, row.UUID, "it is a bundle of the type %q, which cl-server does not know; it is left out", row.Type)
		return store.Bundle{}, nil, false
	}
	if c.taken.Bundles[row.UUID] {
		c.notes.stop(ProblemConflict, row.UUID, "the data directory has, or had, a bundle with this uuid")
	}
	b := store.Bundle{
		UUID: row.UUID, Type: row.Type, OwnerID: c.owner(row.OwnerID.String, "bundle "+row.UUID), Command: optional(row.Command),
		State: codalab.State(row.State), Frozen: frozen(row.Frozen), IsAnonymous: row.IsAnonymous,
		Metadata: c.metadata(row), Dependencies: c.dependencies(row),
	}
	if name := b.Metadata.String("name"); len(name) > longestName || !codalab.IsName(name) {
		if len(name) > longestName {
			b.Metadata["name"] = strings.ToValidUTF8(name[:longestName], "")
		}
		c.notes.note(ProblemName, row.UUID, "a new bundle could not get the name %q", name)
	}
	if created := b.Metadata.Int("created"); created > 0 {
		b.Created = store.Time{Time: time.Unix(created, 0)}
	}
	c.convertState(&b)
	return b, c.granted(row.Granted), true
}

// convertState gives an unfinished bundle a state for the new server. A waiting bundle continues to wait.
// All others are over, because their workers and clients talk to the old server.
func (c *converter) convertState(b *store.Bundle) {
	was := b.State
	derived := b.Type == codalab.TypeRun || b.Type == codalab.TypeMake
	switch {
	case was.Final():
	case derived && (was == codalab.StateCreated || was == codalab.StateStaged):
		delete(b.Metadata, "staged_status") // it tells of the old server's workers
	case derived && was == codalab.StateMaking:
		b.State = codalab.StateCreated
	default:
		b.State = codalab.StateFailed
		b.Metadata["failure_message"] = "It was " + string(was) + " on CodaLab's own server when it was imported from there."
		c.notes.note(ProblemUnderWay, b.UUID, "it is %s; it becomes failed", was)
	}
}

// dependencies converts dependencies. Their parents may not exist any more.
func (c *converter) dependencies(row bundleRow) []codalab.Dependency {
	all, taken := []codalab.Dependency{}, map[string]bool{}
	for _, d := range row.Dependencies {
		key := clean(d.ChildPath)
		if taken[key] || len(key) > longestKey {
			c.notes.note(ProblemRow, row.UUID, "a dependency on %s is left out, since its key is long, or there twice: %.80q", d.Parent, key)
			continue
		}
		taken[key] = true
		all = append(all, codalab.Dependency{ChildUUID: row.UUID, ChildPath: key, ParentUUID: clean(d.Parent), ParentPath: clean(d.ParentPath)})
	}
	return all
}

// metadata converts texts to values. Keys that clients write are always set
// (codalab/objects/metadata.py: collapse_dicts).
func (c *converter) metadata(row bundleRow) codalab.Metadata {
	known, m := map[string]codalab.MetadataKey{}, codalab.Metadata{}
	for _, k := range codalab.MetadataKeys(row.Type) {
		known[k.Key] = k
		if k.Type == codalab.TypeList || !k.Generated {
			m[k.Key] = empty(k)
		}
	}
	for _, r := range row.Metadata {
		k, ok := known[r.Key]
		if !ok {
			c.notes.countLeftOut(row.Type, r.Key)
			continue
		}
		if k.Type == codalab.TypeList {
			m[k.Key] = append(m.Strings(k.Key), clean(r.Value))
			continue
		}
		value, ok := parse(k, r.Value)
		if !ok {
			c.notes.note(ProblemMetadata, row.UUID, "the value of %s is left out, since it is no %s: %.80q", k.Key, k.Type, r.Value)
			continue
		}
		m[k.Key] = value
	}
	return m
}

// empty is the value of a key that has no row.
func empty(k codalab.MetadataKey) any {
	switch k.Type {
	case codalab.TypeList:
		return []string{}
	case codalab.TypeBool:
		return false
	case codalab.TypeInt:
		return k.Default
	case codalab.TypeFloat:
		return 0.0
	case codalab.TypeString, codalab.TypeDuration, codalab.TypeSize:
		return ""
	}
	return nil
}

// parse reads a value as Python has written it; false if it is none.
func parse(k codalab.MetadataKey, text string) (any, bool) {
	switch k.Type {
	case codalab.TypeBool:
		return text == "True", true
	case codalab.TypeInt:
		if n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64); err == nil {
			return n, true
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		const most = 1 << 53
		if err != nil || !(f > -most && f < most) {
			return nil, false
		}
		return int64(f), true
	case codalab.TypeFloat:
		f, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
		return f, err == nil && finite(f)
	case codalab.TypeList, codalab.TypeString, codalab.TypeDuration, codalab.TypeSize:
	}
	return clean(text), true
}
