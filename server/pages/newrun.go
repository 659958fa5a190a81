package pages

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/cl-slurm/cl-slurm/codalab"
	"github.com/cl-slurm/cl-slurm/codalab/client"
	"github.com/cl-slurm/cl-slurm/server/rest"
)

// runForm is the form for a new run, and has the contents of newrun.html.
type runForm struct {
	// Like is the run of which this one is a copy with changes; empty for none.
	Like string
	// UUID is that of the new run. The page chooses it, so that a form that is sent twice makes one run.
	UUID                     string
	Command, Name, Worksheet string
	Image, Queue             string
	CPUs, GPUs, Memory, Time string
	Dependencies             string
	Queues                   []codalab.Queue
	// Problems are sentences by the name of their field.
	Problems map[string]string
	// Refusal is the server's sentence about the whole run.
	Refusal string
	// Line is the command that does the same; empty until all fields can be read.
	Line string
	// Made is set once the run is there, if Warnings has sentences of the server about it.
	Made     bool
	Warnings []string
}

// newForm is the form before anybody has typed into it: that of a run like old, or an empty one.
func newForm(old *codalab.Bundle) runForm {
	f := runForm{UUID: codalab.NewUUID(), CPUs: "1", GPUs: "0", Memory: "2g"}
	if old == nil {
		return f
	}
	m := old.MetadataLike(nil)
	f.Like, f.Command, f.Name = old.UUID, old.CommandText(), m.String("name")
	f.Image, f.Queue, f.Memory, f.Time = m.String("request_docker_image"), m.String("request_queue"), m.String("request_memory"), m.String("request_time")
	f.CPUs, f.GPUs = strconv.FormatInt(m.Int("request_cpus"), 10), strconv.FormatInt(m.Int("request_gpus"), 10)
	var lines []string
	for _, d := range old.Dependencies {
		lines = append(lines, d.ChildPath+":"+(codalab.Target{BundleUUID: d.ParentUUID, Subpath: d.ParentPath}).String())
	}
	f.Dependencies = strings.Join(lines, "\n")
	return f
}

// readRunForm reads the fields of the form.
func readRunForm(q url.Values) runForm {
	get := func(name string) string { return strings.TrimSpace(q.Get(name)) }
	f := runForm{
		Like: get("like"), UUID: get("uuid"), Command: strings.ReplaceAll(strings.TrimSpace(q.Get("command")), "\r\n", "\n"), Name: get("name"), Worksheet: get("worksheet"),
		Image: get("image"), Queue: get("queue"), CPUs: get("cpus"), GPUs: get("gpus"), Memory: get("memory"), Time: get("time"),
		Dependencies: strings.ReplaceAll(q.Get("dependencies"), "\r\n", "\n"),
	}
	if !codalab.IsUUID(f.UUID) {
		f.UUID = codalab.NewUUID()
	}
	return f
}

// given has the metadata of the fields. It puts sentences about wrong ones into Problems.
func (f *runForm) given() codalab.Metadata {
	f.Problems = map[string]string{}
	m := codalab.Metadata{
		"name": f.Name, "request_docker_image": f.Image, "request_queue": f.Queue, "request_memory": f.Memory, "request_time": f.Time,
	}
	if f.Command == "" {
		f.Problems["command"] = "A run needs a command."
	} else if err := codalab.CheckCommand(f.Command); err != nil {
		f.Problems["command"] = codalab.Sentence(err.Error())
	}
	switch {
	case f.Name == "" && f.Command != "":
		m["name"] = codalab.DefaultName(codalab.TypeRun, f.Command)
	case f.Name != "" && !codalab.IsName(f.Name):
		f.Problems["name"] = "A name begins with a letter or an underscore, and has letters, digits, underscores, dots and dashes."
	}
	for _, count := range []struct {
		field, key, text, least string
	}{{"cpus", "request_cpus", f.CPUs, "1"}, {"gpus", "request_gpus", f.GPUs, "0"}} {
		n, err := strconv.ParseInt(count.text, 10, 32)
		if least, _ := strconv.ParseInt(count.least, 10, 32); err != nil || n < least {
			f.Problems[count.field] = fmt.Sprintf("It must be a whole number from %s on, not %q.", count.least, count.text)
		}
		m[count.key] = n
	}
	if n, err := codalab.ParseSize(f.Memory); f.Memory != "" && (err != nil || n == 0) {
		f.Problems["memory"] = fmt.Sprintf("%q is no memory: write a number and k, m, g or t, such as 8g.", f.Memory)
	}
	if d, err := codalab.ParseDuration(f.Time); f.Time != "" && (err != nil || d == 0) {
		f.Problems["time"] = fmt.Sprintf("%q is no time: write a number and s, m, h or d, such as 3h.", f.Time)
	}
	return m
}

// inputs reads the lines of dependencies.
func (f *runForm) inputs() []codalab.Input {
	inputs, _, err := codalab.RunInputs(inputLines(f.Dependencies), "")
	if err != nil {
		f.Problems["dependencies"] = codalab.Sentence(err.Error())
	}
	return inputs
}

// inputLines are the lines of a text that are not blank.
func inputLines(text string) []string {
	var list []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			list = append(list, line)
		}
	}
	return list
}

// flags are the options of cl run for the fields, in the form's order.
func (f runForm) flags() [][2]string {
	return [][2]string{
		{"-n", f.Name},
		{"-w", f.Worksheet},
		{"--request-docker-image", f.Image},
		{"--request-queue", f.Queue},
		{"--request-cpus", f.CPUs},
		{"--request-gpus", f.GPUs},
		{"--request-memory", f.Memory},
		{"--request-time", f.Time},
	}
}

// line is the command of cl that makes the run: what differs from old, or from an empty form.
func (f runForm) line(old *codalab.Bundle, inputs []codalab.Input) string {
	before := newForm(old)
	words := []string{"cl", "run"}
	if old != nil {
		words = append(words, "--like", old.UUID)
	}
	from := before.flags()
	for i, flag := range f.flags() {
		if flag[1] != from[i][1] {
			words = append(words, flag[0], flag[1])
		}
	}
	if old == nil || strings.TrimSpace(f.Dependencies) != before.Dependencies {
		for _, in := range inputs {
			words = append(words, in.Key+":"+in.Target)
		}
	}
	if old == nil || f.Command != before.Command {
		words = append(words, strings.ReplaceAll(f.Command, "%", "%%"))
	}
	return codalab.JoinWords(words)
}

// likeOf returns the run that the new one is like; nil for none.
func (p *Pages) likeOf(v *visit, uuid string) (*codalab.Bundle, error) {
	if uuid == "" {
		return nil, nil
	}
	old, err := v.api.Bundle(v.Context(), uuid)
	if err != nil {
		return nil, fmt.Errorf("open the run to repeat: %w", err)
	}
	if old.Type != codalab.TypeRun {
		return nil, rest.Refuse(http.StatusBadRequest, "%s is no run: only runs can be run again.", old.Metadata.String("name"))
	}
	return &old.Bundle, nil
}

// newRun shows the form.
func (p *Pages) newRun(v *visit) error {
	if v.user.UserName == "" {
		return rest.Refuse(http.StatusUnauthorized, "Nobody has signed in.")
	}
	old, err := p.likeOf(v, v.URL.Query().Get("like"))
	if err != nil {
		return err
	}
	f := newForm(old)
	f.Worksheet = v.URL.Query().Get("worksheet")
	if old != nil {
		f.Line = f.line(old, nil)
	}
	return p.showForm(v, http.StatusOK, f)
}

func (p *Pages) showForm(v *visit, status int, f runForm) error {
	var err error
	if f.Queues, err = v.api.Queues(v.Context()); err != nil {
		return fmt.Errorf("show queues: %w", err)
	}
	return p.show(v, status, "newrun", "New run", f)
}

// submit makes the run of the form, or only shows its command.
func (p *Pages) submit(v *visit) error {
	form, err := readForm(v)
	if err != nil {
		return err
	}
	return p.once(v, form, func() (answer, error) { return p.makeRun(v, form) })
}

func (p *Pages) makeRun(v *visit, form url.Values) (answer, error) {
	f := readRunForm(form)
	old, err := p.likeOf(v, f.Like)
	if err != nil {
		return nil, err
	}
	b, err := p.planned(v, &f, old)
	switch {
	case err != nil:
		return nil, err
	case len(f.Problems) > 0:
		return nil, p.showForm(v, http.StatusBadRequest, f)
	case form.Get("action") == "check":
		return nil, p.showForm(v, http.StatusOK, f)
	}
	if there, err := v.api.Bundle(v.Context(), f.UUID); err == nil { // the form was sent before
		if sameRun(there.Bundle, b) {
			return goTo("/bundles/" + f.UUID), nil
		}
		f.UUID, f.Refusal = codalab.NewUUID(), "This form has made a run already, and was changed since. Send it again to make another run."
		return nil, p.showForm(v, http.StatusConflict, f)
	}
	made, err := v.api.CreateBundle(v.Context(), b)
	if refusal, ok := sentence(err); ok {
		f.Refusal = refusal
		return nil, p.showForm(v, http.StatusBadRequest, f)
	}
	if err != nil {
		return nil, fmt.Errorf("make run: %w", err)
	}
	if len(made.Warnings) == 0 {
		return goTo("/bundles/" + f.UUID), nil
	}
	f.Made, f.Warnings = true, made.Warnings
	return func(v *visit) error { return p.showForm(v, http.StatusOK, f) }, nil
}

// sameRun reports whether a run is the one that a form would make.
func sameRun(there codalab.Bundle, b client.NewBundle) bool {
	if there.CommandText() != b.Command || len(there.Dependencies) != len(b.Dependencies) {
		return false
	}
	for i, d := range there.Dependencies {
		if o := b.Dependencies[i]; d.ChildPath != o.ChildPath || d.ParentUUID != o.ParentUUID || d.ParentPath != o.ParentPath {
			return false
		}
	}
	for key, value := range b.Metadata {
		if fmt.Sprint(value) != fmt.Sprint(there.Metadata[key]) && there.Metadata.Has(key) {
			return false
		}
	}
	return true
}

// planned is the run of the form. It puts what is wrong into the form.
func (p *Pages) planned(v *visit, f *runForm, old *codalab.Bundle) (client.NewBundle, error) {
	given, inputs := f.given(), f.inputs()
	m := codalab.Metadata{}
	for _, k := range codalab.MetadataKeys(codalab.TypeRun) {
		if !k.Generated {
			m[k.Key] = k.Default
		}
	}
	if old != nil {
		maps.Copy(m, old.MetadataLike(nil))
	}
	maps.Copy(m, given)
	b := client.NewBundle{UUID: f.UUID, Type: codalab.TypeRun, Command: f.Command, Metadata: m, CheckRequests: true}
	sheet := f.Worksheet
	if sheet == "" {
		sheet = client.HomeWorksheet
	}
	w, err := v.api.FindWorksheet(v.Context(), "", sheet)
	if problem, ok := sentence(err); ok {
		f.Problems["worksheet"] = problem
	} else if err != nil {
		return b, fmt.Errorf("find worksheet: %w", err)
	}
	b.Worksheet = w.UUID
	for _, in := range inputs {
		d, err := p.dependency(v, w.UUID, in)
		if problem, ok := sentence(err); ok {
			f.Problems["dependencies"] = problem
			break
		}
		if err != nil {
			return b, err
		}
		b.Dependencies = append(b.Dependencies, d)
	}
	if len(f.Problems) == 0 {
		f.Line = f.line(old, inputs)
	}
	return b, nil
}

// dependency finds the bundle of an input.
func (p *Pages) dependency(v *visit, sheet string, in codalab.Input) (codalab.Dependency, error) {
	d := codalab.Dependency{ChildPath: in.Key}
	t, err := codalab.ParseTarget(in.Target)
	if err != nil {
		return d, rest.Refuse(http.StatusBadRequest, "%s", codalab.Sentence(err.Error()))
	}
	if t.Instance != "" {
		return d, rest.Refuse(http.StatusBadRequest, "A run's dependencies are on its own server: %s", in.Target)
	}
	if t.Worksheet != "" {
		w, err := v.api.FindWorksheet(v.Context(), sheet, t.Worksheet)
		if err != nil {
			return d, fmt.Errorf("find worksheet: %w", err)
		}
		sheet = w.UUID
	}
	found, err := v.api.Bundles(v.Context(), sheet, []string{t.Bundle})
	if err != nil {
		return d, fmt.Errorf("find dependency: %w", err)
	}
	d.ParentUUID, d.ParentPath = found[0].UUID, t.Subpath
	return d, nil
}
