package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Pin says that a holder needs an entry.
type Pin struct {
	// Hash names the entry's key; see Entry.Hash.
	Hash   string    `json:"hash"`
	Holder Holder    `json:"holder"`
	Since  time.Time `json:"since"` // by the clock of the file server
	// target is what is pinned: a content ("<hash>.<token>"); a key's record,
	// whatever it names ("<hash>.json"); or, by an older version, every content of
	// a key ("<hash>").
	target string
}

// pinSeparator stands between the two parts of a pin's name.
const pinSeparator = "~"

func (c *Cache) pinPath(target string, h Holder) string {
	return filepath.Join(c.place(pinsPlace), target+pinSeparator+string(h))
}

// Pin keeps the content of a key from being removed, also one that is made later,
// until DropPin, Unpin of its holder, or until Options.Over names the holder.
// Pinning again changes nothing. Get pins by itself the content that it returns.
//
// A content that is retired all the same, such as a damaged one, is not kept: a trim
// moves the holder's pin to the key's current content. So a holder that reads a
// content for some time gets it under a name with which it does not call Pin.
func (c *Cache) Pin(ctx context.Context, key Key, private bool, h Holder) error {
	if h == "" {
		return fmt.Errorf("cache: %w", h.check())
	}
	if err := (Want{Key: key, Holder: h}).check(); err != nil {
		return err
	}
	e := c.entry(key, private)
	err := c.pin(ctx, e.hash+recordSuffix, h)
	if err == nil {
		_, _, err = c.hit(ctx, e, h)
	}
	if err != nil {
		return fmt.Errorf("pin %s: %w", key, err)
	}
	return nil
}

// pin makes a pin, an empty file. On a network file
// system it is with the server when its creation returns; a host's own disk
// need not be flushed for it, since the holder dies with the host.
func (c *Cache) pin(ctx context.Context, target string, h Holder) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.createEmpty(c.pinPath(target, h))
}

// DropPin drops a holder's pins of one key. Pins that are not there are dropped
// already.
func (c *Cache) DropPin(ctx context.Context, key Key, private bool, h Holder) error {
	if err := (Want{Key: key, Holder: h}).check(); err != nil {
		return err
	}
	hash := c.entry(key, private).hash
	if err := c.dropPins(ctx, func(p Pin) bool { return p.Hash == hash && p.Holder == h }); err != nil {
		return fmt.Errorf("unpin %s: %w", key, err)
	}
	return nil
}

// Unpin drops all pins of a holder.
func (c *Cache) Unpin(ctx context.Context, h Holder) error {
	if err := c.dropPins(ctx, func(p Pin) bool { return p.Holder == h }); err != nil {
		return fmt.Errorf("unpin what %s holds: %w", h, err)
	}
	return nil
}

func (c *Cache) dropPins(ctx context.Context, which func(Pin) bool) error {
	pins, err := c.listPins()
	if err != nil {
		return err
	}
	for _, p := range pins {
		if !which(p) {
			continue
		}
		if err := errors.Join(ctx.Err(), remove(c.pinPath(p.target, p.Holder))); err != nil {
			return err
		}
	}
	return nil
}

// Pins lists which holders have pinned which keys. Since is the time of the holder's
// earliest pin of the key.
func (c *Cache) Pins() ([]Pin, error) {
	pins, err := c.listPins()
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	listed := pins[:0]
	for _, p := range pins {
		info, err := os.Lstat(c.pinPath(p.target, p.Holder))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list pins: %w", err)
		}
		p.Since = info.ModTime()
		listed = append(listed, p)
	}
	slices.SortFunc(listed, func(a, b Pin) int {
		return cmp.Or(cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Holder, b.Holder), a.Since.Compare(b.Since))
	})
	return slices.CompactFunc(listed, func(a, b Pin) bool { return a.Hash == b.Hash && a.Holder == b.Holder }), nil
}

// listPins lists the pins as the file server has them now.
func (c *Cache) listPins() ([]Pin, error) {
	names, err := c.names(c.place(pinsPlace))
	if err != nil {
		return nil, err
	}
	pins := make([]Pin, 0, len(names))
	for _, name := range names {
		target, holder, ok := strings.Cut(name, pinSeparator)
		hash, rest, _ := strings.Cut(target, ".")
		if ok && isHex(hash, hashLength) && (target == hash || target == hash+recordSuffix || isHex(rest, tokenLength)) {
			pins = append(pins, Pin{Hash: hash, Holder: Holder(holder), target: target})
		}
	}
	return pins, nil
}

// pinned are the holders in a listing of pins, by target.
type pinned map[string][]Holder

func newPinned(pins []Pin) pinned {
	all := pinned{}
	for _, p := range pins {
		all[p.target] = append(all[p.target], p.Holder)
	}
	return all
}

// listPinned lists the pins as the file server has them now.
func (c *Cache) listPinned() (pinned, error) {
	pins, err := c.listPins()
	return newPinned(pins), err
}

// holds reports whether a content is pinned, so that it must not be removed.
func (p pinned) holds(hash, token string) bool {
	return len(p[hash])+len(p[hash+"."+token]) > 0
}

// keeps reports whether the record of a content must not be retired to make room.
func (p pinned) keeps(hash, token string) bool {
	return p.holds(hash, token) || len(p[hash+recordSuffix]) > 0
}

// holders are those that hold a content, or its key's record if that stands.
func (p pinned) holders(hash, token string, stands bool) []Holder {
	all := slices.Concat([]Holder{}, p[hash], p[hash+"."+token])
	if stands {
		all = append(all, p[hash+recordSuffix]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// dropOver drops the pins of holders that are over, and returns the others, and
// those that it dropped.
func (c *Cache) dropOver(ctx context.Context, pins []Pin, dry bool) (rest []Pin, dropped []Pin, err error) {
	if c.o.Over == nil || len(pins) == 0 {
		return pins, nil, nil
	}
	var holders []Holder
	for _, p := range pins {
		holders = append(holders, p.Holder)
	}
	slices.Sort(holders)
	over, err := c.o.Over(ctx, slices.Compact(holders))
	if err != nil {
		return nil, nil, fmt.Errorf("ask which pins are over: %w", err)
	}
	for _, p := range pins {
		if !over[p.Holder] {
			rest = append(rest, p)
			continue
		}
		if !dry {
			if err := remove(c.pinPath(p.target, p.Holder)); err != nil {
				return nil, nil, fmt.Errorf("drop a pin: %w", err)
			}
		}
		dropped = append(dropped, p)
	}
	return rest, dropped, nil
}

// movePins gives the holders of a key's record a pin of the key's current content, if
// there is one, and drops their pins of a content whose retirement has settled. Before
// that, a link on its way could publish the content once more, and a Get of the same
// holder rely on the pin.
func (w *trimming) movePins(ctx context.Context, e entry, settled string) error {
	for _, h := range w.pinned[e.id(settled)] {
		if !slices.Contains(w.pinned[e.hash+recordSuffix], h) {
			continue
		}
		r, found, err := w.hit(ctx, e, h)
		if err == nil && found && r.Token != settled {
			err = remove(w.pinPath(e.id(settled), h))
		}
		if err != nil {
			return fmt.Errorf("move a pin of %s: %w", h, err)
		}
	}
	return nil
}
