package accounts

import (
	"net/http"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/present"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

func (s *Accounts) offerRoutes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /offers", Serve: s.listOffers, Differs: "CodaLab has no offers: there a bundle or worksheet is the other user's at once. The list has those to the user and those of the user"},
	}
}

// listOffers returns the open offers to the user and of the user. The receiver of an offer sees the name and the size of
// what is offered, also without a permission to read it.
func (s *Accounts) listOffers(w http.ResponseWriter, r *http.Request, u store.User) error {
	offers, err := s.config.Store.Offers(r.Context(), u.ID, s.config.Now().Add(-plan.OfferLasts))
	if err != nil {
		return err
	}
	objects, people := []codalab.Object{}, []string{}
	for _, one := range offers {
		charge := one.Charge()
		o := codalab.NewObject("offers", one.UUID, codalab.Offer{
			UUID: one.UUID, Kind: string(one.Kind), Name: one.Name, BundleType: one.Type, DataSize: one.DataSize,
			Charge: charge.Bytes, Entries: charge.Entries,
			Made: one.Made.Unix(), Until: present.OfferEnds(one.Offer),
		})
		o.Relationships = map[string]codalab.Relationship{
			"giver": codalab.ToOne("users", one.OwnerID), "receiver": codalab.ToOne("users", one.To),
		}
		objects, people = append(objects, o), append(people, one.OwnerID, one.To)
	}
	users, err := present.UserObjects(r.Context(), s.config.Store, people)
	if err != nil {
		return err
	}
	return rest.WriteDocument(w, objects, users)
}
