package store_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// TestPartOfMetadataIsReadAsTheWhole reads some keys of metadata, with values of all kinds, and compares them with those that
// a reader of all keys gets.
func TestPartOfMetadataIsReadAsTheWhole(t *testing.T) {
	t.Parallel()
	onEach(t, func(t *testing.T, at place) {
		s, ctx := open(t, at), t.Context()
		odd, plain := bundle(`a "name", with a comma,`), bundle("plain")
		odd.Metadata["tags"] = []string{"a", "b,"}
		for key, value := range map[string]any{
			"description": "\\ \x00 ü", "exitcode": nil, "time": 1.5, "created": 1_700_000_000, "request_network": true, "run_status": "unasked",
		} {
			odd.Metadata[key] = value
		}
		odd.Dependencies = []codalab.Dependency{{ChildUUID: odd.UUID, ChildPath: "in", ParentUUID: plain.UUID, ParentName: "plain", ParentState: codalab.StateCreated}}
		must(t, s.CreateBundle(ctx, plain, ""))
		must(t, s.CreateBundle(ctx, odd, ""))
		uuids, keys := []string{odd.UUID, plain.UUID, "0xnosuch"}, []string{"name", "tags", "description", "exitcode", "time", "created", "request_network", "nosuch"}
		whole, err := s.Bundles(ctx, uuids)
		must(t, err)
		part, err := s.Bundles(ctx, uuids, keys...)
		must(t, err)
		want := map[string]store.Bundle{}
		for uuid, b := range whole {
			b.Metadata, b.Partial = b.Metadata.Only(keys...), true
			want[uuid] = b
		}
		if diff := cmp.Diff(want, part); diff != "" {
			t.Error(diff)
		}
	})
}
