package plan

import (
	"testing"
	"time"
)

// TestOnlyTheOwnerTheReceiverAndRootDecideAboutAnOwner asks as every user, naming every user, with every offer.
func TestOnlyTheOwnerTheReceiverAndRootDecideAboutAnOwner(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	users := []string{"owner", "receiver", "other", "root"}
	for _, offer := range []Offer{{}, {To: "receiver", Made: now}, {To: "receiver", Made: now.Add(-OfferLasts)}} {
		for _, by := range users {
			for _, names := range users {
				g := Giving{Owner: "owner", Offer: offer, By: by, Names: names, Root: by == "root"}
				open := offer.To != "" && offer.Made.Equal(now)
				want := GiftNotOwner
				switch {
				case names == "owner":
					want = GiftStays
				case by == "root", by == "receiver" && names == by && open:
					want = GiftGiven
				case by == "owner":
					want = GiftOffered
				case names == by:
					want = GiftNotOffered
				}
				if got := g.Decide(now); got != want {
					t.Errorf("%+v: %d, want %d", g, got, want)
				}
				if ends := names == "owner" && offer.To != "" && by != "other"; g.Ends() != ends {
					t.Errorf("%+v ends the offer: %t", g, g.Ends())
				}
				if answers := open && by == "receiver" && (names == by || names == "owner"); g.Answers(now) != answers {
					t.Errorf("%+v is an answer: %t", g, g.Answers(now))
				}
			}
		}
	}
}
