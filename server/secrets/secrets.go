package secrets

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
	"github.com/cl-slurm/cl-slurm/server/vault"
)

// Config has what Secrets needs. All fields are required.
type Config struct {
	Now   func() time.Time
	Store *store.Store
	// Vault has the key.
	Vault *vault.Vault
}

// Secrets serves secrets.
type Secrets struct{ config Config }

// New returns Secrets.
func New(c Config) *Secrets { return &Secrets{c} }

// Routes returns the routes for secrets. CodaLab's own server has none of them.
func (s *Secrets) Routes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /secrets", Serve: s.list, Differs: "only this server has it: it lists the user's secrets, and no values"},
		{Pattern: "POST /secrets", Serve: s.set, Differs: "only this server has it: it sets secrets of the user"},
		{Pattern: "DELETE /secrets", Serve: s.remove, Differs: "only this server has it: it removes secrets of the user"},
		{Pattern: "POST /workers/{worker}/secrets/{uuid}", Serve: s.give, Worker: true, WorkerToken: true, Audited: true, Differs: "only this server has it: it gives the values of a run's secrets to the worker that has claimed the run; a worker of another user for a group gets none"},
	}
}

// kind is the type of secrets as objects of the REST API. Their ids are their names.
const kind = "secrets"

// list lists the user's secrets.
func (s *Secrets) list(w http.ResponseWriter, r *http.Request, u store.User) error {
	have, err := s.config.Store.Secrets(r.Context(), u.ID)
	if err != nil {
		return err
	}
	keyID, err := s.keyID()
	if err != nil {
		return err
	}
	objects := []codalab.Object{}
	for _, one := range have {
		shown := codalab.Secret{Name: one.Name, Set: one.Set.Unix(), Lost: one.KeyID != keyID}
		if !one.Used.IsZero() {
			shown.LastUsed = one.Used.Unix()
		}
		objects = append(objects, codalab.NewObject(kind, one.Name, shown))
	}
	return rest.WriteDocument(w, objects, nil)
}

// keyID returns the id of the present key; empty if there is none.
func (s *Secrets) keyID() (string, error) {
	key, err := s.config.Vault.Key()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	}
	return key.ID(), nil
}

// set adds secrets of the user, or replaces their values. The answer does not repeat the values.
func (s *Secrets) set(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	values := make([]codalab.NewSecret, len(objects))
	for i, o := range objects { // check all before setting any
		if o.Type != kind || o.Decode(&values[i]) != nil {
			return rest.Refuse(http.StatusBadRequest, "A secret has the type 'secrets', its name as the id, and a text as the value")
		}
		if err := codalab.CheckSecretName(o.ID); err != nil {
			return rest.Refuse(http.StatusBadRequest, "%s", err)
		}
		if err := codalab.CheckSecretValue(values[i].Value); err != nil {
			return rest.Refuse(http.StatusBadRequest, "%s", err)
		}
	}
	key, err := s.config.Vault.Make()
	if err != nil {
		return err
	}
	now, answer := store.Time{Time: s.config.Now()}, []codalab.Object{}
	for i, o := range objects {
		secret := store.Secret{UserID: u.ID, Name: o.ID, Sealed: key.Seal(u.ID, o.ID, values[i].Value), KeyID: key.ID(), Set: now}
		err := s.config.Store.SetSecret(r.Context(), secret, codalab.MaxSecrets)
		if errors.Is(err, store.ErrTooMany) {
			return rest.Refuse(http.StatusForbidden, "You have %d secrets already, as many as you may have: cl secret rm removes those that you do not need.", codalab.MaxSecrets)
		}
		if err != nil {
			return err
		}
		answer = append(answer, codalab.NewObject(kind, o.ID, codalab.Secret{Name: o.ID, Set: now.Unix()}))
	}
	return rest.WriteDocument(w, answer, nil)
}

// remove removes secrets of the user.
func (s *Secrets) remove(w http.ResponseWriter, r *http.Request, u store.User) error {
	names, err := rest.ReadIDs(w, r, kind)
	if err != nil {
		return err
	}
	slices.Sort(names)
	names = slices.Compact(names)
	have, err := s.config.Store.Secrets(r.Context(), u.ID)
	if err != nil {
		return err
	}
	if missing, ok := firstMissing(names, have); ok {
		return rest.Refuse(http.StatusNotFound, "You have no secret %q.", missing)
	}
	err = s.config.Store.DeleteSecrets(r.Context(), u.ID, names)
	if err != nil && !errors.Is(err, store.ErrNotFound) { // another request was faster
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// firstMissing returns the first name that is not one of the secrets.
func firstMissing(names []string, have []store.Secret) (string, bool) {
	for _, name := range names {
		if !slices.ContainsFunc(have, func(one store.Secret) bool { return one.Name == name }) {
			return name, true
		}
	}
	return "", false
}

// Check refuses a new run of a user that names secrets which no worker could get.
func (s *Secrets) Check(ctx context.Context, userID string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	have, err := s.config.Store.Secrets(ctx, userID)
	if err != nil {
		return err
	}
	if missing, ok := firstMissing(names, have); ok {
		return rest.Refuse(http.StatusBadRequest, "You have no secret %s: set it with cl secret set %s. A run gets secrets of its owner alone.", missing, missing)
	}
	keyID, err := s.keyID()
	if err != nil {
		return err
	}
	for _, one := range have {
		if slices.Contains(names, one.Name) && one.KeyID != keyID {
			return rest.Refuse(http.StatusBadRequest, "The server has lost the key of your secret %s: set it again with cl secret set %s.", one.Name, one.Name)
		}
	}
	return nil
}

// give gives a worker the secrets of a run that it has claimed. It refuses all other runs alike, so that the answer
// tells nothing about them.
func (s *Secrets) give(w http.ResponseWriter, r *http.Request, u store.User) error {
	ctx, uuid, worker := r.Context(), r.PathValue("uuid"), store.Worker{User: u.ID, ID: r.PathValue("worker")}
	b, err := s.config.Store.Bundle(ctx, uuid)
	switch {
	case err != nil && !errors.Is(err, store.ErrNotFound):
		return err
	case err != nil, b.Worker != worker, !b.State.OnWorker(), b.State == codalab.StateStarting, b.State == codalab.StateFinalizing:
		return rest.Refuse(http.StatusForbidden, "Worker %s has not claimed run %s, so it gets none of its secrets.", worker.ID, uuid)
	}
	names := b.Metadata.Strings(codalab.SecretsKey)
	if len(names) > 0 && u.ID != b.OwnerID && !u.Root() && !u.IsWorker {
		return rest.Refuse(http.StatusForbidden, "A run's secrets are given to workers of its owner and of the site alone.")
	}
	values, err := s.open(ctx, b.OwnerID, names)
	if err != nil {
		return err
	}
	rest.NoteObjects(ctx, append([]string{uuid}, names...)...)
	if err := s.config.Store.SecretsUsed(ctx, b.OwnerID, names, s.config.Now()); err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Pragma", "no-cache")
	return rest.WriteJSON(w, http.StatusOK, codalab.RunSecrets{Values: values})
}

// open returns the values of a user's secrets, by name. Its refusals are for the run's owner, because the run fails with
// them.
func (s *Secrets) open(ctx context.Context, userID string, names []string) (map[string]string, error) {
	values := map[string]string{}
	if len(names) == 0 {
		return values, nil
	}
	have, err := s.config.Store.Secrets(ctx, userID)
	if err != nil {
		return nil, err
	}
	if missing, ok := firstMissing(names, have); ok {
		return nil, rest.Refuse(http.StatusNotFound, "The secret %s has been removed: set it with cl secret set %s, and run again.", missing, missing)
	}
	key, err := s.config.Vault.Key()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, one := range have {
		if !slices.Contains(names, one.Name) {
			continue
		}
		if key == nil || key.ID() != one.KeyID {
			return nil, rest.Refuse(http.StatusNotFound, "The server has lost the key of the secret %s: set it again with cl secret set %s, and run again.", one.Name, one.Name)
		}
		if values[one.Name], err = key.Open(userID, one.Name, one.Sealed); err != nil {
			return nil, fmt.Errorf("open secret %s of user %s: %w", one.Name, userID, err)
		}
	}
	return values, nil
}
