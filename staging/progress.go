package staging

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cl-slurm/cl-slurm/cache"
	"github.com/cl-slurm/cl-slurm/codalab"
)

// download is one thing that is brought in: what all the bundles that wait for
// it know of it.
type download struct {
	done, total atomic.Int64
	// doing is a stage that an image is in, once its layers have been pulled.
	doing atomic.Int32
	// elsewhere names the other process that brings it in; nil for none.
	elsewhere atomic.Pointer[string]

	mu              sync.Mutex
	bundles         map[string]int // that wait for it, and how often each
	holding, queued int            // places that it has, and waits for
	samples         []sample
}

// sample is how far a download was at a time.
type sample struct {
	at   time.Time
	done int64
}

// places notes that the download has more places, and waits for more.
func (d *download) places(holding, queued int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.holding += holding
	d.queued += queued
}

// wantedBy lists the bundles that wait for the download.
func (d *download) wantedBy() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	bundles := make([]string, 0, len(d.bundles))
	for bundle := range d.bundles {
		bundles = append(bundles, bundle)
	}
	return bundles
}

// stage is what is done to a download.
type stage int

const (
	idle stage = iota // nothing that is worth telling
	asking
	queued
	elsewhere
	moving
	converting
	storing
	reviewing // a file that is used where it lies
)

// standing is how a download looks at a moment.
type standing struct {
	stage       stage
	by          string // who brings it in elsewhere
	done, total int64
	rate        int64 // bytes per second; 0 when not known
}

// The rate of a download is taken over some seconds.
const (
	sampleEvery = time.Second
	rateOver    = 6 * time.Second
)

// look tells how the download is at a time.
func (d *download) look(now time.Time) standing {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := standing{done: d.done.Load(), total: d.total.Load()}
	if n := len(d.samples); n > 0 && s.done < d.samples[n-1].done { // another stage
		d.samples = nil
	}
	if n := len(d.samples); n == 0 || now.Sub(d.samples[n-1].at) >= sampleEvery {
		d.samples = append(d.samples, sample{now, s.done})
		if i := slices.IndexFunc(d.samples, func(p sample) bool { return now.Sub(p.at) <= rateOver }); i > 0 {
			d.samples = slices.Delete(d.samples, 0, i)
		}
	}
	if first := d.samples[0]; now.After(first.at) {
		s.rate = max(0, int64(float64(s.done-first.done)/now.Sub(first.at).Seconds()))
	}
	doing := stage(d.doing.Load())
	switch by := d.elsewhere.Load(); {
	case by != nil:
		s.stage, s.by = elsewhere, *by
	case doing != idle:
		s.stage = doing
	case d.holding > 0:
		s.stage = moving
	case d.queued > 0:
		s.stage = queued
	}
	return s
}

// board has the downloads of all bundles.
type board struct {
	mu        sync.Mutex
	downloads map[cache.Key]*download
}

// join makes a bundle wait for a download. Each join is followed by a leave.
func (b *board) join(key cache.Key, bundle string) *download {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.downloads[key]
	if d == nil {
		d = &download{bundles: map[string]int{}}
		if b.downloads == nil {
			b.downloads = map[cache.Key]*download{}
		}
		b.downloads[key] = d
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.bundles[bundle]++
	return d
}

func (b *board) leave(key cache.Key, d *download, bundle string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.bundles[bundle]--; d.bundles[bundle] == 0 {
		delete(d.bundles, bundle)
	}
	if len(d.bundles) == 0 && b.downloads[key] == d {
		delete(b.downloads, key)
	}
}

// fill makes a content at tmp, and tells of it by d.
type fill func(ctx context.Context, d *download, tmp string) error

// get returns the content that is wanted, which fill makes if nobody has it yet.
// All who wait for it, each by a name of its own, are shown the same download.
func (b *board) get(ctx context.Context, c *cache.Cache, w cache.Want, who string, p *part, fill fill) (string, error) {
	d := b.join(w.Key, who)
	defer b.leave(w.Key, d, who)
	p.follow(d)
	w.Waiting = func(by string) { d.elsewhere.Store(&by) }
	content, err := c.Get(ctx, w, func(ctx context.Context, tmp string) error {
		d.elsewhere.Store(nil)
		return fill(ctx, d, tmp)
	})
	if err == nil {
		p.arrived()
	}
	return content, err
}

// part is one of the things that a bundle waits for.
type part struct {
	// name is what is told of it: "image python:3", "dependency data (corpus)".
	name  string
	image bool

	mu       sync.Mutex
	asking   string    // the registry that is asked what it is; empty for none
	download *download // nil before it is asked for
	there    bool
}

// asks notes that a registry is asked what the part is.
func (p *part) asks(registry string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking = registry
}

func (p *part) follow(d *download) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asking, p.download = "", d
}

func (p *part) arrived() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.there, p.download = true, nil
}

// view is a part at a moment.
type view struct {
	name  string
	image bool
	there bool
	standing
}

func (p *part) look(now time.Time) view {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := view{name: p.name, image: p.image, there: p.there}
	switch {
	case p.download != nil:
		v.standing = p.download.look(now)
	case p.asking != "":
		v.standing = standing{stage: asking, by: p.asking}
	}
	return v
}

// tell passes a sentence about the parts on, now and then, until stop is
// closed. A sentence is not repeated.
func tell(parts []*part, others func(images bool) int, progress func(string), stop <-chan struct{}) {
	const soon, later = 300 * time.Millisecond, 2 * time.Second
	tick := time.NewTicker(soon)
	defer tick.Stop()
	views, last := make([]view, len(parts)), ""
	for every := soon; ; {
		select {
		case <-stop:
			return
		case now := <-tick.C:
			for i, p := range parts {
				views[i] = p.look(now)
			}
			if s := sentence(views, others); s != "" && s != last {
				last = s
				progress(s)
			}
			if every == soon {
				every = later
				tick.Reset(later)
			}
		}
	}
}

// sentence says what the parts wait for; others says how many downloads of a
// kind there are. It is empty where nothing is worth telling.
func sentence(parts []view, others func(images bool) int) string {
	var deps, images []view
	there, all := 0, 0
	var abroad, waiting, asked *view
	for i, p := range parts {
		if !p.image {
			all++
			if p.there {
				there++
			}
		}
		switch {
		case p.stage == elsewhere:
			abroad = &parts[i]
		case p.stage == queued:
			waiting = &parts[i]
		case p.stage == asking:
			asked = &parts[i]
		case p.image && p.stage >= moving:
			images = append(images, p)
		case p.stage == moving:
			deps = append(deps, p)
		}
	}
	switch {
	case len(deps)+len(images) > 0:
		return upper(doing(deps, images, there, all)) + "."
	case abroad != nil:
		return "Waiting for " + abroad.name + ", which another process fetches (" + abroad.by + ")."
	case waiting == nil && asked != nil:
		return "Asking " + asked.by + " for " + asked.name + "."
	case waiting == nil:
		return ""
	}
	switch n := others(waiting.image); n {
	case 0:
		return ""
	case 1:
		return "Waiting for 1 other download."
	default:
		return fmt.Sprintf("Waiting for %d other downloads.", n)
	}
}

// doing says what is being brought in: what moves in one sum, and what is
// converted.
func doing(deps, images []view, there, all int) string {
	var what, rest []string
	sum, sized := standing{}, true
	add := func(v view) {
		sum.done, sum.total, sum.rate = sum.done+v.done, sum.total+max(v.total, v.done), sum.rate+v.rate
		sized = sized && v.total > 0
	}
	for _, d := range deps {
		add(d)
	}
	switch {
	case len(deps) == 1:
		what = append(what, "downloading "+deps[0].name)
	case len(deps) > 1:
		what = append(what, fmt.Sprintf("downloading %d dependencies", len(deps)))
	}
	if len(deps) > 0 && there > 0 {
		what[0] += fmt.Sprintf(" (%d of %d are there)", there, all)
	}
	for _, i := range images {
		switch i.stage { //nolint:exhaustive // those of images that are brought in
		case converting:
			rest = append(rest, "converting "+i.name+": "+amount(i.standing, i.total > 0))
		case storing:
			rest = append(rest, "storing "+i.name)
		case reviewing:
			rest = append(rest, "reading "+i.name+": "+amount(i.standing, true))
		default:
			add(i)
			what = append(what, "pulling "+i.name)
		}
	}
	if len(what) > 0 {
		rest = append([]string{strings.Join(what, " and ") + ": " + amount(sum, sized)}, rest...)
	}
	return strings.Join(rest, "; ")
}

// amount is how much of how much there is, and how fast that grows.
func amount(s standing, sized bool) string {
	text := codalab.FormatSize(s.done)
	if sized {
		text += " of " + codalab.FormatSize(max(s.total, s.done))
	}
	if s.rate > 0 && s.stage != converting {
		text += " at " + codalab.FormatSize(s.rate) + "/s"
	}
	return text
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
