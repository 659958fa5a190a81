package pages

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/failures"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

const (
	// previewItems is the number of items that a preview shows, and previewMistakes that of mistakes.
	previewItems    = 200
	previewMistakes = 100
	// largestText bounds a form with the text of a worksheet. The REST API bounds the text itself.
	largestText = 24 << 20
)

// editPage has the contents of edit.html.
type editPage struct {
	client.Worksheet
	// Me is the name of the user.
	Me, Heading string
	// Text is edited by the user; Tag is the tag of the worksheet from which the text began.
	Text, Tag string
	// Unsaved means that Text is not that of the worksheet.
	Unsaved bool
	Problem string
	// Changed is set if the worksheet has changed since the user has read it; Difference leads from the worksheet as it is now
	// to Text.
	Changed    bool
	Difference string
	Preview    textPreview
}

// Changers is a sentence with those who may change the worksheet.
func (e editPage) Changers() string {
	names := []string{"you in another window or by a program"}
	if e.Owner != nil && e.Owner.UserName != e.Me {
		names = append(names, e.Owner.UserName)
	}
	for _, g := range e.GroupPermissions {
		if g.Permission >= codalab.PermissionAll {
			names = append(names, "the group "+g.GroupName)
		}
	}
	return "It was changed by " + strings.Join(append(names, "the root user"), ", or by ") + "."
}

// textPreview is a worksheet's text as its page would show it.
type textPreview struct {
	sheetPart
	Mistakes []client.LineMistake
	Problem  string
}

// editPage shows the form with a worksheet's text.
func (p *Pages) editPage(v *visit) error {
	w, err := v.api.WorksheetAccess(v.Context(), v.PathValue("uuid"))
	if err != nil {
		return fmt.Errorf("edit worksheet: %w", err)
	}
	if !mayChange(w) {
		return rest.Refuse(http.StatusForbidden, "You may read this worksheet, but not change it.")
	}
	if w.Frozen != nil {
		return rest.Refuse(http.StatusForbidden, "The worksheet is frozen. Its settings can unfreeze it.")
	}
	e := editPage{Worksheet: w, Me: v.user.UserName, Heading: headingOf(w)}
	if e.Text, e.Tag, err = v.api.WorksheetLines(v.Context(), w.UUID); err != nil {
		return fmt.Errorf("edit worksheet: %w", err)
	}
	e.Preview = p.preview(v, e.Text)
	return p.showEditor(v, http.StatusOK, e)
}

func (p *Pages) showEditor(v *visit, status int, e editPage) error {
	return p.show(v, status, "edit", "Edit "+e.Heading, e)
}

// preview shows a text. What the server refuses is a problem to show, too.
func (p *Pages) preview(v *visit, text string) textPreview {
	shown, err := v.api.PreviewLines(v.Context(), v.PathValue("uuid"), text, previewItems)
	if err != nil {
		return textPreview{Problem: unread(err)}
	}
	shown.Mistakes = shown.Mistakes[:min(len(shown.Mistakes), previewMistakes)]
	return textPreview{sheetPart: p.sheetPart(v.PathValue("uuid"), shown), Mistakes: shown.Mistakes}
}

// readText reads a form with a worksheet's text.
func readText(v *visit) (url.Values, string, error) {
	if v.user.UserName == "" {
		return nil, "", rest.Refuse(http.StatusUnauthorized, "Nobody has signed in.")
	}
	form, err := readFormOf(v, largestText)
	return form, editedText(form.Get("text")), err
}

// editedText returns the text of a form's field as cl wedit would send it: with other ends of lines than a browser's, and blanks before them:
// two of them break a line of markup.
func editedText(field string) string {
	var lines []string
	for line := range strings.Lines(field) {
		lines = append(lines, strings.TrimRight(line, "\r\n"))
	}
	return strings.Join(lines, "\n")
}

// previewText answers with the preview alone.
func (p *Pages) previewText(v *visit) error {
	_, text, err := readText(v)
	if err != nil {
		return err
	}
	shown, err := p.part("edit", "preview", p.preview(v, text))
	if err != nil {
		return err
	}
	v.Header().Set("Content-Type", "text/html; charset=utf-8")
	v.Header().Set("Cache-Control", "no-store")
	_, _ = io.WriteString(v.ResponseWriter, shown) // fails if the client has gone
	return nil
}

// edit saves a worksheet's text, or shows its preview. A text that is not saved is in the form again.
func (p *Pages) edit(v *visit) error {
	form, text, err := readText(v)
	if err != nil {
		return err
	}
	uuid := v.PathValue("uuid")
	e := editPage{Me: v.user.UserName, Text: text, Tag: form.Get("tag"), Unsaved: true}
	e.UUID, e.Heading = uuid, "worksheet"
	if w, err := v.api.WorksheetAccess(v.Context(), uuid); err == nil { // else the attempt to save tells why
		e.Worksheet, e.Heading = w, headingOf(w)
	}
	status := http.StatusOK
	if form.Get("action") != "preview" {
		err := v.api.ReplaceWorksheetLines(v.Context(), uuid, text, cmp.Or(e.Tag, `"none"`))
		no, refused := errors.AsType[*codalab.Error](err)
		switch {
		case err == nil:
			rest.Go(v.ResponseWriter, v.Request, "/worksheets/"+uuid)
			return nil
		case isStatus(err, http.StatusPreconditionFailed):
			status = http.StatusConflict
			if err := p.compare(v, &e); err != nil {
				status, e.Problem = p.unsaved(v, err)
			}
		case refused && no.Status >= 400 && no.Status < 500:
			status, e.Problem = no.Status, no.Message
		default:
			status, e.Problem = p.unsaved(v, err)
		}
	}
	e.Preview = p.preview(v, text)
	return p.showEditor(v, status, e)
}

// unsaved is the status and the sentence for a text that could not be saved for no fault of its writer's.
func (p *Pages) unsaved(v *visit, err error) (status int, sentence string) {
	failures.Log(v.Context(), p.config.Log, "save worksheet "+v.PathValue("uuid"), err)
	return http.StatusServiceUnavailable, "It could not be saved now. Try again."
}

// compare tells the difference to the worksheet as it is now, over which the user may save then.
func (p *Pages) compare(v *visit, e *editPage) error {
	now, tag, err := v.api.WorksheetLines(v.Context(), e.UUID)
	if err != nil {
		return fmt.Errorf("compare worksheet: %w", err)
	}
	e.Changed, e.Tag = true, tag
	e.Difference = udiff.Unified("the worksheet now", "your text", now+"\n", e.Text+"\n")
	return nil
}
