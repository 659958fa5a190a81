package signin

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	netmail "net/mail"
	"strings"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/server/mail"
	"github.com/cl-slurm/cl-slurm/server/rest"
	"github.com/cl-slurm/cl-slurm/server/store"
)

// help mails a message of the user to the operator (codalab/rest/help.py: send_help_message). It waits until the mail is sent, so
// that the user learns whether it was.
func (s *SignIns) help(w http.ResponseWriter, r *http.Request, u store.User) error {
	const longest = 10_000
	var in struct {
		Message string `json:"message"`
	}
	if err := rest.ReadJSON(w, r, &in); err != nil {
		return err
	}
	switch {
	case s.config.Mail.Server == "":
		return rest.Refuse(http.StatusForbidden, "This server sends no mails: its operator has set no --mail-server.")
	case strings.TrimSpace(in.Message) == "":
		return rest.Refuse(http.StatusBadRequest, "There is no message.")
	case len(in.Message) > longest:
		return rest.Refuse(http.StatusRequestEntityTooLarge, "A message may have %d bytes, not %d", longest, len(in.Message))
	}
	if err := s.mayMail("user "+u.ID, "help of "+u.ID); err != nil {
		return err
	}
	to, err := netmail.ParseAddress(cmp.Or(s.config.HelpAddress, s.config.Mail.From))
	if err != nil {
		return err //nolint:wrapcheck // the flags were checked
	}
	m := mail.Mail{To: to.Address, Subject: "CodaLab: a message of " + u.Name, Text: in.Message + "\n", ID: codalab.NewUUID(), At: s.config.Now()}
	from := u.Name
	if isAddress(u.Email) {
		m.ReplyTo, from = u.Email, from+" ("+u.Email+")"
	}
	m.Text += "\n" + from + " has sent this message by CodaLab.\n"
	const patience = 15 * time.Second // the user waits
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	if err := s.config.Mail.Send(ctx, m); err != nil {
		s.config.Log.LogAttrs(r.Context(), slog.LevelWarn, "cannot send a user's message", slog.String("user", u.Name), slog.String("error", err.Error()))
		return rest.Refuse(http.StatusServiceUnavailable, "The message cannot be sent now. Try again later.")
	}
	w.WriteHeader(http.StatusOK)
	return nil
}
