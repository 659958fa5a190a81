package transfer

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/cl-slurm/cl-slurm/codalab"
)

// Item is one thing that a bundle waits for. Its methods are safe for concurrent use.
type Item struct {
	// Name is its name in sentences: "image python:3", "dependency data (corpus)".
	Name string
	// Image is set for an image.
	Image bool

	mu       sync.Mutex
	registry string    // the one that is asked; empty for none
	transfer *Transfer // nil before there is one
	there    bool
}

// Asks records that a registry is asked for the item's digest. "" ends that.
func (i *Item) Asks(registry string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.registry = registry
}

// Follow shows the progress of a transfer as the item's.
func (i *Item) Follow(t *Transfer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.registry, i.transfer = "", t
}

// Arrived records that the item is on the shared disk.
func (i *Item) Arrived() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.there, i.transfer = true, nil
}

type view struct {
	name         string
	image, there bool
	Progress
}

func (i *Item) view(now time.Time) view {
	i.mu.Lock()
	defer i.mu.Unlock()
	v := view{name: i.Name, image: i.Image, there: i.there}
	switch {
	case i.transfer != nil:
		v.Progress = i.transfer.Progress(now)
	case i.registry != "":
		v.Progress = Progress{Stage: Asking, By: i.registry}
	}
	return v
}

// Report calls work. Until work returns, it calls tell with sentences about the items, soon and
// then every two seconds, like Tell.
func Report(items []*Item, tell func(string), work func() error) error {
	views := make([]view, len(items))
	return Tell(300*time.Millisecond, 2*time.Second, tell, func(now time.Time) string {
		for i, item := range items {
			views[i] = item.view(now)
		}
		return describe(views)
	}, work)
}

// Tell calls work. Until work returns, it calls tell with the result of sentence, from one
// goroutine: after first, and then after each later. It omits empty sentences, and a sentence that
// repeats the last one.
func Tell(first, later time.Duration, tell func(string), sentence func(now time.Time) string, work func() error) error {
	last := ""
	return during(first, later, func(now time.Time) {
		if s := sentence(now); s != "" && s != last {
			last = s
			tell(s)
		}
	}, work)
}

// Watch calls work. Until work returns, it calls show with the item's progress, if there is any,
// from one goroutine.
func Watch(item *Item, show func(Progress), work func() error) error {
	const every = 200 * time.Millisecond
	return during(every, every, func(now time.Time) {
		if v := item.view(now); v.Stage != Idle {
			show(v.Progress)
		}
	}, work)
}

func during(first, later time.Duration, report func(now time.Time), work func() error) error {
	stop := make(chan struct{})
	var reporter sync.WaitGroup
	reporter.Go(func() {
		tick := time.NewTicker(first)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				report(now)
				tick.Reset(later)
			}
		}
	})
	defer reporter.Wait()
	defer close(stop)
	return work()
}

// describe returns the sentence about the items that the bundle waits for; "" if there are none.
func describe(items []view) string {
	var moving []view
	var elsewhere, queued, asking *view
	for i := range items {
		v := &items[i]
		switch v.Stage {
		case Idle:
		case Elsewhere:
			elsewhere = v
		case Queued:
			queued = v
		case Asking:
			asking = v
		case Pulling, Converting, Storing, Reading:
			moving = append(moving, *v)
		}
	}
	switch {
	case len(moving) > 0:
		return codalab.Sentence(describeMoving(moving, items))
	case elsewhere != nil:
		return "Waiting for " + elsewhere.name + ", which another process fetches (" + elsewhere.By + ")."
	case queued == nil && asking != nil:
		return "Asking " + asking.By + " for " + asking.name + "."
	case queued == nil:
		return ""
	}
	switch queued.Ahead {
	case 0:
		return ""
	case 1:
		return "Waiting for 1 other download."
	default:
		return fmt.Sprintf("Waiting for %d other downloads.", queued.Ahead)
	}
}

// describeMoving describes the moving transfers. It adds up their bytes over the network.
func describeMoving(moving, all []view) string {
	var dependencies, pulled, phrases []string
	sum, sized := Progress{}, true
	for _, v := range moving {
		switch v.Stage {
		case Converting:
			phrases = append(phrases, "converting "+v.name+": "+v.Amount())
		case Storing:
			phrases = append(phrases, "storing "+v.name)
		case Reading:
			phrases = append(phrases, "reading "+v.name+": "+v.Amount())
		default: // the other stages do not move
			sum.Done, sum.Total, sum.Rate = sum.Done+v.Done, sum.Total+max(v.Total, v.Done), sum.Rate+v.Rate
			sized = sized && v.Total > 0
			if v.image {
				pulled = append(pulled, "pulling "+v.name)
			} else {
				dependencies = append(dependencies, v.name)
			}
		}
	}
	if len(dependencies) > 0 {
		pulled = append([]string{"downloading " + countOf(dependencies, all)}, pulled...)
	}
	if !sized {
		sum.Total = 0
	}
	if len(pulled) > 0 {
		phrases = append([]string{strings.Join(pulled, " and ") + ": " + sum.Amount()}, phrases...)
	}
	return strings.Join(phrases, "; ")
}

// countOf names the dependencies that are being downloaded, and counts the finished ones.
func countOf(dependencies []string, all []view) string {
	text := dependencies[0]
	if n := len(dependencies); n > 1 {
		text = fmt.Sprintf("%d dependencies", n)
	}
	there, total := 0, 0
	for _, v := range all {
		if !v.image {
			total++
			if v.there {
				there++
			}
		}
	}
	if there > 0 {
		text += fmt.Sprintf(" (%d of %d are there)", there, total)
	}
	return text
}
