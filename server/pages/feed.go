package pages

import (
	"context"
	"sync"
	"time"
)

// feed tells streams that bundles have changed. It is safe for concurrent use.
type feed struct {
	mu sync.Mutex
	// watchers has those of a topic.
	watchers map[string]map[*watcher]bool
}

// watcher waits for changes of one topic.
type watcher struct {
	topic string
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

func (f *feed) watch(topic string) *watcher {
	w := &watcher{topic, make(chan struct{}, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watchers[topic] == nil {
		f.watchers[topic] = map[*watcher]bool{}
	}
	f.watchers[topic][w] = true
	return w
}

func (f *feed) leave(w *watcher) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers[w.topic], w)
	if len(f.watchers[w.topic]) == 0 {
		delete(f.watchers, w.topic)
	}
}

// wait returns after a change, or after a time. It fails when ctx ends.
func (w *watcher) wait(ctx context.Context, longest time.Duration) (changed bool, err error) {
	timer := time.NewTimer(longest)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false, ctx.Err()
	case <-w.changed:
		return true, nil
	case <-timer.C:
		return false, nil
	}
}
