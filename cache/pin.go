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

// Pin records that a holder needs an entry.
type Pin struct {
	// Hash names the entry's key; see Entry.Hash.
	Hash   string    `json:"hash"`
	Holder Holder    `json:"holder"`
	Since  time.Time `json:"since"` // by the clock of the file server
	// target names the pinned content ("<hash>.<token>"), the standing record of a key whatever it
	// names ("<hash>.json"), or, in pins of an older version, all contents of a key ("<hash>").
	target string
}

// pinSeparator separates the two parts of a pin's name.
const pinSeparator = "~"

func (c *Cache) pinPath(target string, h Holder) string {
	return filepath.Join(c.place(pinsPlace), target+pinSeparator+string(h))
}

// Pin protects the current and all later contents of a key from being retired for room. The pin
// lasts until DropPin or Unpin drops it, or until Options.Over names its holder. Pinning again
// changes nothing. Get pins the content that it returns without this.
//
// A content that is retired for another reason, such as a damaged one, is not protected: a trim
// moves the holder's pin to the key's current content. So a holder that reads a content for some
// time must not be one that Pin was called with.
func (c *Cache) Pin(ctx context.Context, key Key, private bool, h Holder) error {
	if h == "" {
		return fmt.Errorf("cache: %w", h.check())
	}
	if err := (Want{Key: key, Holder: h}).check(); err != nil {
		return err
	}
	e := c.namesOf(key, private)
	err := c.pin(ctx, e.hash+recordSuffix, h)
	if err == nil {
		_, _, err = c.hit(ctx, e, h)
	}
	if err != nil {
		return fmt.Errorf("pin %s: %w", key, err)
	}
	return nil
}

// pin makes a pin, an empty file. It needs no flush: a network file system's server has the file
// when its creation returns, and on a host's own disk the holder dies with the host.
func (c *Cache) pin(ctx context.Context, target string, h Holder) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.createEmpty(c.pinPath(target, h))
}

// DropPin drops a holder's pins of one key. It returns nil if there are none.
func (c *Cache) DropPin(ctx context.Context, key Key, private bool, h Holder) error {
	if err := (Want{Key: key, Holder: h}).check(); err != nil {
		return err
	}
	hash := c.namesOf(key, private).hash
	if err := c.dropPins(ctx, func(p Pin) bool { return p.Hash == hash && p.Holder == h }); err != nil {
		return fmt.Errorf("unpin %s: %w", key, err)
	}
	return nil
}

// Unpin drops all pins of a holder.
func (c *Cache) Unpin(ctx context.Context, h Holder) error {
	if err := c.dropPins(ctx, func(p Pin) bool { return p.Holder == h }); err != nil {
		return fmt.Errorf("drop the pins of %s: %w", h, err)
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

// Pins lists the pins, one for each holder and key. Since is the time of the holder's earliest pin
// of the key.
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

// pinned maps the targets of pins to their holders.
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

// holds reports whether a pin forbids to remove a content.
func (p pinned) holds(hash, token string) bool {
	return len(p[hash])+len(p[hash+"."+token]) > 0
}

// keeps reports whether a pin forbids to retire the record of a content for room.
func (p pinned) keeps(hash, token string) bool {
	return p.holds(hash, token) || len(p[hash+recordSuffix]) > 0
}

// holders returns the holders of a content and, if its record stands, of the record.
func (p pinned) holders(hash, token string, stands bool) []Holder {
	all := slices.Concat([]Holder{}, p[hash], p[hash+"."+token])
	if stands {
		all = append(all, p[hash+recordSuffix]...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// dropOver drops the pins of holders that are over. It returns the remaining pins and the dropped
// ones.
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
		return nil, nil, fmt.Errorf("check the holders of pins: %w", err)
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

// movePins moves pins from a content whose retirement has settled to the key's current content, if
// there is one. It moves only pins of holders that pinned the key's record. It must not do so
// before: a late link could publish the content once more, and a Get of the same holder would rely
// on the pin.
func (w *trimming) movePins(ctx context.Context, e entryNames, settled string) error {
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
