package pages

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

// settingsPage has the contents of settings.html.
type settingsPage struct {
	client.Worksheet
	Heading string
	// Groups are the names of the groups to which the user may give a permission.
	Groups        []string
	Problem, Done string
}

// NamesLine is the command that gives the worksheet its name, title and tags.
func (s settingsPage) NamesLine() string {
	words := []string{"cl", "wedit", s.UUID, "--name", s.Name}
	if s.Title != nil {
		words = append(words, "--title", *s.Title)
	}
	return codalab.JoinWords(append(append(words, "--tags"), s.Tags...))
}

// Joined are the tags as a form has them.
func (s settingsPage) Joined() string { return codalab.JoinWords(s.Tags) }

// TitleText is the title; empty if there is none.
func (s settingsPage) TitleText() string {
	if s.Title == nil {
		return ""
	}
	return *s.Title
}

// settings shows the permissions, tags and other settings of a worksheet.
func (p *Pages) settings(v *visit) error { return p.showSettings(v, http.StatusOK, "") }

func (p *Pages) showSettings(v *visit, status int, problem string) error {
	w, err := v.api.WorksheetAccess(v.Context(), v.PathValue("uuid"))
	if err != nil {
		return fmt.Errorf("show settings: %w", err)
	}
	if !mayChange(w) {
		return rest.Refuse(http.StatusForbidden, "You may read this worksheet, but not change it.")
	}
	s := settingsPage{Worksheet: w, Heading: headingOf(w), Groups: []string{"public"}, Problem: problem}
	groups, err := v.api.Groups(v.Context())
	if err != nil {
		return fmt.Errorf("show settings: %w", err)
	}
	for _, g := range groups {
		if g != "public" {
			s.Groups = append(s.Groups, g)
		}
	}
	if problem == "" && v.URL.Query().Has("done") {
		s.Done = "Saved."
	}
	return p.show(v, status, "settings", "Settings of "+s.Heading, s)
}

// change changes the settings of a worksheet, or deletes it.
func (p *Pages) change(v *visit) error {
	form, err := readForm(v)
	if err != nil {
		return err
	}
	return p.once(v, form, func() (answer, error) { return p.changeWorksheet(v, form) })
}

func (p *Pages) changeWorksheet(v *visit, form url.Values) (answer, error) {
	uuid := v.PathValue("uuid")
	to := "/worksheets/" + uuid + "/settings?done="
	var err error
	switch action := form.Get("action"); action {
	case "describe", "freeze", "unfreeze":
		err = v.api.UpdateWorksheet(v.Context(), p.worksheetChange(uuid, action, form))
	case "permit":
		permission, known := map[string]int{"none": codalab.PermissionNone, "read": codalab.PermissionRead, "all": codalab.PermissionAll}[form.Get("permission")]
		if !known {
			return nil, rest.Refuse(http.StatusBadRequest, "There is no permission '%s'.", form.Get("permission"))
		}
		var group client.Group
		if group, err = v.api.Group(v.Context(), form.Get("group")); err == nil {
			err = v.api.SetWorksheetPermission(v.Context(), uuid, group.ID, permission)
		}
	case "delete":
		if form.Get("sure") != "yes" {
			return nil, p.showSettings(v, http.StatusBadRequest, "Nothing was deleted: choose that you are sure.")
		}
		err, to = v.api.DeleteWorksheet(v.Context(), uuid, true), "/worksheets"
	default:
		return nil, rest.Refuse(http.StatusBadRequest, "There is no action '%s'.", action)
	}
	if no, ok := errors.AsType[*codalab.Error](err); ok && no.Status >= 400 && no.Status < 500 {
		return nil, p.showSettings(v, no.Status, no.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("change worksheet: %w", err)
	}
	return goTo(to), nil
}

// worksheetChange is the change of a worksheet that a form asks for.
func (p *Pages) worksheetChange(uuid, action string, form url.Values) client.WorksheetChange {
	change := client.WorksheetChange{UUID: uuid}
	switch action {
	case "freeze":
		change.Frozen = json.RawMessage(p.config.Now().UTC().Format(`"2006-01-02T15:04:05.000000"`))
	case "unfreeze":
		change.Frozen = json.RawMessage("null")
	default:
		name, title := form.Get("name"), form.Get("title")
		tags, err := codalab.SplitWords(form.Get("tags"))
		if err != nil {
			tags = strings.Fields(form.Get("tags"))
		}
		tags = append([]string{}, tags...) // none is an empty list
		change.Name, change.Title, change.Tags = &name, &title, &tags
	}
	return change
}

// makeWorksheet makes a worksheet, and goes on to its editor.
func (p *Pages) makeWorksheet(v *visit) error {
	form, err := readForm(v)
	if err != nil {
		return err
	}
	return p.once(v, form, func() (answer, error) {
		w, err := v.api.CreateWorksheet(v.Context(), form.Get("name"))
		if err != nil {
			return nil, fmt.Errorf("make worksheet: %w", err)
		}
		return goTo("/worksheets/" + w.UUID + "/edit"), nil
	})
}
