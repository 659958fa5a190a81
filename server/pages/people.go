package pages

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

// mostPeople is the number of users that the page lists.
const mostPeople = 500

// peoplePage has the contents of people.html.
type peoplePage struct {
	// Query are the keywords of the search for users.
	Query string
	// More is set if there may be users who are not listed.
	More bool
	// People are those that the keywords ask for, with most contents first unless these say otherwise.
	People []person
	Groups []client.Group
	// Disk is the size of the contents of all of them.
	Disk          int64
	Problem, Done string
}

// person is a user whose account root sees.
type person struct{ codalab.User }

// Signed is the time of the last sign-in.
func (p person) Signed() string {
	if p.LastLogin == nil {
		return "never"
	}
	at, err := time.Parse(time.ANSIC, *p.LastLogin)
	if err != nil {
		return *p.LastLogin
	}
	return utc(at)
}

// Time is the time of runs.
func (p person) Time() string { return seconds(p.TimeUsed) }

// TimeBound is the quota of that time.
func (p person) TimeBound() string { return seconds(p.TimeQuota) }

func seconds(n int64) string {
	const most = int64(1<<63-1) / int64(time.Second)
	return codalab.FormatDuration(time.Duration(min(n, most)) * time.Second)
}

// isRoot reports whether the visitor is the root user.
func (v *visit) isRoot() bool {
	return v.user.Account != nil && v.user.IsRootUser != nil && *v.user.IsRootUser
}

func forRoot() error { return rest.Refuse(http.StatusForbidden, "This page is for the root user.") }

// people shows the users and groups of the server.
func (p *Pages) people(v *visit) error { return p.showPeople(v, http.StatusOK, "") }

func (p *Pages) showPeople(v *visit, status int, problem string) error {
	if !v.isRoot() {
		return forRoot()
	}
	page := peoplePage{Query: v.URL.Query().Get("q"), Problem: problem}
	if problem == "" && v.URL.Query().Has("done") {
		page.Done = "Saved."
	}
	users, err := page.search(v)
	if err == nil {
		page.Groups, err = v.api.GroupInfos(v.Context())
	}
	if err != nil {
		return fmt.Errorf("list people: %w", err)
	}
	page.More = len(users) == mostPeople
	page.Groups = slices.DeleteFunc(page.Groups, func(g client.Group) bool { return !g.UserDefined })
	for _, u := range users {
		if u.Account != nil {
			page.People = append(page.People, person{u})
			page.Disk += u.DiskUsed
		}
	}
	return p.show(v, status, "people", "People", page)
}

// words are the keywords with those that the page adds to them.
func (page peoplePage) words() ([]string, error) {
	words, err := codalab.SplitWords(page.Query)
	return append([]string{".limit=" + strconv.Itoa(mostPeople), "disk_used=.sort-"}, words...), err
}

// CL is the command that shows the same; empty for keywords that are none.
func (page peoplePage) CL() string {
	words, err := page.words()
	if err != nil {
		return ""
	}
	return codalab.JoinWords(append([]string{"cl", "uls"}, words...))
}

// search finds the users. What is wrong with the keywords is the page's problem.
func (page *peoplePage) search(v *visit) ([]codalab.User, error) {
	words, err := page.words()
	if err != nil {
		page.Problem = err.Error()
		return nil, nil //nolint:nilerr // the page shows it
	}
	users, number, err := v.api.SearchUsers(v.Context(), words...)
	switch no, refused := refusedKeywords(err); {
	case refused:
		page.Problem = no
	case err != nil:
		return nil, fmt.Errorf("search for users: %w", err)
	case number != nil:
		page.Problem = "These keywords ask for a number: " + string(number)
	}
	return users, nil
}

// changePeople changes a user's quotas, or a group.
func (p *Pages) changePeople(v *visit) error {
	form, err := readForm(v)
	if err != nil {
		return err
	}
	if !v.isRoot() {
		return forRoot()
	}
	return p.once(v, form, func() (answer, error) { return p.changeAccounts(v, form) })
}

func (p *Pages) changeAccounts(v *visit, form url.Values) (answer, error) {
	var err error
	switch action := form.Get("action"); action {
	case "quota":
		err = p.setQuotas(v, form)
	case "group":
		_, err = v.api.CreateGroup(v.Context(), form.Get("name"))
	case "add", "remove":
		err = p.setMember(v, form)
	default:
		return nil, rest.Refuse(http.StatusBadRequest, "There is no action '%s'.", action)
	}
	if no, ok := errors.AsType[*codalab.Error](err); ok && no.Status >= 400 && no.Status < 500 {
		return nil, p.showPeople(v, no.Status, no.Message)
	}
	if no, ok := errors.AsType[*rest.RefusalError](err); ok {
		return nil, p.showPeople(v, no.Status, no.Message)
	}
	if err != nil {
		return nil, fmt.Errorf("change people: %w", err)
	}
	return goTo("/people?done="), nil
}

// quotas reads the quotas of a form. An empty field keeps its quota.
func quotas(form url.Values) (edit codalab.UserEdit, err error) {
	if text := form.Get("disk"); text != "" {
		n, err := codalab.ParseSize(text)
		if err != nil {
			return edit, rest.Refuse(http.StatusBadRequest, "'%s' is no size, such as 100g.", text)
		}
		edit.DiskQuota = new(float64(n))
	}
	if text := form.Get("time"); text != "" {
		d, err := codalab.ParseDuration(text)
		if err != nil {
			return edit, rest.Refuse(http.StatusBadRequest, "'%s' is no time, such as 30d.", text)
		}
		edit.TimeQuota = new(d.Seconds())
	}
	if text := form.Get("runs"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return edit, rest.Refuse(http.StatusBadRequest, "'%s' is no number of runs.", text)
		}
		edit.ParallelRunQuota = new(float64(n))
	}
	return edit, nil
}

func (p *Pages) setQuotas(v *visit, form url.Values) error {
	edit, err := quotas(form)
	if err != nil {
		return err
	}
	u, err := v.api.UserByID(v.Context(), form.Get("user"))
	if err == nil {
		_, err = v.api.UpdateUser(v.Context(), u.ID, edit)
	}
	return err
}

// setMember adds a user to a group, or removes one from it.
func (p *Pages) setMember(v *visit, form url.Values) error {
	u, err := v.api.UserByID(v.Context(), form.Get("user"))
	switch {
	case err != nil:
	case form.Get("action") == "remove":
		err = v.api.RemoveFromGroup(v.Context(), form.Get("group"), u.ID)
	default:
		err = v.api.AddToGroup(v.Context(), form.Get("group"), u.ID, form.Get("admin") == "yes")
	}
	return err
}
