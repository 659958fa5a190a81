package server_test

import (
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// A worker may claim any numbers of its runs; they must not break its owner's account, or the site.
func TestReportWithHugeNumbersBreaksNothing(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t, func(c *server.Config) { c.Hold = time.Millisecond })
	for range 3 {
		report := reportOf(uuid, codalab.StateRunning)
		report.DiskUtilization, report.ContainerTimeTotal = math.MaxInt64, 1e300
		w.checkIn(report)
		report.RunStatus, report.DiskUtilization, report.ContainerTimeTotal = "again", math.MinInt64, -1e300
		w.checkIn(report)
		report.RunStatus, report.DiskUtilization = "and again", math.MaxInt64
		w.checkIn(report)
	}
	s.get("alice", "/user").ok()
	s.get("root", "/users?keywords=.limit=9").ok()
}

func TestOwnerOfAnUnfinishedBundleIsChangedByRootAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	job, data := s.run("evil", cpuQueue), s.upload("data", "x")
	s.chown("alice", "bundles", "bob", job).says(http.StatusForbidden, "has not ended: only root can change its owner now")
	s.chown("alice", "bundles", "bob", data).ok()
	s.chown("root", "bundles", "bob", job).ok()
	if s.owner(job) != bobsID || s.owner(data) != alicesID {
		t.Errorf("%s and %s own them", s.owner(job), s.owner(data))
	}
}

func TestRequestsAndUseOfARunOnAWorkerCannotBeEdited(t *testing.T) {
	t.Parallel()
	s, _, uuid := claimedRun(t)
	for key, value := range map[string]any{"request_cpus": 1_000_000_000, "time": 1e12} {
		s.call("alice", "PATCH", "/bundles", edit("bundles", uuid, map[string]any{"metadata": map[string]any{key: value}})).
			says(http.StatusForbidden, "Metadata key "+key+" cannot be changed while bundle "+uuid+" is preparing.")
	}
	s.call("alice", "PATCH", "/bundles", edit("bundles", uuid, map[string]any{"metadata": map[string]any{"description": "mine"}})).ok()
}

func TestContentsOfARunThatIsStagedAgainAreGone(t *testing.T) {
	t.Parallel()
	s, w, uuid := claimedRun(t)
	w.checkIn(reportOf(uuid, codalab.StateRunning))
	s.put(uuid, "filename=x&unpack=0&finalize_on_success=0", "first try").ok()
	w.told(codalab.MessageRun, reportOf(uuid, codalab.StateStaged)) // given back, and handed out again
	s.awaitContents(0)
	s.call("alice", "POST", "/bundle-actions", object("bundle-actions", map[string]string{"type": "kill", "uuid": uuid})).ok()
	s.await(uuid, codalab.StateKilled)
	s.get("alice", "/bundles/"+uuid+"/contents/blob/").is(http.StatusNotFound)
}

func TestNamesOfPrivateBundlesCannotBeGuessed(t *testing.T) {
	t.Parallel()
	s := newSite(t, publicByDefault)
	sheet := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "open"})).ok().text("data", 0, "id")
	uuid := s.call("alice", "POST", "/bundles?worksheet="+sheet, object("bundles", map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", "secret", nil)})).ok().text("data", 0, "id")
	s.share("alice", "bundle", uuid, "public", store.PermissionNone)
	for _, spec := range []string{"s%25", "secret", "secret%5E9"} {
		s.get("bob", "/bundles?specs="+spec+"&worksheet="+sheet).says(http.StatusNotFound, "doesn't match any bundles")
	}
	if a := s.get("bob", "/bundles?specs=%5E1&worksheet="+sheet).ok(); a.text("data", 0, "attributes", "bundle_type") != codalab.TypePrivate {
		t.Errorf("%s", a.body) // cl ls counts it, too
	}
}

func TestFinishedChildrenAreNotStagedAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	parent := s.upload("in", "x")
	child := s.run("cat in", cpuQueue, codalab.Dependency{ParentUUID: parent, ChildPath: "in"})
	s.await(child, codalab.StateStaged)
	waiting, err := s.store.WaitingChildren(t.Context(), []string{parent})
	must(t, err)
	if len(waiting) > 0 {
		t.Errorf("%v", waiting)
	}
}

func TestWorkersErrorCodesAreChecked(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, code := range []string{"42", "200", "999"} {
		s.call("alice", "POST", "/workers/w/reply_data/1?header_message=%7B%22error_code%22:"+code+"%7D", "x").
			says(http.StatusBadRequest, "An error_code is between 400 and 599")
	}
}

func TestTextsOfABundleAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	long := strings.Repeat("x", 300<<10)
	s.create("dataset", "data", "", map[string]any{"description": long}).says(http.StatusRequestEntityTooLarge, "may have 262144")
	s.create("run", "job", long, nil).says(http.StatusRequestEntityTooLarge, "may have 262144")
	s.create("run", "job", long[:codalab.MaxCommand+1], nil).says(http.StatusBadRequest, "The command has 131072 bytes, and Linux takes at most 131071")
	data := s.dataset("data")
	s.call("alice", "PATCH", "/bundles", edit("bundles", data, map[string]any{"metadata": map[string]any{"description": long}})).
		says(http.StatusRequestEntityTooLarge, "may have 262144")
}

func TestItemsOfOneRequestAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sheet := s.home("alice")
	const says = "may add 20000 items"
	s.call("alice", "POST", "/worksheets/"+sheet+"/raw", strings.Repeat("\n", 20_000)).says(http.StatusRequestEntityTooLarge, says)
	s.call("alice", "POST", "/worksheets/"+sheet+"/add-items", map[string]any{"items": make([]string, 20_001)}).says(http.StatusRequestEntityTooLarge, says)
	s.call("alice", "POST", "/worksheets/"+sheet+"/raw", "one\ntwo").is(http.StatusNoContent)
}

// A body of 8 MiB may be one item, and 100,000 of them may be a worksheet.
func TestTextsOfAWorksheetAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sheet, fits := s.home("alice"), strings.Repeat("x", 65_535)
	const says = "The text of an item may have 65535 bytes, not 65536"
	for _, kind := range []string{"markup", "directive"} {
		item := func(text string) any {
			return object("worksheet-items", map[string]string{"type": kind, "value": text})
		}
		s.call("alice", "POST", "/worksheet-items?uuid="+sheet, item(fits+"x")).says(http.StatusRequestEntityTooLarge, says)
		s.call("alice", "POST", "/worksheet-items?uuid="+sheet, item(fits)).ok()
	}
	s.call("alice", "POST", "/worksheets/"+sheet+"/add-items", map[string]any{"items": []string{fits + "x"}}).says(http.StatusRequestEntityTooLarge, says)
	s.call("alice", "POST", "/worksheets/"+sheet+"/raw", "one\n"+fits+"x").says(http.StatusRequestEntityTooLarge, says)
	s.call("alice", "POST", "/worksheets/"+sheet+"/raw", "one\n"+fits).is(http.StatusNoContent)
	for _, attributes := range []map[string]any{{"title": fits}, {"tags": []string{"a", fits}}} {
		s.call("alice", "PATCH", "/worksheets", edit("worksheets", sheet, attributes)).says(http.StatusRequestEntityTooLarge, "of a worksheet may have 1024 bytes")
	}
	s.call("alice", "PATCH", "/worksheets", edit("worksheets", sheet, map[string]any{"title": fits[:1024], "tags": []string{"a", "b"}})).ok()
}

// Each dependency is a question to the database.
func TestDependenciesOfABundleAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	parent := s.upload("data", "x")
	many := make([]codalab.Dependency, 10_001)
	for i := range many {
		many[i] = codalab.Dependency{ParentUUID: parent, ChildPath: strconv.Itoa(i)}
	}
	s.create("run", "job", "true", nil, many...).says(http.StatusRequestEntityTooLarge, "A bundle may have 10000 dependencies, not 10001")
	s.create("run", "job", "true", nil, many[:2]...).ok()
}

// The bound of one request does not bound a hundred requests.
func TestItemsOfAWorksheetAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sheet, uuid := s.home("alice"), s.upload("data", "x")
	full := slices.Repeat([]store.Item{{Type: codalab.ItemMarkup}}, store.MostItems)
	must(t, s.store.ReplaceItems(t.Context(), sheet, full, store.Time{Time: time.Now()}))
	const says = "A worksheet may have 100000 items, and this one has no room: use another worksheet, or remove items first."
	item := object("worksheet-items", map[string]string{"type": "markup", "value": "x"})
	s.call("alice", "POST", "/worksheet-items?uuid="+sheet, item).says(http.StatusForbidden, says)
	for _, add := range []map[string]any{{"items": []string{"x"}}, {"items": []string{uuid}, "item_type": "bundle"}, {"items": []string{"x"}, "after_sort_key": 3}} {
		s.call("alice", "POST", "/worksheets/"+sheet+"/add-items", add).says(http.StatusForbidden, says)
	}
	s.create("dataset", "more", "", nil).says(http.StatusForbidden, says)
	s.call("alice", "POST", "/worksheets/"+sheet+"/raw", "one\ntwo").is(http.StatusNoContent) // with fewer than before
	s.create("dataset", "more", "", nil).ok()
}

// A body of 8 MiB may have eight million levels.
func TestDeeplyNestedBodiesAreRefused(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, path := range []string{"/worksheets", "/bundles?worksheet=" + s.home("alice"), "/interpret/genpath-table-contents", "/workers/w/checkin"} {
		for _, level := range []string{"[", `{"data":`} {
			s.call("alice", http.MethodPost, path, strings.Repeat(level, 1<<20/len(level))).is(http.StatusBadRequest)
		}
	}
}

// A name with wildcards is compared with all bundles of a worksheet.
func TestSpecsOfOneRequestAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	for _, path := range []string{"/bundles?worksheet=" + s.home("alice"), "/worksheets?x=y"} {
		s.get("alice", path+strings.Repeat("&specs=%25a", 2001)).says(http.StatusRequestEntityTooLarge, "may have 2000 specs")
	}
	s.get("alice", "/bundles?x=y"+strings.Repeat("&specs="+uuid, 3000)).ok()
}
