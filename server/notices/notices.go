package notices

import (
	"errors"
	"log/slog"
	"net/http"
	netmail "net/mail"
	"slices"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/internal/termtext"
	"github.com/cl-slurm/cl-slurm/server/access"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// Bounds of a user's notices.
const (
	mostWaiting = 100
	mostADay    = 200
)

// Config has what Notices needs. All fields but Mail and EmailPage are required.
type Config struct {
	Log    *slog.Logger
	Now    func() time.Time
	Store  *store.Store
	Access access.Access
	// Mail is the SMTP server; the zero value for none: then nobody can ask for mails.
	Mail mail.Options
	// EmailPage is the address of the page on which users set their e-mail addresses; empty where the operator alone does.
	EmailPage string
}

// Notices serves notices. While it is in use, Run must run.
type Notices struct {
	config Config
	// made has a reason to look for notices.
	made chan struct{}
	// unnoted are notices after a try that the store has not taken yet, by id. Only Run uses it.
	unnoted map[string]store.Notice
	// forgotten is the time of the last removal of old notices. Only Run uses it.
	forgotten time.Time
}

// New returns Notices.
func New(c Config) *Notices {
	return &Notices{config: c, made: make(chan struct{}, 1), unnoted: map[string]store.Notice{}}
}

// Routes returns the routes for notices. CodaLab's own server has none of them.
func (s *Notices) Routes() []rest.Route {
	return []rest.Route{
		{Pattern: "GET /notices", Serve: s.list, Differs: "only this server has it: it lists the mails for which the user waits"},
		{Pattern: "POST /notices", Serve: s.add, Differs: "only this server has it, with --mail-server: it mails the user once when bundles have ended, at the address that the server has of the user"},
		{Pattern: "DELETE /notices", Serve: s.remove, Differs: "only this server has it: it takes such wishes back"},
	}
}

// kind is the type of notices as objects of the REST API.
const kind = "notices"

func shown(n store.Notice, to string) codalab.Object {
	one := codalab.Notice{Bundles: n.Bundles, To: to, Made: n.Made.Unix(), Problem: n.Problem}
	if !n.Done.IsZero() {
		one.Done = n.Done.Unix()
	}
	return codalab.NewObject(kind, n.ID, one)
}

// list lists the user's notices that are not done.
func (s *Notices) list(w http.ResponseWriter, r *http.Request, u store.User) error {
	have, err := s.config.Store.WaitingNotices(r.Context(), u.ID)
	if err != nil {
		return err
	}
	objects := []codalab.Object{}
	for _, n := range have {
		objects = append(objects, shown(n, u.Email))
	}
	return rest.WriteDocument(w, objects, nil)
}

// add adds a notice.
func (s *Notices) add(w http.ResponseWriter, r *http.Request, u store.User) error {
	objects, err := rest.ReadObjects(w, r)
	if err != nil {
		return err
	}
	var wanted codalab.NewNotice
	if len(objects) != 1 || objects[0].Type != kind || objects[0].Decode(&wanted) != nil || len(wanted.Bundles) == 0 {
		return rest.Refuse(http.StatusBadRequest, "The request is for one object of the type 'notices' with bundle_uuids")
	}
	if len(wanted.Bundles) > codalab.MostNoticed {
		return rest.Refuse(http.StatusBadRequest, "A mail is for at most %d bundles", codalab.MostNoticed)
	}
	if err := s.mailable(u); err != nil {
		return err
	}
	if err := s.readable(r, u, wanted.Bundles); err != nil {
		return err
	}
	now := s.config.Now()
	n, err := s.config.Store.AddNotice(r.Context(), store.Notice{ID: codalab.NewUUID(), UserID: u.ID, Made: store.Time{Time: now}}, wanted.Bundles,
		store.NoticeBounds{Waiting: mostWaiting, InTime: mostADay, Since: now.Add(-24 * time.Hour)})
	switch {
	case errors.Is(err, store.ErrTooMany):
		return rest.Refuse(http.StatusForbidden, "You wait for %d mails, or have asked for %d within a day, as many as you may: cl notify ls lists those that have not come, and cl notify rm takes them back.", mostWaiting, mostADay)
	case errors.Is(err, store.ErrNotFound):
		return rest.Refuse(http.StatusNotFound, "One of the bundles was just removed")
	case err != nil:
		return err
	}
	s.wake()
	return rest.WriteDocument(w, []codalab.Object{shown(n, u.Email)}, nil)
}

// mailable fails unless a mail can be sent to the user.
func (s *Notices) mailable(u store.User) error {
	switch {
	case s.config.Mail.Server == "":
		return rest.Refuse(http.StatusForbidden, "This server sends no mails: its operator has set no --mail-server.")
	case u.Email == "":
		return rest.Refuse(http.StatusForbidden, "This server has no e-mail address of yours: %s", s.whoSets())
	}
	if _, err := netmail.ParseAddress(u.Email); err != nil {
		return rest.Refuse(http.StatusForbidden, "The e-mail address that this server has of you is none: %s", s.whoSets())
	}
	return nil
}

// whoSets is a sentence on how the user gets an e-mail address.
func (s *Notices) whoSets() string {
	if s.config.EmailPage != "" {
		return "set it at " + s.config.EmailPage + ", or ask the operator."
	}
	return "its operator sets it."
}

// readable fails unless the user may read all of these bundles.
func (s *Notices) readable(r *http.Request, u store.User, uuids []string) error {
	found, err := s.config.Store.Bundles(r.Context(), uuids, "name")
	if err != nil {
		return err
	}
	var list []store.Bundle
	for _, b := range found {
		list = append(list, b)
	}
	have, err := s.config.Access.BundlePermissions(r.Context(), u, list...)
	if err != nil {
		return err
	}
	for _, uuid := range uuids {
		if have[uuid] < store.PermissionRead {
			if _, err := s.config.Access.Readable(r.Context(), u, uuid); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes notices of the user.
func (s *Notices) remove(w http.ResponseWriter, r *http.Request, u store.User) error {
	ids, err := rest.ReadIDs(w, r, kind)
	if err != nil {
		return err
	}
	slices.Sort(ids)
	err = s.config.Store.DeleteNotices(r.Context(), u.ID, slices.Compact(ids))
	if errors.Is(err, store.ErrNotFound) {
		return rest.Refuse(http.StatusNotFound, "You do not wait for %s.", termtext.Count(len(ids), "such mail"))
	}
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// wake tells Run that there are notices. It does not block.
func (s *Notices) wake() {
	select {
	case s.made <- struct{}{}:
	default: // it is told already
	}
}
