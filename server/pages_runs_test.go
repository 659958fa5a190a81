package server_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// sweep makes a sweep of alice without runs, and returns its uuid.
func (s *site) sweep(name string) string {
	s.t.Helper()
	uuid := s.call("alice", http.MethodPost, "/worksheets", object("worksheets", map[string]string{"name": name})).ok().text("data", 0, "id")
	s.call("alice", http.MethodPatch, "/worksheets", map[string]any{"data": []any{map[string]any{"type": "worksheets", "id": uuid, "attributes": map[string]any{"tags": []string{codalab.SweepMark}, "title": "Sweep: train {lr}"}}}}).ok()
	return uuid
}

// member makes a bundle of a sweep, and returns its uuid.
func (s *site) member(sweep, bundleType, name string, settings ...codalab.Setting) string {
	s.t.Helper()
	attributes := map[string]any{"bundle_type": bundleType, "metadata": metadata(bundleType, name, map[string]any{"tags": codalab.SweepTags(sweep, settings)})}
	if bundleType == codalab.TypeRun {
		attributes["command"], attributes["dependencies"] = "train "+name, []any{}
	}
	return s.call("alice", http.MethodPost, "/bundles?worksheet="+sweep, object("bundles", attributes)).ok().text("data", 0, "id")
}

// result makes a member of a sweep that is ready, with values in two files.
func (s *site) result(sweep, name, stats string, settings ...codalab.Setting) string {
	s.t.Helper()
	uuid := s.member(sweep, codalab.TypeDataset, name, settings...)
	files := map[string]string{"stats.json": stats, "log.jsonl": "{\"step\": 1}\n{\"step\": 20}\n"}
	s.put(uuid, "filename=a.tar.gz&unpack=1", tarGz(s.t.(*testing.T), files)).ok()
	return uuid
}

func TestSweepIsShownWithItsSettingsAndValues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.browse(t, "alice")
	a.shows(t, "/sweeps", http.StatusOK, "You have no sweeps.", "cl run --each")
	sweep := s.sweep("grid")
	a.shows(t, "/sweeps/"+sweep, http.StatusOK, "The sweep has no runs.", "cl sweep add "+sweep+" --missing")
	var uuids []string
	for i, lr := range []string{"0.001", "0.1", "1"} {
		uuids = append(uuids, s.result(sweep, fmt.Sprint("run", i), fmt.Sprintf(`{"acc": 0.%d, "loss": 0.%d}`, 5+i%2, i), codalab.Setting{Name: "lr", Value: lr}, codalab.Setting{Name: "opt", Value: "<b>adam</b>"}))
	}
	waits := s.member(sweep, codalab.TypeRun, "waits", codalab.Setting{Name: "lr", Value: "10"}, codalab.Setting{Name: "opt", Value: "<b>adam</b>"})
	a.shows(t, "/sweeps/"+sweep, http.StatusOK, "4 runs: 3 ready, 1 staged.", `>lr</a></th>`, "<code>opt=&lt;b&gt;adam&lt;/b&gt;</code>", "train {lr}", "cl sweep show "+sweep+"</code>", "seconds run", "No run has such a value yet.")
	// Values are chosen by a form, and remembered.
	bad := a.form("/sweeps/"+sweep+"/columns", url.Values{"columns": {"acc<"}}, nil, a.cookies...)
	if bad.status != http.StatusBadRequest || !strings.Contains(bad.body, `id="columns-problem"`) || !strings.Contains(bad.body, `value="acc&lt;"`) {
		t.Errorf("%d %s", bad.status, bad.body)
	}
	a.shows(t, "/sweeps/"+sweep, http.StatusOK, `name="column" value="/stats.json:acc">`, `name="column" value="/log.jsonl:-1:step">`)
	chosen := a.form("/sweeps/"+sweep+"/columns", url.Values{"column": {"/stats.json:acc"}, "columns": {"/stats.json:loss, /log.jsonl:-1:step /later.json:x"}}, nil, a.cookies...)
	if chosen.status != http.StatusSeeOther || len(chosen.cookies) != 1 {
		t.Fatalf("%d %s", chosen.status, chosen.body)
	}
	a.cookies = append(a.cookies, chosen.cookies...)
	page := a.shows(t, "/sweeps/"+sweep+"?sort=%2Fstats.json%3Aacc&desc=1", http.StatusOK, `aria-sort="descending"`, "The best: <a href=\"/bundles/"+uuids[1]+"\">run1</a>",
		"cl sweep show "+sweep+" -f /stats.json:acc,/stats.json:loss,/log.jsonl:-1:step,/later.json:x</code>", `<td class="number">20</td>`, `value="/log.jsonl:-1:step" checked>`, `value="/later.json:x" size`, "lr (logarithmic)", "run1 (ready), lr 0.1, /stats.json:acc 0.6", "waits (staged), lr 10, /stats.json:acc missing", `class="run missing"`, "The best tenth by /stats.json:acc")
	if first, second, last := strings.Index(page, uuids[1]+`">run1</a></th>`), strings.Index(page, uuids[0]+`">run0</a></th>`), strings.Index(page, waits+`">waits</a></th>`); first < 0 || second < first || last < second {
		t.Errorf("the order is %d %d %d", first, second, last)
	}
	a.shows(t, "/sweeps/"+sweep+"?x=setting:lr&y=%2Fstats.json%3Aloss", http.StatusOK, "Scatter plot: /stats.json:loss over lr")
	a.shows(t, "/sweeps", http.StatusOK, `href="/sweeps/`+sweep+`">grid</a>`, "3 ready, 1 staged", "Best /stats.json:acc", `<a href="/bundles/`+uuids[1]+`">0.6</a>`, "<code>train {lr}</code>")
	s.browse(t, "bob").shows(t, "/sweeps/"+sweep, http.StatusForbidden)
	s.browse(t, "").shows(t, "/sweeps/"+sweep, http.StatusForbidden, "Sign in")
}

func TestMembersOfASweepAreKilledAndRunAgain(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	web := httptest.NewServer(s.handler)
	t.Cleanup(web.Close)
	sweep := s.sweep("grid")
	lr := codalab.Setting{Name: "lr", Value: "0.1"}
	first := s.member(sweep, codalab.TypeRun, "first", lr)
	a := s.browse(t, "alice")
	follow := a.opens(t, web.URL, "/sweeps/"+sweep+"/events")
	if rows := follow.next("members"); !strings.Contains(rows, "1 run: 1 staged") {
		t.Errorf("the sweep shows %s", rows)
	}
	next := "/sweeps/" + sweep + "?sort=state"
	if to := a.sends(t, "/runs/actions", url.Values{"uuid": {first}, "action": {"kill"}, "next": {next}, "sweep": {sweep}}); to != "/sweeps/"+sweep+"?done=kill&n=1&sort=state" {
		t.Errorf("the way goes on to %s", to)
	}
	for !strings.Contains(follow.next("members"), "1 run: 1 killed") {
		continue
	}
	a.sends(t, "/runs/actions", url.Values{"uuid": {first}, "action": {"rerun"}, "next": {next}, "sweep": {sweep}})
	rows := follow.next("members")
	if !strings.Contains(rows, "1 run: 1 staged") || strings.Contains(rows, first) {
		t.Errorf("the sweep shows %s", rows)
	}
	a.shows(t, "/sweeps/"+sweep+"?done=rerun&n=1", http.StatusOK, "1 bundle will run again.")
	// Elsewhere, a run that is made again is no member.
	a.sends(t, "/runs/actions", url.Values{"uuid": {first}, "action": {"rerun"}, "next": {"/runs"}})
	a.shows(t, "/runs?q=tags%3Dlr%3D0.1+.count", http.StatusOK, "<p>2</p>")
	a.shows(t, "/runs?q=name%3Dfirst+.count", http.StatusOK, "<p>3</p>")
	data := s.upload("data", "1")
	if got := a.form("/runs/actions", url.Values{"uuid": {data}, "action": {"rerun"}}, nil, a.cookies...); got.status != http.StatusBadRequest || !strings.Contains(got.body, "It is no run") {
		t.Errorf("%d %s", got.status, got.body)
	}
	b := s.browse(t, "bob")
	s.share("alice", "worksheet", sweep, "public", store.PermissionRead)
	s.share("alice", "bundle", first, "public", store.PermissionRead)
	b.sends(t, "/runs/actions", url.Values{"uuid": {first}, "action": {"rerun"}, "next": {next}, "sweep": {sweep}})
	b.shows(t, "/runs?q=.mine+name%3Dfirst+.count", http.StatusOK, "<p>1</p>") // on his own worksheet
	s.share("alice", "bundle", first, "public", store.PermissionNone)
	if got := b.form("/runs/actions", url.Values{"uuid": {first}, "action": {"rerun"}}, nil, b.cookies...); got.status < http.StatusBadRequest {
		t.Errorf("bob runs again what he may not read: %d", got.status)
	}
}

func TestRunIsMadeByAForm(t *testing.T) {
	t.Parallel()
	s := newSite(t, func(c *server.Config) { c.Hold = time.Millisecond })
	s.queue("root", "gpu").checkIn()
	data := s.upload("data", "1")
	s.browse(t, "").shows(t, "/runs/new", http.StatusUnauthorized, "Sign in")
	a := s.browse(t, "alice")
	a.shows(t, "/runs/new", http.StatusOK, "<h1>New run</h1>", `<option value="gpu">`, `name="memory" value="2g"`)
	uuid := codalab.NewUUID()
	typed := url.Values{"uuid": {uuid}, "command": {"cat d # <b>"}, "dependencies": {"d:data"}, "cpus": {"1"}, "gpus": {"0"}, "memory": {"2g"}, "queue": {"gpu"}, "action": {"run"}}
	refused := func(field, value, sentence string) {
		t.Helper()
		wrong := url.Values{}
		for key, values := range typed {
			wrong[key] = values
		}
		wrong.Set(field, value)
		if got := a.form("/runs/new", wrong, nil, a.cookies...); got.status != http.StatusBadRequest || !strings.Contains(got.body, sentence) || !strings.Contains(got.body, "cat d # &lt;b&gt;") && field != "command" {
			t.Errorf("%s: %d %s", field, got.status, got.body)
		}
	}
	refused("cpus", "many", `<p id="problem-cpus" class="problem">`)
	refused("command", " ", "A run needs a command.")
	refused("dependencies", "d:nothing", `<p id="problem-dependencies" class="problem">`)
	refused("worksheet", "nowhere", `<p id="problem-worksheet" class="problem">`)
	refused("gpus", "8", "The nearest request that fits: --request-cpus 1 --request-gpus 4 --request-memory 2g.")
	send := func(action string) browserReply {
		typed.Set("action", action)
		return a.form("/runs/new", typed, nil, a.cookies...)
	}
	const line = "cl run --request-queue gpu d:data &#39;cat d # &lt;b&gt;&#39;</code>"
	if got := send("check"); got.status != http.StatusOK || !strings.Contains(got.body, line) {
		t.Errorf("%d %s", got.status, got.body)
	}
	a.shows(t, "/bundles/"+uuid, http.StatusNotFound)
	for range 2 { // a form that is sent twice leads to the same run
		if got := send("run"); got.status != http.StatusSeeOther || got.header.Get("Location") != "/bundles/"+uuid {
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	a.shows(t, "/bundles/"+uuid, http.StatusOK, "run-cat", data, `href="/runs/new?like=`+uuid)
	a.shows(t, "/runs", http.StatusOK, "run-cat")
	a.shows(t, "/runs/new?like="+uuid, http.StatusOK, "<h1>Run again</h1>", "d:"+data, `value="gpu"`, "cl run --like "+uuid+"</code>")
	a.shows(t, "/runs/new?like="+data, http.StatusBadRequest, "data is no run")
	typed.Set("uuid", codalab.NewUUID())
	typed.Set("queue", "gpus")
	if got := send("run"); !strings.Contains(got.body, "Did you mean gpu?") {
		t.Errorf("no warning: %s", got.body)
	}
	b := s.browse(t, "bob")
	b.shows(t, "/runs/new?like="+uuid, http.StatusNotFound)
	typed.Set("uuid", codalab.NewUUID())
	if got := a.form("/runs/new", typed, http.Header{"Sec-Fetch-Site": {"cross-site"}}, a.cookies...); got.status != http.StatusForbidden {
		t.Errorf("a form of another site: %d", got.status)
	}
}

// The best run of a sweep is one of its members, not another's bundle with its tag.
func TestBestOfASweepIsAMember(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.browse(t, "alice")
	sweep := s.sweep("grid")
	var mine []string
	for i, acc := range []string{"0.5", "0.75", "0.25"} {
		mine = append(mine, s.result(sweep, "mine", `{"acc": `+acc+`}`, codalab.Setting{Name: "lr", Value: fmt.Sprint(i)}))
	}
	foreign := s.call("bob", http.MethodPost, "/bundles?worksheet="+s.home("bob"), object("bundles", map[string]any{
		"bundle_type": codalab.TypeDataset, "metadata": metadata(codalab.TypeDataset, "foreign", map[string]any{"tags": codalab.SweepTags(sweep, nil)}),
	})).ok().text("data", 0, "id")
	s.call("bob", http.MethodPut, "/bundles/"+foreign+"/contents/blob/?filename=a.tar.gz&unpack=1", tarGz(t, map[string]string{"stats.json": `{"acc": 99}`})).ok()
	s.share("bob", "bundle", foreign, "public", store.PermissionRead)
	a.cookies = append(a.cookies, a.form("/sweeps/"+sweep+"/columns", url.Values{"columns": {"/stats.json:acc"}}, nil, a.cookies...).cookies...)
	if page := a.shows(t, "/sweeps", http.StatusOK, `<a href="/bundles/`+mine[1]+`">0.75</a>`); strings.Contains(page, foreign) {
		t.Errorf("the page shows %s", foreign)
	}
}

// A list of runs has values of result files as columns, which it remembers and sorts by.
func TestRunsAreShownWithValues(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	a := s.browse(t, "alice")
	sweep := s.sweep("grid")
	uuids := map[string]string{}
	for name, acc := range map[string]string{"low": "0.5", "high": "0.95", "mid": "0.9"} {
		uuids[name] = s.result(sweep, name, `{"acc": `+acc+`, "opt": "<b>adam</b>"}`)
	}
	s.upload("other", "1")
	const list = "/runs?q=.mine+type%3Ddataset"
	page := a.shows(t, list, http.StatusOK, `<a href="/runs?q=.mine&#43;type%3Ddataset&amp;choose=1">columns</a>`)
	if strings.Contains(page, `name="columns"`) || strings.Contains(page, "/stats.json") {
		t.Errorf("the page has a form that nobody wants: %s", page)
	}
	a.shows(t, list+"&choose=1", http.StatusOK, `action="/runs/columns?q=.mine&#43;type%3Ddataset&amp;choose=1"`, `name="column" value="/stats.json:acc">`, `name="column" value="/log.jsonl:-1:step">`)
	bad := a.form("/runs/columns?q=.mine+type%3Ddataset&choose=1", url.Values{"columns": {"acc<"}}, nil, a.cookies...)
	if bad.status != http.StatusBadRequest || !strings.Contains(bad.body, `id="columns-problem"`) || !strings.Contains(bad.body, `value="acc&lt;"`) || len(bad.cookies) > 0 {
		t.Errorf("%d %s", bad.status, bad.body)
	}
	chosen := a.form("/runs/columns?q=.mine+type%3Ddataset&page=0&choose=1", url.Values{"column": {"/stats.json:acc"}, "columns": {"/stats.json:opt /stdout /later.json:a=b"}}, nil, a.cookies...)
	if chosen.status != http.StatusSeeOther || chosen.header.Get("Location") != list || len(chosen.cookies) != 1 {
		t.Fatalf("%d %v %s", chosen.status, chosen.header, chosen.body)
	}
	a.cookies = append(a.cookies, chosen.cookies...)
	a.shows(t, list, http.StatusOK, `<th scope="col" class="number"><a href="/runs?q=.mine&#43;type%3Ddataset&#43;%2Fstats.json%3Aacc%3D.sort-">/stats.json:acc</a></th>`,
		`<td class="number">0.95</td>`, "<td>&lt;b&gt;adam&lt;/b&gt;</td>", `<th scope="col">/stdout</th>`, `<th scope="col">/later.json:a=b</th>`, ">other</a>")
	page = a.shows(t, list+"+%2Fstats.json%3Aacc%3D.sort-", http.StatusOK, `aria-sort="descending"><a href="/runs?q=.mine&#43;type%3Ddataset&#43;%2Fstats.json%3Aacc%3D.sort">`,
		"Bundles without /stats.json:acc are left out.", "cl search .last .limit=50 .mine type=dataset /stats.json:acc=.sort-</code>")
	if high, mid, low := strings.Index(page, uuids["high"]+`">high`), strings.Index(page, uuids["mid"]+`">mid`), strings.Index(page, uuids["low"]+`">low`); high < 0 || mid < high || low < mid || strings.Contains(page, ">other</a>") {
		t.Errorf("the order is %d %d %d: %s", high, mid, low, page)
	}
	a.shows(t, "/sweeps/"+sweep, http.StatusOK, `value="/stats.json:acc" checked>`) // they are remembered for all tables
	a.shows(t, "/runs?q=state%3Dnone", http.StatusOK, `There is no state &#34;none&#34;`)
}
