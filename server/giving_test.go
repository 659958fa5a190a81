package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/store"
)

const bobsID, alicesID = "0xbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb", "0xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// chown names an owner of objects, as cl chown and cl wedit -o do.
func (s *site) chown(by, kind, owner string, uuids ...string) answer {
	s.t.Helper()
	var objects []any
	for _, uuid := range uuids {
		objects = append(objects, map[string]any{
			"type": kind, "id": uuid, "attributes": map[string]any{}, "relationships": map[string]any{"owner": link("users", owner)},
		})
	}
	return s.call(by, "PATCH", "/"+kind, map[string]any{"data": objects})
}

// owner returns the owner of a bundle.
func (s *site) owner(uuid string) string {
	s.t.Helper()
	return s.get("root", "/bundles/"+uuid).ok().text("data", "relationships", "owner", "data", "id")
}

// used returns a user's disk use.
func (s *site) used(user string) int64 {
	s.t.Helper()
	u, err := s.store.User(context.Background(), user)
	must(s.t, err)
	return u.DiskUsed
}

// offers returns the names of what a user is offered and offers, each with its size.
func (s *site) offers(user string) string {
	s.t.Helper()
	a := s.get(user, "/offers").ok()
	list, _ := a.value("data").([]any)
	var names []string
	for i := range list {
		names = append(names, fmt.Sprint(a.text("data", i, "attributes", "name"), ":", a.value("data", i, "attributes", "data_size")))
	}
	return strings.Join(names, " ")
}

// A stranger's 60 MB became another user's, whose running job was killed for quota.
func TestNobodyOwnsABundleWithoutConsent(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	big := s.upload("big", strings.Repeat("x", 1<<19))
	before, mine := s.used("bob"), s.used("alice")
	s.chown("alice", "bundles", "bob", big).ok()
	if s.owner(big) != alicesID || s.used("bob") != before || s.used("alice") != mine {
		t.Errorf("owner %s, bob uses %d, alice %d", s.owner(big), s.used("bob"), s.used("alice"))
	}
	if got := s.offers("bob"); got != "big:524288" {
		t.Errorf("bob is offered %q", got)
	}
}

func TestReceiverAcceptsAnOfferByTheSameCall(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "12345")
	s.share("alice", "bundle", uuid, "public", store.PermissionNone)
	mine := s.used("alice")
	s.chown("alice", "bundles", bobsID, uuid).ok()
	a := s.chown("bob", "bundles", bobsID, uuid).ok()
	if s.owner(uuid) != bobsID || s.used("alice") >= mine || s.used("bob") != 5+codalab.BlockSize || a.text("data", 0, "relationships", "owner", "data", "id") != bobsID {
		t.Errorf("owner %s, alice uses %d, bob %d: %s", s.owner(uuid), s.used("alice"), s.used("bob"), a.body)
	}
	s.get("alice", "/bundles/"+uuid+"/contents/blob/").is(http.StatusForbidden) // its giver reads only what groups of hers may
	if s.offers("bob") != "" || s.offers("alice") != "" {
		t.Errorf("offers are left: %q %q", s.offers("bob"), s.offers("alice"))
	}
}

func TestReceiverSeesNameAndSizeOfAnOfferAndNoContents(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "secret")
	s.get("bob", "/bundles/"+uuid).is(http.StatusNotFound)
	s.chown("alice", "bundles", bobsID, uuid).ok()
	for _, path := range []string{"/bundles/" + uuid + "?include=owner", "/bundles?specs=" + uuid + "&include=owner"} {
		a := s.get("bob", path).ok()
		if !strings.Contains(a.body, `"name":"data"`) || !strings.Contains(a.body, `"data_size":6`) || !strings.Contains(a.body, `"user_name":"alice"`) || !strings.Contains(a.body, `"bundle_type":"private"`) {
			t.Errorf("%s", a.body)
		}
	}
	s.get("bob", "/bundles/"+uuid+"/contents/blob/").is(http.StatusForbidden)
	if a := s.get("bob", "/bundles?keywords=uuid="+uuid).ok(); strings.Contains(a.body, uuid) {
		t.Errorf("a search finds it: %s", a.body)
	}
	s.addUser("carol")
	s.get("carol", "/bundles/"+uuid).is(http.StatusNotFound)
	s.share("alice", "bundle", uuid, "public", store.PermissionRead)
	if a := s.get("carol", "/bundles/"+uuid).ok(); strings.Contains(a.body, "offered") {
		t.Errorf("carol sees bob's offer: %s", a.body)
	}
	if b := s.bundle("alice", uuid); b.OfferedTo != bobsID || b.OfferedUntil < time.Now().Unix() {
		t.Errorf("%+v", b)
	}
}

func TestAcceptedBundlesFitIntoTheReceiversQuota(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuids := []string{s.upload("a", strings.Repeat("x", 300<<10)), s.upload("b", strings.Repeat("x", 300<<10))}
	_, err := s.store.ChangeUser(t.Context(), bobsID, func(u *store.User) error { u.DiskQuota = 500 << 10; return nil })
	must(t, err)
	s.chown("alice", "bundles", bobsID, uuids...).ok()
	s.chown("bob", "bundles", bobsID, uuids...).says(http.StatusBadRequest, "500k of your disk quota are left, and what you accept takes 608k.")
	if s.owner(uuids[0]) != alicesID || s.used("bob") != 0 {
		t.Errorf("bob owns %s and uses %d", uuids[0], s.used("bob"))
	}
	var accepted sync.WaitGroup // at the same time
	var codes [2]int
	for i, uuid := range uuids {
		accepted.Go(func() { codes[i] = s.chown("bob", "bundles", bobsID, uuid).status })
	}
	accepted.Wait()
	if codes[0]+codes[1] != http.StatusOK+http.StatusBadRequest || s.used("bob") != 300<<10+codalab.BlockSize {
		t.Errorf("%v, bob uses %d", codes, s.used("bob"))
	}
}

// accept is a receiver's attempt at a bundle that is not offered any more.
func (s *site) acceptsNothing(uuid string) {
	s.t.Helper()
	if a := s.chown("bob", "bundles", bobsID, uuid); a.status != http.StatusForbidden {
		s.t.Errorf("bob accepts: %d %s", a.status, a.body)
	}
	if s.owner(uuid) != alicesID {
		s.t.Errorf("bob owns it")
	}
}

func TestOffersEnd(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(s *site, uuid string){
		"withdrawn by its owner": func(s *site, uuid string) { s.chown("alice", "bundles", alicesID, uuid).ok() },
		"declined by its receiver": func(s *site, uuid string) {
			if a := s.chown("bob", "bundles", alicesID, uuid).ok(); strings.Contains(a.body, "secret") {
				s.t.Errorf("%s", a.body)
			}
		},
		"offered to somebody else": func(s *site, uuid string) { s.addUser("carol"); s.chown("alice", "bundles", "carol", uuid).ok() },
		"its contents are removed": func(s *site, uuid string) {
			s.call("alice", "DELETE", "/bundles?data-only=1", deletion("bundles", uuid)).ok()
		},
		"another owner": func(s *site, uuid string) {
			s.chown("root", "bundles", "root", uuid).ok()
			s.chown("root", "bundles", "alice", uuid).ok()
		},
		"after a long time": func(*site, string) { time.Sleep(plan.OfferLasts) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newSite(t)
				uuid := s.upload("secret", "x")
				s.chown("alice", "bundles", bobsID, uuid).ok()
				end(s, uuid)
				s.loginAgain("alice", "bob", "root")
				s.acceptsNothing(uuid)
				if got := s.offers("bob"); got != "" {
					t.Errorf("bob is still offered %s", got)
				}
				if b := s.bundle("alice", uuid); b.OfferedTo == bobsID {
					t.Errorf("%+v", b)
				}
			})
		})
	}
}

func TestOfferEndsWithItsReceiver(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	s.addUser("carol")
	s.chown("alice", "bundles", "carol", uuid).ok()
	s.call("root", "DELETE", "/worksheets", deletion("worksheets", s.home("carol"))).ok()
	s.call("carol", "DELETE", "/users", deletion("users", "0x"+strings.Repeat("c", 32))).ok()
	s.addUser("carol") // another one of the same id
	if got := s.offers("carol"); got != "" {
		t.Errorf("carol is offered %s", got)
	}
}

func TestFrozenBundleIsDeclined(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	s.chown("alice", "bundles", bobsID, uuid).ok()
	s.patch("alice", "bundles", uuid, map[string]any{"frozen": "2026-11-20T08:00:00"}).ok()
	s.chown("bob", "bundles", bobsID, uuid).says(http.StatusForbidden, "Cannot mutate frozen bundle")
	s.chown("bob", "bundles", alicesID, uuid).ok()
	if got := s.offers("bob"); got != "" {
		t.Errorf("bob is still offered %s", got)
	}
}

// A member of a group that may change a bundle may delete it, but neither take it nor burden somebody with it.
func TestOnlyTheOwnerOffers(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.addUser("carol")
	uuid := s.upload("data", "x")
	sheet := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "w"})).ok().text("data", 0, "id")
	s.call("alice", "POST", "/groups", object("groups", map[string]string{"name": "lab"})).ok()
	s.call("alice", "POST", "/groups/lab/relationships/members", deletion("users", "bob")).ok()
	s.share("alice", "bundle", uuid, "lab", store.PermissionAll)
	s.share("alice", "worksheet", sheet, "lab", store.PermissionAll)
	for kind, id := range map[string]string{"bundles": uuid, "worksheets": sheet} {
		s.chown("bob", kind, bobsID, id).says(http.StatusForbidden, "Nobody offers you "+kind[:len(kind)-1]+" "+id)
		s.chown("bob", kind, "carol", id).says(http.StatusForbidden, "Only the owner of")
		s.chown("bob", kind, alicesID, id).ok() // she is the owner
		s.chown("carol", kind, "carol", id).is(http.StatusForbidden)
	}
	if s.owner(uuid) != alicesID {
		t.Errorf("%s", s.owner(uuid))
	}
}

// Groups that could change a bundle can only read it under its new owner, whom the giver's groups did not ask.
func TestAcceptedObjectsAreChangedByTheirNewOwnerAlone(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	sheet := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "w"})).ok().text("data", 0, "id")
	s.share("alice", "bundle", uuid, "public", store.PermissionAll)
	s.share("alice", "worksheet", sheet, "public", store.PermissionAll)
	for kind, id := range map[string]string{"bundles": uuid, "worksheets": sheet} {
		s.chown("alice", kind, bobsID, id).ok()
		s.chown("bob", kind, bobsID, id).ok()
		s.patch("alice", kind, id, map[string]any{"is_anonymous": true}).says(http.StatusForbidden, "(have read, need all)")
	}
	s.get("alice", "/bundles/"+uuid+"/contents/blob/").ok()
	_, err := s.store.Check(t.Context(), false, func(f store.Finding) { t.Errorf("%+v", f) })
	must(t, err)
}

func TestRootGivesAtOnce(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	s.share("alice", "bundle", uuid, "public", store.PermissionAll)
	s.chown("root", "bundles", bobsID, uuid).ok()
	if s.owner(uuid) != bobsID || s.used("bob") != 1+codalab.BlockSize {
		t.Errorf("owner %s, bob uses %d", s.owner(uuid), s.used("bob"))
	}
	s.patch("alice", "bundles", uuid, map[string]any{"is_anonymous": true}).ok() // as on CodaLab's own server
}

func TestAnswerToAnOfferChangesNothingElse(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	s.chown("alice", "bundles", bobsID, uuid).ok()
	for _, owner := range []string{bobsID, alicesID} {
		s.call("bob", "PATCH", "/bundles", map[string]any{"data": []any{map[string]any{
			"type": "bundles", "id": uuid, "attributes": map[string]any{"metadata": map[string]any{"name": "mine"}},
			"relationships": map[string]any{"owner": link("users", owner)},
		}}}).is(http.StatusForbidden)
	}
	if b := s.bundle("alice", uuid); b.Metadata.String("name") != "data" || b.OfferedTo != bobsID {
		t.Errorf("%+v", b)
	}
}

func TestWorksheetIsOfferedAndAccepted(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	sheet := s.call("alice", "POST", "/worksheets", object("worksheets", map[string]string{"name": "w"})).ok().text("data", 0, "id")
	s.share("alice", "worksheet", sheet, "public", store.PermissionNone)
	owner := func() string {
		return s.get("root", "/worksheets/"+sheet).ok().text("data", "relationships", "owner", "data", "id")
	}
	s.chown("alice", "worksheets", bobsID, sheet).ok()
	if owner() != alicesID || s.offers("bob") != "w:0" {
		t.Errorf("%s owns it, bob is offered %q", owner(), s.offers("bob"))
	}
	s.chown("bob", "worksheets", alicesID, sheet) // declined; bob may not see the worksheet
	s.chown("bob", "worksheets", bobsID, sheet).is(http.StatusForbidden)
	s.chown("alice", "worksheets", bobsID, sheet).ok()
	s.chown("bob", "worksheets", bobsID, sheet).ok()
	if owner() != bobsID {
		t.Errorf("%s owns it", owner())
	}
}

func TestHomeWorksheetIsNotGivenAway(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.chown("alice", "worksheets", bobsID, s.home("alice")).says(http.StatusBadRequest, "A home worksheet cannot be given away")
}

// An offer is a way to bother somebody.
func TestOpenOffersAreBounded(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var uuids []string
	for i := range plan.MostOffersOfOne {
		b := store.Bundle{UUID: codalab.NewUUID(), Type: "dataset", OwnerID: alicesID, State: codalab.StateReady, Metadata: codalab.Metadata{"name": fmt.Sprint("b", i)}}
		must(t, s.store.CreateBundle(t.Context(), b, ""))
		uuids = append(uuids, b.UUID)
	}
	more := s.upload("more", "x")
	s.chown("alice", "bundles", bobsID, append(uuids, more)...).says(http.StatusForbidden, "You may have 500 open offers to one user, and have 0")
	s.chown("alice", "bundles", bobsID, uuids...).ok()
	s.chown("alice", "bundles", bobsID, more).says(http.StatusForbidden, "and have 500")
	s.chown("alice", "bundles", bobsID, uuids[0]).ok() // no new one
	s.chown("bob", "bundles", alicesID, uuids[0]).ok()
	s.chown("alice", "bundles", bobsID, more).ok()
	ofOne, ofAll, err := s.store.CountOffers(t.Context(), alicesID, bobsID, time.Time{})
	if err != nil || ofOne != 500 || ofAll != 500 {
		t.Errorf("%d %d %v", ofOne, ofAll, err)
	}
}

func TestOfferNamesAnotherUserWhoExists(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("data", "x")
	s.chown("alice", "bundles", "nobody", uuid).says(http.StatusNotFound, "User nobody not found")
	s.chown("alice", "bundles", bobsID, "0x"+strings.Repeat("9", 32)).is(http.StatusForbidden)
	s.chown("", "bundles", bobsID, uuid).is(http.StatusUnauthorized)
}

// An open upload counts while it is under way, so that two of a kind do not fit into one rest of a quota.
func TestAcceptedBundlesFitBesideUploadsUnderWay(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	uuid := s.upload("a", strings.Repeat("x", 600<<10))
	s.chown("alice", "bundles", bobsID, uuid).ok()
	open := s.call("bob", "POST", "/bundles?detached=1", object("bundles", map[string]any{"bundle_type": "dataset", "metadata": metadata("dataset", "x", nil)})).ok().text("data", 0, "id")
	body, send := io.Pipe()
	done := make(chan answer)
	go func() { done <- s.call("bob", "PUT", "/bundles/"+open+"/contents/blob/?filename=x&unpack=0", body) }()
	for _, text := range []string{strings.Repeat("x", 600<<10), "y"} { // the server counts the first before it reads the second
		_, err := io.WriteString(send, text)
		must(t, err)
	}
	s.chown("bob", "bundles", bobsID, uuid).says(http.StatusBadRequest, "of your disk quota are left")
	must(t, send.Close())
	(<-done).ok()
	s.chown("bob", "bundles", bobsID, uuid).is(http.StatusBadRequest)
}
