package plan

import "time"

// OfferLasts is the time for which an offer is open.
const OfferLasts = 30 * 24 * time.Hour

// The most open offers of one user to another, and to a user of all others together.
const (
	MostOffersOfOne = 500
	MostOffers      = 2000
)

// Offer is an offer of an object to a user; the zero Offer is none.
type Offer struct {
	To   string // the user's id
	Made time.Time
}

// Open reports whether the offer can be accepted.
func (o Offer) Open(now time.Time) bool { return o.To != "" && now.Before(o.Ends()) }

// Ends returns the time at which the offer ends by itself.
func (o Offer) Ends() time.Time { return o.Made.Add(OfferLasts) }

// Giving is a request that names an owner of an object.
type Giving struct {
	// Owner is the object's owner, and Offer the owner's offer.
	Owner string
	Offer Offer
	// By is the user who asks, and Names the owner whom the request names.
	By, Names string
	// Root makes By's word final.
	Root bool
}

// Gift is what becomes of a Giving.
type Gift int

// The gifts. Only the first three are no refusals.
const (
	// GiftStays leaves the owner. If there was an offer and its owner or its receiver asks, the offer is over:
	// withdrawn or declined.
	GiftStays Gift = iota
	// GiftOffered makes an offer, and changes nothing else.
	GiftOffered
	// GiftGiven makes the named user the owner: that user accepts an offer, or root asks.
	GiftGiven
	// GiftNotOffered refuses a user who names themself and has no offer.
	GiftNotOffered
	// GiftNotOwner refuses a user who is not the owner and names somebody else.
	GiftNotOwner
)

// Decide returns what becomes of a request that names an owner.
func (g Giving) Decide(now time.Time) Gift {
	switch {
	case g.Names == g.Owner:
		return GiftStays
	case g.Root, g.Names == g.By && g.Offer.To == g.By && g.Offer.Open(now):
		return GiftGiven
	case g.Names == g.By:
		return GiftNotOffered
	case g.By == g.Owner:
		return GiftOffered
	}
	return GiftNotOwner
}

// Ends reports whether a request that names the present owner ends the offer: its owner takes it back, or its receiver
// declines it.
func (g Giving) Ends() bool {
	return g.Names == g.Owner && g.Offer.To != "" && (g.Root || g.By == g.Owner || g.By == g.Offer.To)
}

// Answers reports whether the request is a receiver's answer to an open offer, for which no permission on the object is
// needed.
func (g Giving) Answers(now time.Time) bool {
	return g.Offer.To == g.By && g.Offer.Open(now) && (g.Names == g.By || g.Names == g.Owner)
}
