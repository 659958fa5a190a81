package access

import (
	"context"
	"net/http"
	"time"

	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Giving is a user's request that names an owner of objects of a kind.
type Giving struct {
	Kind store.Shared
	By   store.User
	// To is the id of the named owner; empty if the request names none.
	To  string
	Now time.Time
}

func (g Giving) plan(owner string, offer store.Offer) plan.Giving {
	return plan.Giving{
		Owner: owner, Offer: plan.Offer{To: offer.To, Made: offer.Made.Time}, By: g.By.ID, Names: g.To, Root: g.By.Root(),
	}
}

// Answers reports whether the request is a receiver's answer to an open offer of an object, for which no permission on
// the object is needed.
func (g Giving) Answers(owner string, offer store.Offer) bool {
	return g.To != "" && g.plan(owner, offer).Answers(g.Now)
}

// Ends reports whether the request ends an object's offer and changes nothing else.
func (g Giving) Ends(owner string, offer store.Offer) bool {
	return g.To != "" && g.plan(owner, offer).Ends()
}

// Apply changes the owner or the offer of an object, or refuses the request.
func (g Giving) Apply(uuid string, owner *string, offer *store.Offer) (plan.Gift, error) {
	if g.To == "" {
		return plan.GiftStays, nil
	}
	wish := g.plan(*owner, *offer)
	gift := wish.Decide(g.Now)
	switch gift {
	case plan.GiftStays:
		if wish.Ends() {
			*offer = store.Offer{}
		}
	case plan.GiftOffered:
		*offer = store.Offer{To: g.To, Made: store.Time{Time: g.Now}}
	case plan.GiftGiven:
		*owner, *offer = g.To, store.Offer{}
	case plan.GiftNotOffered:
		return gift, rest.Refuse(http.StatusForbidden, "Nobody offers you %s %s: its owner has to do so first.", g.Kind, uuid)
	case plan.GiftNotOwner:
		return gift, rest.Refuse(http.StatusForbidden, "Only the owner of %s %s can offer it to somebody else.", g.Kind, uuid)
	}
	return gift, nil
}

// CheckOffers refuses new offers, if there are too many of one user to another, or for a receiver.
func (a Access) CheckOffers(ctx context.Context, offers []Giving) error {
	more := map[string]int{} // by receiver
	for _, g := range offers {
		more[g.To]++
	}
	for _, g := range offers {
		n := more[g.To]
		if n == 0 {
			continue // checked
		}
		delete(more, g.To)
		ofOne, ofAll, err := a.Store.CountOffers(ctx, g.By.ID, g.To, g.Now.Add(-plan.OfferLasts))
		switch {
		case err != nil:
			return err
		case ofOne+n > plan.MostOffersOfOne:
			return rest.Refuse(http.StatusForbidden, "You may have %d open offers to one user, and have %d: wait until they are accepted, take some back, or ask the administrator.",
				plan.MostOffersOfOne, ofOne)
		case ofAll+n > plan.MostOffers:
			return rest.Refuse(http.StatusForbidden, "The user has %d open offers, and may have %d: the user has to accept or decline some first.", ofAll, plan.MostOffers)
		}
	}
	return nil
}

// seesOffer reports whether a user sees a bundle's offer: those who may change the bundle do, and the receiver.
func (a Access) seesOffer(u store.User, b store.Bundle, have int) bool {
	offer := plan.Offer{To: b.Offer.To, Made: b.Offer.Made.Time}
	return offer.Open(a.Now()) && (have >= store.PermissionAll || offer.To == u.ID && !u.Bounded())
}
