package config

import (
	"cmp"
	"encoding"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/bridge/plan"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// Change is a key whose value differs between the configuration of a running bridge and its file. Old and New are the
// values for people; empty where there is none.
type Change struct{ Key, Old, New string }

// String is the change in one line.
func (c Change) String() string {
	switch {
	case c.Old == "":
		return c.Key + " is new: " + c.New
	case c.New == "":
		return c.Key + " is gone"
	}
	return c.Key + ": " + c.Old + " → " + c.New
}

// Live reports whether a running bridge follows a key of [Keys] when it reads the configuration again.
func Live(key string) bool {
	switch first, _, _ := strings.Cut(key, "."); first {
	case "queue":
		return key != "queue.NAME.architecture" // its cl-worker is installed at the start
	case "link", "map", "staging":
		return true
	}
	return slices.Contains([]string{
		"keep_after_ack", "stage_patience", "outage_patience", "collect_patience", "quota_patience", "max_attempts",
		"cancel_strays", "low_water", "cache.size", "cache.owner_size", "cache.owner_sizes.ID",
		"image.default_cpu", "image.default_gpu", "image.conversions",
	}, key)
}

// Follow returns the configuration of a running bridge after its file was read again: c, with those values of fresh that a
// running bridge follows. changed are these, and left the others that differ, for which the bridge must be started again.
// It fails if the result contradicts itself.
func (c Config) Follow(fresh Config) (merged Config, changed, left []Change, err error) {
	merged = c
	merged.Queue = map[string]*Queue{}
	for name, q := range c.Queue {
		own := *q
		merged.Queue[name] = &own
	}
	known := append(c.Architectures(), Architecture("").Canonical())
	for _, name := range slices.Sorted(maps.Keys(fresh.Queue)) {
		q := *fresh.Queue[name]
		switch {
		case c.Queue[name] != nil:
		case !slices.Contains(known, q.Architecture.Canonical()):
			left = append(left, Change{Key: "queue." + name + ".architecture", New: spell(reflect.ValueOf(q.Architecture))})
		default:
			merged.Queue[name] = &q
			changed = append(changed, Change{Key: "queue." + name, New: "a queue"})
		}
	}
	for _, name := range c.QueueNames() {
		if fresh.Queue[name] == nil {
			delete(merged.Queue, name)
			changed = append(changed, Change{Key: "queue." + name, Old: "a queue"})
		}
	}
	to, from := leavesOf(&merged), leavesOf(&fresh)
	for _, key := range slices.Sorted(maps.Keys(from)) {
		old, ok := to[key]
		if !ok || reflect.DeepEqual(old.value.Interface(), from[key].value.Interface()) {
			continue // one of a queue that is left out, or the same
		}
		change := Change{Key: key, Old: spell(old.value), New: spell(from[key].value)}
		if !Live(old.name) {
			left = append(left, change)
			continue
		}
		old.value.Set(from[key].value)
		changed = append(changed, change)
	}
	if len(changed) > 0 {
		err = merged.check()
	}
	return merged, changed, left, err
}

// leaf is a value of a configuration, with its name in [Keys].
type leaf struct {
	name  string
	value reflect.Value
}

// leavesOf returns the values of a configuration by their keys. The tables of link, registries and users are one value.
func leavesOf(c *Config) map[string]leaf {
	leaves := map[string]leaf{}
	addLeaves(leaves, "", "", reflect.ValueOf(c).Elem())
	for name, q := range c.Queue {
		addLeaves(leaves, "queue."+name+".", "queue.NAME.", reflect.ValueOf(q).Elem())
	}
	return leaves
}

func addLeaves(to map[string]leaf, path, name string, table reflect.Value) {
	for i := range table.NumField() {
		key, value := table.Type().Field(i).Tag.Get("toml"), table.Field(i)
		_, isText := value.Addr().Interface().(encoding.TextUnmarshaler)
		switch {
		case key == "-" || path == "" && key == "queue":
		case value.Kind() == reflect.Struct && !isText:
			addLeaves(to, path+key+".", name+key+".", value)
		default:
			to[path+key] = leaf{keyName(name + key), value}
		}
	}
}

// keyName returns the name in [Keys] of a value that has tables of its own; any other name is that of its key.
func keyName(name string) string {
	switch name {
	case "link":
		return "link.root"
	case "cache.owner_sizes":
		return "cache.owner_sizes.ID"
	}
	return name
}

// spell returns a value for people.
func spell(v reflect.Value) string {
	switch value := v.Interface().(type) {
	case Duration:
		if !value.set {
			return none
		}
		return codalab.SpellDuration(value.Duration)
	case Size:
		if !value.set {
			return none
		}
		return codalab.FormatSize(value.Bytes)
	case LowWater:
		return spellLowWater(value.LowWater)
	case []Link:
		roots := make([]string, len(value))
		for i, l := range value {
			roots[i] = l.Root + " for " + strings.Join(append([]string{"you"}, l.Users...), ", ")
		}
		return strings.Join(roots, "; ")
	case []Mapping:
		tables := make([]string, len(value))
		for i, m := range value {
			tables[i] = m.String()
		}
		return cmp.Or(strings.Join(tables, "; "), none)
	case *bool:
		return fmt.Sprint(*value)
	}
	if v.Kind() == reflect.String {
		return fmt.Sprintf("%q", v.String())
	}
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		if v.Len() == 0 {
			return none
		}
	}
	return fmt.Sprint(v.Interface())
}

func spellLowWater(l plan.LowWater) string {
	switch share := fmt.Sprintf("%g%%", l.Share*100); {
	case l.Share == 0:
		return codalab.FormatSize(l.Bytes)
	case l.Bytes == 0:
		return share
	default:
		return share + ", at most " + codalab.FormatSize(l.Bytes)
	}
}
