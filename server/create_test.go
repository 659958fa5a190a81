package server_test

import (
	"net/http"
	"slices"
	"strconv"
	"testing"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// TestNewBundleIsShownWhereItIsWanted uses the parameters of CodaLab's web page and of cl mimic
// --shadow.
func TestNewBundleIsShownWhereItIsWanted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	home := s.home("alice")
	create := func(name, where string) string {
		attributes := map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", name, nil)}
		return s.call("alice", http.MethodPost, "/bundles?worksheet="+home+where, object("bundles", attributes)).ok().text("data", 0, "id")
	}
	first, second := create("first", ""), create("second", "")
	shadow := create("shadow", "&shadow="+first)
	elsewhere := create("elsewhere", "&shadow="+home)
	items, err := s.store.Items(t.Context(), home)
	must(t, err)
	image := create("image", "&after_image=1&after_sort_key="+strconv.FormatInt(items[0].SortKey, 10))
	s.call("alice", http.MethodPost, "/bundles?worksheet="+home+"&after_sort_key=x", object("bundles", nil)).says(http.StatusBadRequest, "after_sort_key")
	items, err = s.store.Items(t.Context(), home)
	must(t, err)
	var got []string
	for _, item := range items {
		uuid := ""
		if item.BundleUUID != nil {
			uuid = *item.BundleUUID
		}
		got = append(got, uuid)
	}
	if want := []string{first, "", image, shadow, second, elsewhere}; !slices.Equal(got, want) {
		t.Errorf("the worksheet shows %q, want %q", got, want)
	}
}

func TestBundlesOfARequestAreCreatedAllOrNone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	first, second := codalab.NewUUID(), s.dataset("second")
	one := func(uuid string) any {
		return map[string]any{"type": "bundles", "attributes": map[string]any{"uuid": uuid, "bundle_type": "dataset", "metadata": metadata("dataset", "data", nil)}}
	}
	for _, other := range []string{second, first} { // one that is there, and the first one again
		s.call("alice", "POST", "/bundles?worksheet="+s.home("alice"), map[string]any{"data": []any{one(first), one(other)}}).
			says(http.StatusConflict, "Bundle "+other+" exists already")
		s.get("alice", "/bundles/"+first).is(http.StatusNotFound)
	}
}
