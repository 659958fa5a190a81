package server_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/cl-slurm/cl-slurm/internal/outbound"
	"github.com/cl-slurm/cl-slurm/internal/testenv"
	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// turn says when the worker's exchanges come: before a line of cl begins, and while cl waits for
// the answer to it. begun is a check-in that is already held before that line, and whose message
// comes later.
type turn struct {
	before []int
	begun  int
	during []int
}

// turns are by line of cli.jsonl; line 0 is its end. They follow from the recorded times: both
// programs ran at once against one server.
func turns() map[int]turn {
	return map[int]turn{
		129: {before: sequence(1, 12)},
		140: {before: sequence(13, 17)},
		141: {during: sequence(18, 18)},
		144: {during: sequence(19, 20)},
		146: {begun: 21},
		147: {during: sequence(21, 22)},
		148: {during: sequence(23, 27)},
		150: {before: sequence(28, 29)},
		163: {before: sequence(30, 33), begun: 34},
		166: {during: sequence(34, 35)},
		168: {begun: 36},
		169: {during: sequence(36, 36)},
		171: {begun: 37},
		172: {during: sequence(37, 38)},
		173: {during: sequence(39, 42)},
		176: {during: sequence(43, 43)},
		195: {before: sequence(44, 44)},
		200: {before: sequence(45, 45)},
		210: {before: sequence(46, 47)},
		225: {before: sequence(48, 52)},
		260: {before: sequence(53, 53)},
		0:   {before: sequence(54, 64)},
	}
}

func sequence(first, last int) []int {
	var list []int
	for n := first; n <= last; n++ {
		list = append(list, n)
	}
	return list
}

// replay replays recordings.
type replay struct {
	*site
	clock   *clock
	address string // of our server
	// places are names of the recorded machine, and ours: in requests, and in answers.
	places [][2]string
	ids    identities
	met    map[int]int // by index in replayDifferences: how many fields

	exchanges, fields int
	// others are requests of other people, who used the recorded server too, by their time.
	others []otherRequest
}

type otherRequest struct {
	at   time.Time
	send func()
}

// TestReplayOfRecordedPrograms replays what CodaLab's own cl and cl-worker sent to CodaLab's own
// server, all of it and in order, and compares the answers with those of CodaLab's server.
func TestReplayOfRecordedPrograms(t *testing.T) {
	t.Parallel()
	p := newReplay(t)
	cli, worker := openRecording(t, "cli"), openRecording(t, "worker")
	p.others = append(p.others, p.worksheetsOfOthers(cli.lines[253])...)
	order := turns()
	for line, e := range cli.lines[1:] {
		line++
		if e.Command != "" {
			cli.played[line] = true
			p.ids.forgetItems()
			continue
		}
		turn := order[line]
		p.playAll(worker, turn.before)
		if turn.begun != 0 {
			p.begin(worker, turn.begun)
		}
		if line == 88 {
			p.makeLinked()
		}
		if turn.during == nil {
			p.play(cli, line)
			continue
		}
		p.meanwhile(cli, line, func() { p.playAll(worker, turn.during) })
	}
	p.playAll(worker, order[0].before)
	for _, r := range []*recording{cli, worker} {
		for line := range r.lines {
			if !r.played[line] {
				t.Errorf("%s.jsonl:%d is not replayed", r.name, line)
			}
		}
	}
	for i, d := range replayDifferences() {
		if p.met[i] == 0 {
			t.Errorf("no exchange shows this difference any more: %+v", d)
		}
		t.Logf("%4d fields differ on purpose at %s: %s", p.met[i], d.at, d.because)
	}
	t.Logf("%d lines of cl and %d of the worker: %d exchanges replayed and compared, %d fields, %d identifiers matched",
		len(cli.lines)-1, len(worker.lines)-1, p.exchanges, p.fields, len(p.ids.ours))
}

func newReplay(t *testing.T) *replay {
	t.Helper()
	moment := func(clock string) time.Time {
		at, err := time.Parse(time.RFC3339, "2026-11-20T"+clock+"Z")
		must(t, err)
		return at
	}
	linked := t.TempDir()
	data, err := store.OpenDatabase(context.Background(), t.TempDir(), testenv.ServerDatabase(t))
	must(t, err)
	t.Cleanup(func() { must(t, data.Close()) })
	p := &replay{
		site: &site{t: t, store: data, tokens: map[string]string{}}, clock: &clock{now: moment("07:57:09")},
		ids: newIdentities(), met: map[int]int{},
	}
	p.start(publicByDefault, func(c *server.Config) {
		c.Now, c.Hold, c.LinkRoots = p.clock.Now, 30*time.Millisecond, []string{linked}
		c.TransferTimeout = 50 * 365 * 24 * time.Hour // connections have deadlines of today, and the clock is in the past
		c.FetchPrivate = outbound.Places{Prefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Hosts: []string{"127.0.0.1"}}
	})
	must(t, data.AddUser(context.Background(), store.User{
		ID: store.RootID, Name: "codalab", Joined: store.Time{Time: p.clock.Now()}, TimeQuota: 3153600000, DiskQuota: 1099510000000, ParallelRunQuota: 100,
		Password: server.HashPassword("codalab", server.PasswordCost{Passes: 1, KiB: 8}),
	}))
	p.loginAgain("codalab")

	ours := httptest.NewServer(p.handler)
	t.Cleanup(ours.Close)
	p.address = strings.TrimPrefix(ours.URL, "http://")
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello\n")) }))
	t.Cleanup(web.Close)
	p.places = [][2]string{
		{"server.example:2900", p.address},
		{"127.0.0.1:22903", p.address},
		{"127.0.0.1:22999", strings.TrimPrefix(web.URL, "http://")},
		{"127.0.0.1%3A22999", strings.ReplaceAll(strings.TrimPrefix(web.URL, "http://"), ":", "%3A")},
		{"/data/", linked + "/"},
	}
	p.others = []otherRequest{
		{moment("07:57:32"), func() { p.home("codalab") }},
		{moment("07:57:37"), func() { p.uploadOther("a.txt", 6) }},
		{moment("07:57:40"), func() { p.uploadOther("d", 8194) }},
		{moment("07:57:50"), func() { p.uploadOther("other", 12398) }},
		{moment("08:03:40"), func() { p.uploadOther("other", 64) }},
		{moment("08:04:17"), p.checkInOther},
	}
	return p
}

// uploadOther uploads a dataset of this size: what the recorded server's other users had there counts
// in disk use, and is found by searches.
func (p *replay) uploadOther(name string, size int) {
	p.t.Helper()
	created := p.call("codalab", http.MethodPost, "/bundles?detached=1",
		object("bundles", map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", name, nil)})).ok()
	p.call("codalab", http.MethodPut, "/bundles/"+created.text("data", 0, "id")+"/contents/blob/?unpack=0&filename="+name, strings.Repeat("x", size)).ok()
}

// checkInOther is the check-in of the recorded server's other worker, as line 129 of cli.jsonl shows it.
func (p *replay) checkInOther() {
	p.t.Helper()
	p.call("codalab", http.MethodPost, "/workers/w1/checkin", map[string]any{
		"tag": nil, "group_name": nil, "cpus": 2, "gpus": 0, "memory_bytes": 25276514304, "free_disk_bytes": 74413936640,
		"dependencies": []string{}, "hostname": "vm", "runs": []string{}, "shared_file_system": false, "tag_exclusive": false,
		"exit_after_num_runs": 999999995, "is_terminating": false, "preemptible": false,
	}).ok()
}

// worksheetsOfOthers makes the worksheets that an answer to cl wls shows, besides those of the recording.
func (p *replay) worksheetsOfOthers(e exchange) []otherRequest {
	p.t.Helper()
	var list struct {
		Data []struct {
			Attributes struct {
				Name     string    `json:"name"`
				Title    *string   `json:"title"`
				Modified time.Time `json:"date_last_modified"`
			} `json:"attributes"`
		} `json:"data"`
	}
	must(p.t, json.Unmarshal([]byte(e.Answer), &list))
	var requests []otherRequest
	for _, one := range list.Data {
		name, title := one.Attributes.Name, one.Attributes.Title
		if name != "recws" && name != "home-codalab" {
			requests = append(requests, otherRequest{one.Attributes.Modified, func() {
				made := p.call("codalab", http.MethodPost, "/worksheets", object("worksheets", map[string]string{"name": name})).ok()
				if title != nil {
					p.call("codalab", http.MethodPatch, "/worksheets", map[string]any{"data": []any{map[string]any{
						"type": "worksheets", "id": made.text("data", 0, "id"), "attributes": map[string]any{"title": *title},
					}}}).ok()
				}
			}})
		}
	}
	return requests
}

// makeLinked makes the file to which a bundle links. CodaLab's server shows links' contents from another
// directory than that from which it makes bundles of them, and the recorded one had the file only in the
// latter.
func (p *replay) makeLinked() {
	p.t.Helper()
	must(p.t, os.WriteFile(p.ours("/data/a.txt"), []byte("hello\n"), 0o644))
}

// at advances the clock, and sends what others sent before then.
func (p *replay) at(when time.Time) {
	p.t.Helper()
	for {
		next := -1
		for i, o := range p.others {
			if !o.at.After(when) && (next < 0 || o.at.Before(p.others[next].at)) {
				next = i
			}
		}
		if next < 0 {
			break
		}
		p.clock.advance(p.others[next].at)
		p.others[next].send()
		p.others = append(p.others[:next], p.others[next+1:]...)
	}
	p.clock.advance(when)
}

// times returns when an exchange began and when it ended, to a second.
func (p *replay) times(e exchange) (began, ended time.Time) {
	p.t.Helper()
	date, err := http.ParseTime(e.header("Date"))
	must(p.t, err)
	ended = date.Add(time.Second / 2)
	return ended.Add(-time.Duration(e.Millis) * time.Millisecond), ended
}

func (p *replay) playAll(r *recording, lines []int) {
	p.t.Helper()
	for _, line := range lines {
		p.play(r, line)
	}
}

// play sends a recorded request and compares the answer. What it asks for may still be under way: a
// request that changes nothing is repeated for a while, until the answer is the recorded one.
func (p *replay) play(r *recording, line int) {
	p.t.Helper()
	e := r.lines[line]
	began, ended := p.times(e)
	p.at(began)
	if e.bringsMessage() {
		p.at(ended)
		p.finish(r, line)
		return
	}
	request := p.request(r, line)
	before := p.ids
	var c *comparison
	testenv.Poll(func() bool {
		p.ids = before.clone()
		c = p.compare(r, line, p.send(request))
		return len(c.wrong) == 0 || e.Method != http.MethodGet
	})
	p.accept(r, line, c)
}

// meanwhile sends a recorded request, and does something else before it takes the answer.
func (p *replay) meanwhile(r *recording, line int, do func()) {
	p.t.Helper()
	began, _ := p.times(r.lines[line])
	p.at(began)
	request, got := p.request(r, line), make(chan reply, 1)
	go func() { got <- p.send(request) }()
	do()
	a := testenv.Receive(p.t, fmt.Sprintf("%s.jsonl:%d: an answer", r.name, line), got)
	p.accept(r, line, p.compare(r, line, a))
}

// begin sends a check-in whose message is not there yet.
func (p *replay) begin(r *recording, line int) {
	p.t.Helper()
	began, _ := p.times(r.lines[line])
	p.at(began)
	r.begun[line] = p.send(p.request(r, line))
}

// finish repeats a check-in until there is a message.
func (p *replay) finish(r *recording, line int) {
	p.t.Helper()
	got, request := r.begun[line], p.request(r, line)
	for try := 0; try < 100 && (got.status == 0 || bytes.Equal(bytes.TrimSpace(got.body), []byte("[null]"))); try++ {
		got = p.send(request)
	}
	p.accept(r, line, p.compare(r, line, got))
}

// accept counts an exchange, and complains about differences that are not on purpose.
func (p *replay) accept(r *recording, line int, c *comparison) {
	p.t.Helper()
	if r.played[line] {
		p.t.Errorf("%s.jsonl:%d is replayed twice", r.name, line)
	}
	r.played[line] = true
	p.exchanges++
	p.fields += c.fields
	for _, i := range c.onPurpose {
		p.met[i]++
	}
	if len(c.wrong) > 0 {
		e := r.lines[line]
		p.t.Errorf("%s.jsonl:%d %s %s:\n%s", r.name, line, e.Method, e.Target, strings.Join(c.wrong, "\n"))
	}
}

// compare compares an answer with the recorded one.
func (p *replay) compare(r *recording, line int, got reply) *comparison {
	p.t.Helper()
	e := r.lines[line]
	where := fmt.Sprintf("%s %d %s %s", r.name, line, e.Method, e.Target)
	c := &comparison{ids: &p.ids, tokens: r.name, exchange: where}
	c.answer(e, got, p.recorded(string(got.body)), trees()[fmt.Sprint(r.name, " ", line)])
	return c
}
