package pages

import (
	"context"
	"errors"
	"sync"
	"time"
)

// feed tells streams that bundles have changed. It is safe for concurrent use.
type feed struct {
	mu sync.Mutex
	// watchers has those of a topic.
	watchers map[string]map[*watcher]bool
	// of counts the streams of a user.
	of map[string]int
	// stopped is closed when the server stops.
	stopped chan struct{}
}

// mostStreams is the number of streams that one user, or one network of those who have not signed in, may have.
const mostStreams = 50

func newFeed() *feed {
	return &feed{watchers: map[string]map[*watcher]bool{}, of: map[string]int{}, stopped: make(chan struct{})}
}

// watcher waits for changes of one topic.
type watcher struct {
	feed        *feed
	user, topic string
	// changed has room for one change: a stream shows all of them at once.
	changed chan struct{}
}

// The topics of a bundle.
func bundleTopic(uuid string) string   { return "bundle " + uuid }
func ownerTopic(ownerID string) string { return "owner " + ownerID }

// changed wakes the watchers of a bundle and of its owner.
func (f *feed) changed(ownerID, uuid string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, topic := range []string{bundleTopic(uuid), ownerTopic(ownerID)} {
		for w := range f.watchers[topic] {
			select {
			case w.changed <- struct{}{}:
			default: // it will look in any case
			}
		}
	}
}

// watch begins to wait for changes of a topic; nil if the user has too many streams.
func (f *feed) watch(user, topic string) *watcher {
	w := &watcher{f, user, topic, make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[user] >= mostStreams {
		return nil
	}
	f.of[user]++
	if f.watchers[topic] == nil {
		f.watchers[topic] = map[*watcher]bool{}
	}
	f.watchers[topic][w] = true
	return w
}

func (f *feed) leave(w *watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.of[w.user]--; f.of[w.user] == 0 {
		delete(f.of, w.user)
	}
	delete(f.watchers[w.topic], w)
	if len(f.watchers[w.topic]) == 0 {
		delete(f.watchers, w.topic)
	}
}

// errStopped ends the streams of a server that stops.
var errStopped = errors.New("the server stops")

// wait returns after a change, or after a time. It fails when ctx ends, or the server stops.
func (w *watcher) wait(ctx context.Context, longest time.Duration) (changed bool, err error) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-w.feed.stopped:
		return false, errStopped
	case <-w.changed:
		return true, nil
	case <-timer.C:
		return false, nil
	}
}

// gather waits for a time. It fails as wait does.
func (w *watcher) gather(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-w.feed.stopped:
		return errStopped
	case <-timer.C:
		return nil
	}
}
