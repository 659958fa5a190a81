package main

import (
	"context"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/cl-slurm/cl-slurm/server"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/store/storetest"
)

// benchSearch measures searches of researchers among 100,000 bundles, and the start of a server that has
// them.
func benchSearch(ctx context.Context, dir string) {
	const bundles, starts = 100_000, 7
	data := filepath.Join(dir, "data")
	token := fillData(ctx, data, bundles)
	s := startServer(ctx, data)
	c := must(dial(ctx, s.address, nil))
	for _, search := range []namedSearch{
		{"word", "model-97"},
		{"absent_word", "nosuchword"},
		{"name", "name=train-model-7"},
		{"name_begins", "name=train-model-7%"},
		{"state", "state=failed"},
		{"mine", ".mine"},
		{"mine_state", ".mine state=failed"},
		{"tag", "tags=exp7"},
		{"newest_1000", ".limit=1000"},
		{"largest", "size=.sort-"},
		{"count", ".count"},
		{"count_state", ".count state=failed"},
		{"count_mine", ".count .mine"},
		{"shared", ".shared"},
		{"metadata", "request_queue=gpu"},
		{"count_metadata", ".count exitcode=1"},
		{"command", "command=%seed 777%"},
	} {
		figure{name: "server/search_100000_" + search.name, value: search.measure(c, token), unit: "ms", bar: 50}.print()
	}
	check(c.Close())
	s.end()
	var took []float64
	for range starts {
		took = append(took, seconds(func() {
			s = startServer(ctx, data)
			c = must(dial(ctx, s.address, nil))
			check(c.call(request(http.MethodGet, "/healthz", "", nil)))
		}))
		check(c.Close())
		s.end()
	}
	figure{name: "server/start_100000_bundles", value: median(took), unit: "s", bar: 1}.print()
}

// namedSearch is a search for bundles by keywords.
type namedSearch struct{ name, words string }

// measure returns the median of the milliseconds that a search takes.
func (s namedSearch) measure(c *caller, token string) float64 {
	query := url.Values{"keywords": strings.Fields(s.words), "worksheet": {"0xw"}, "include": {"owner"}}
	get := request(http.MethodGet, "/rest/bundles?"+query.Encode(), token, nil)
	check(c.call(get)) // the first call fills the page cache
	var took []float64
	for range 9 {
		took = append(took, seconds(func() { check(c.call(get)) })*1000)
	}
	return median(took)
}

// member is the number of the user who searches; that user is a member of a group.
const member = 4

// fillData makes a data directory with bundles of several users, and returns the token of member. The
// user's password is corePassword.
func fillData(ctx context.Context, dir string, bundles int) string {
	check(must(store.Open(ctx, dir)).Close())
	check(storetest.Fill(ctx, dir, bundles))
	check(storetest.AddContents(ctx, dir))
	s := openServer(ctx, dir, 0)
	defer func() { check(s.data.Close()) }()
	u := must(s.data.ChangeUser(ctx, storetest.User(member), func(u *store.User) error {
		u.Password = server.HashPassword(corePassword, coreCost())
		return nil
	}))
	return s.signIn(u.Name)
}
