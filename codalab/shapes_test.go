package codalab_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// answers returns the JSON answers of CodaLab's own server in the recording of package server, by path.
func answers(t *testing.T) map[string][]codalab.Document {
	t.Helper()
	f, err := os.Open(filepath.Join("..", "server", "testdata", "codalab-1.7.3", "cli.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	found := map[string][]codalab.Document{}
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<22)
	for lines.Scan() {
		var call struct{ Path, RB string }
		if err := json.Unmarshal(lines.Bytes(), &call); err != nil {
			t.Fatal(err)
		}
		var doc codalab.Document
		if json.Unmarshal([]byte(call.RB), &doc) == nil {
			found[call.Path] = append(found[call.Path], doc)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

// checkShape decodes recorded JSON into to, which must know all of its keys, encodes that, and compares.
func checkShape(t *testing.T, name string, recorded json.RawMessage, to any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(recorded))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		t.Errorf("%s: decode %s: %v", name, recorded, err)
		return
	}
	encoded, err := json.Marshal(to)
	if err != nil {
		t.Fatal(err)
	}
	var want, got any
	if err := json.Unmarshal(recorded, &want); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(encoded, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-recorded +encoded):\n%s", name, diff)
	}
}

// TestShapesAreThoseOnTheWire compares the types with what CodaLab's own server has sent. It leaves out
// objects that lack the last key of a shape: that server also sends parts of objects.
func TestShapesAreThoseOnTheWire(t *testing.T) {
	t.Parallel()
	shapes := map[string]struct {
		whole string
		empty func() any
	}{
		"bundles":               {`"state_details"`, func() any { return &codalab.Bundle{} }},
		"users":                 {`"has_access"`, func() any { return &codalab.User{} }},
		"worksheets":            {`"last_item_id"`, func() any { return &codalab.Worksheet{} }},
		"worksheet-items":       {`"sort_key"`, func() any { return &codalab.WorksheetItem{} }},
		"worksheet-permissions": {`"group_name"`, func() any { return &codalab.GroupPermission{} }},
		"bundle-permissions":    {`"group_name"`, func() any { return &codalab.GroupPermission{} }},
		"groups":                {`"user_defined"`, func() any { return &codalab.Group{} }},
		"bundle-actions":        {`"type"`, func() any { return &codalab.BundleAction{} }},
	}
	seen := map[string]int{}
	for path, docs := range answers(t) {
		for _, doc := range docs {
			if strings.HasSuffix(path, "/workers/info") {
				var workers []json.RawMessage
				if err := json.Unmarshal(doc.Data, &workers); err != nil {
					t.Fatal(err)
				}
				for _, w := range workers {
					seen["workers"]++
					checkShape(t, path, w, &codalab.WorkerInfo{})
				}
				continue
			}
			objects, err := doc.Objects()
			if err != nil {
				continue // no JSON:API document
			}
			for _, o := range append(objects, doc.Included...) {
				// A Dependency omits the name and the state of a deleted parent, which are null in the recording.
				deletedParent := bytes.Contains(o.Attributes, []byte(`"parent_state": null`))
				if shape, ok := shapes[o.Type]; ok && bytes.Contains(o.Attributes, []byte(shape.whole)) && !deletedParent {
					seen[o.Type]++
					checkShape(t, path, o.Attributes, shape.empty())
				}
			}
		}
	}
	for kind := range shapes {
		if seen[kind] == 0 {
			t.Errorf("no %s are recorded", kind)
		}
	}
	if seen["workers"] == 0 {
		t.Error("no workers are recorded")
	}
}
