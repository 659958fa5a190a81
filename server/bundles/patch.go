package bundles

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/plan"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/sharing"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// edit is a client's change of a bundle.
type edit struct {
	codalab.BundleEdit
	giving access.Giving

	// The other fields are those of the checked edit.
	checked bool
	gift    plan.Gift     // what becomes of giving
	more    bool          // the offer is a new one
	charge  codalab.Space // what the bundle counts in its owner's quota
}

// answers reports whether the edit only answers an offer of the bundle.
func (e *edit) answers(b store.Bundle) bool {
	return e.namesOwnerOnly() && e.giving.Answers(b.OwnerID, b.Offer)
}

func (e *edit) namesOwnerOnly() bool {
	return len(e.Metadata) == 0 && len(e.Frozen) == 0 && e.IsAnonymous == nil
}

// accepts reports whether the edit accepts an offer.
func (e *edit) accepts() bool { return e.gift == plan.GiftGiven && !e.giving.By.Root() }

// patchBundles changes bundles. Metadata is merged key by key (codalab/rest/bundles.py:
// _update_bundles). A new owner has to accept a bundle first, unless root gives it.
func (s *Bundles) patchBundles(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	edits, err := s.readEdits(r.Context(), u, objects) // all are checked before any change
	if err != nil {
		return err
	}
	if err := s.checkOffers(r.Context(), edits); err != nil {
		return err
	}
	var uuids []string
	for _, o := range objects {
		uuids = append(uuids, o.ID)
	}
	if err := s.change(r.Context(), u, uuids, edits); err != nil {
		return err
	}
	shown := map[string]bool{} // also what the user has declined
	for _, uuid := range uuids {
		shown[uuid] = true
	}
	return s.writeBundles(w, r, u, uuids, shown)
}

// readEdits reads edits, and refuses those that the user may not make.
func (s *Bundles) readEdits(ctx context.Context, u store.User, objects []codalab.Object) ([]edit, error) {
	edits := make([]edit, len(objects))
	owners := map[string]string{} // by their specs
	for i, o := range objects {
		e := &edits[i]
		if o.Decode(e) != nil {
			return nil, rest.Refuse(http.StatusBadRequest, "A bundle's attributes have the wrong types")
		}
		e.giving = access.Giving{Kind: store.SharedBundle, By: u, Now: s.config.Now()}
		spec := string(o.Relationships["owner"].Data)
		owner, known := owners[spec]
		if !known {
			var err error
			if owner, err = s.config.Access.NewOwner(ctx, o); err != nil {
				return nil, err
			}
			owners[spec] = owner
		}
		e.giving.To = owner
	}
	bundles, err := s.editable(ctx, u, objects, edits)
	if err != nil {
		return nil, err
	}
	for i, b := range bundles {
		e := &edits[i]
		b.Metadata = maps.Clone(b.Metadata) // another edit may be of the same bundle
		before := b.Offer
		if err := e.apply(&b); err != nil {
			return nil, err
		}
		e.checked, e.charge = true, b.Charge()
		e.more = e.gift == plan.GiftOffered && before.To != b.Offer.To
	}
	return edits, nil
}

// editable returns the bundles of edits: those that the user may change, and those to whose offers the edits are answers.
func (s *Bundles) editable(ctx context.Context, u store.User, objects []codalab.Object, edits []edit) ([]store.Bundle, error) {
	var given, others []string
	for i, o := range objects {
		if edits[i].giving.To != "" {
			given = append(given, o.ID)
		}
	}
	offered, err := s.config.Store.Bundles(ctx, given)
	if err != nil {
		return nil, err
	}
	answered := func(i int) (store.Bundle, bool) {
		b, ok := offered[objects[i].ID]
		return b, ok && edits[i].giving.To != "" && edits[i].answers(b)
	}
	for i, o := range objects {
		if _, ok := answered(i); !ok {
			others = append(others, o.ID)
		}
	}
	writable, err := s.config.Access.AllWritable(ctx, u, others)
	if err != nil {
		return nil, err
	}
	bundles := make([]store.Bundle, len(objects))
	for i := range objects {
		b, ok := answered(i)
		if !ok {
			b, writable = writable[0], writable[1:]
		}
		bundles[i] = b
	}
	return bundles, nil
}

// checkOffers refuses edits that make too many offers.
func (s *Bundles) checkOffers(ctx context.Context, edits []edit) error {
	var offers []access.Giving
	for _, e := range edits {
		if e.more {
			offers = append(offers, e.giving)
		}
	}
	return s.config.Access.CheckOffers(ctx, offers)
}

// change makes edits. What the user accepts has to fit into the rest of the user's disk quota.
func (s *Bundles) change(ctx context.Context, u store.User, uuids []string, edits []edit) error {
	all := func() error {
		var others []store.BundleChange
		for i, uuid := range uuids {
			if !edits[i].accepts() {
				others = append(others, store.BundleChange{UUID: uuid, Decide: edits[i].apply})
				continue
			}
			if _, err := s.config.Store.AcceptBundle(ctx, uuid, edits[i].apply); err != nil {
				return err
			}
			s.config.Changed(uuid)
		}
		changed, err := s.config.Store.ChangeEach(ctx, others)
		s.config.Changed(slices.Collect(maps.Keys(changed))...)
		return err
	}
	var accepted codalab.Space
	some := false
	for _, e := range edits {
		if e.accepts() {
			some = true
			accepted = accepted.Plus(e.charge)
		}
	}
	if !some {
		return all()
	}
	left, err := s.config.Contents.Quotas.Within(ctx, u.ID, accepted, all)
	if errors.Is(err, store.ErrTooLarge) {
		return tooLarge(accepted, left)
	}
	return err
}

// tooLarge refuses bundles that count more than is left of their receiver's quota.
func tooLarge(accepted, left codalab.Space) error {
	left = left.AtLeast(codalab.Space{})
	if accepted.Bytes > left.Bytes {
		return rest.Refuse(http.StatusBadRequest, "%s of your disk quota are left, and what you accept takes %s.", codalab.FormatSize(left.Bytes), codalab.FormatSize(accepted.Bytes))
	}
	return rest.Refuse(http.StatusBadRequest, "You may have %d more files, directories, links and bundles, and what you accept takes %d.", left.Entries, accepted.Entries)
}

// setPermissions sets the permissions of groups on bundles (codalab/rest/bundles.py: set_bundle_permissions).
func (s *Bundles) setPermissions(w http.ResponseWriter, r *http.Request, u store.User) error {
	return sharing.Set(w, r, s.config.Access, u, store.SharedBundle, func(uuids []string) error {
		bundles, err := s.config.Access.AllWritable(r.Context(), u, uuids)
		for _, b := range bundles {
			if err == nil {
				err = access.BundleNotFrozen(b)
			}
		}
		return err
	})
}

// apply makes the change or refuses it.
func (e *edit) apply(b *store.Bundle) error {
	freeze, thaw := len(e.Frozen) > 0 && string(e.Frozen) != "null", string(e.Frozen) == "null"
	ends := e.namesOwnerOnly() && e.giving.Ends(b.OwnerID, b.Offer)
	if err := access.BundleNotFrozen(*b); err != nil && !thaw && !ends {
		return err
	}
	if freeze && !b.State.Final() {
		return rest.Refuse(http.StatusForbidden, "Cannot freeze bundle %s(%s), bundle is not in a final state.", b.UUID, b.Metadata.String("name"))
	}
	if err := codalab.CheckMetadata(b.Type, e.Metadata, false); err != nil {
		return rest.Refuse(http.StatusBadRequest, "%s", err)
	}
	if name, ok := e.Metadata["name"].(string); ok {
		if err := access.CheckName(name); err != nil {
			return err
		}
	}
	if err := e.checkSecrets(*b); err != nil { // first: root may do what checkUnfinished refuses to others
		return err
	}
	if err := e.checkUnfinished(*b); err != nil {
		return err
	}
	changed := e.changedKeys(*b)
	maps.Copy(b.Metadata, e.Metadata)
	if err := checkTextSize(b.Metadata, rest.Deref(b.Command)); err != nil {
		return err
	}
	if e.Metadata.Has("data_size") { // clients cannot change the size
		b.Metadata["data_size"] = b.DataSize
	}
	if e.IsAnonymous != nil {
		b.IsAnonymous = *e.IsAnonymous
	}
	if len(changed) > 0 {
		b.Record(codalab.ActionEdited, codalab.EventDetails{Keys: changed})
	}
	gift, err := e.giving.Apply(b.UUID, &b.OwnerID, &b.Offer)
	if err != nil {
		return err
	}
	if e.checked && (gift != e.gift || e.accepts() && b.Charge() != e.charge) {
		return rest.Refuse(http.StatusConflict, "Bundle %s has changed meanwhile: try again.", b.UUID)
	}
	e.gift = gift
	if thaw && b.Frozen != nil {
		b.Frozen = nil
		b.Record(codalab.ActionThawed, codalab.EventDetails{})
	}
	if freeze {
		var at string
		if json.Unmarshal(e.Frozen, &at) != nil {
			return rest.Refuse(http.StatusBadRequest, "frozen must be a time or null")
		}
		b.Frozen = &at
		b.Record(codalab.ActionFroze, codalab.EventDetails{})
	}
	return nil
}

// changedKeys returns the keys that the change gives other values than a bundle has.
func (e *edit) changedKeys(b store.Bundle) []string {
	var keys []string
	for _, key := range slices.Sorted(maps.Keys(e.Metadata)) {
		was, err := json.Marshal(b.Metadata[key])
		is, err2 := json.Marshal(e.Metadata[key])
		if err != nil || err2 != nil || !bytes.Equal(was, is) || !b.Metadata.Has(key) {
			keys = append(keys, key)
		}
	}
	if e.IsAnonymous != nil && *e.IsAnonymous != b.IsAnonymous {
		keys = append(keys, "is_anonymous")
	}
	return keys
}

// checkUnfinished refuses changes of a bundle that has not ended which others would have to pay for: its
// command would run as that of another owner, a worker would be counted as fuller or emptier than it
// is, or the owner's time as less than it was.
func (e *edit) checkUnfinished(b store.Bundle) error {
	if b.State.Final() || e.giving.By.Root() {
		return nil
	}
	if e.giving.To != "" && e.giving.To != b.OwnerID {
		return rest.Refuse(http.StatusForbidden, "Bundle %s has not ended: only root can change its owner now.", b.UUID)
	}
	for _, key := range codalab.MetadataKeys(b.Type) {
		kept := key.Generated && key.Key != "failure_message" || b.State.OnWorker() && strings.HasPrefix(key.Key, "request_")
		if kept && e.Metadata.Has(key.Key) {
			return rest.Refuse(http.StatusForbidden, "Metadata key %s cannot be changed while bundle %s is %s.", key.Key, b.UUID, b.State)
		}
	}
	return nil
}
