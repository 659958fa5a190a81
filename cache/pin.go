package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Pin says that a holder needs an entry.
type Pin struct {
	// Hash names the entry's key; see Entry.Hash.
	Hash   string    `json:"hash"`
	Holder Holder    `json:"holder"`
	Since  time.Time `json:"since"` // by the clock of the file server
}

// pinSeparator stands between the two parts of a pin's name.
const pinSeparator = "~"

func (c *Cache) pinPath(hash string, h Holder) string {
	return filepath.Join(c.place(pinsPlace), hash+pinSeparator+string(h))
}

// Pin keeps an entry from being removed, whether it is there already or not,
// until Unpin of its holder, or until Options.Over says that the holder is over.
// Pinning again changes nothing. Get pins by itself.
func (c *Cache) Pin(ctx context.Context, key Key, private bool, h Holder) error {
	if err := (Want{Key: key, Holder: h}).check(); err != nil {
		return err
	}
	if err := c.pin(ctx, c.entry(key, private), h); err != nil {
		return fmt.Errorf("pin %s: %w", key, err)
	}
	return nil
}

// pin makes the pin, an empty file whose name says all. On a network file
// system it is with the server when its creation returns; a host's own disk
// need not be flushed for it, since the holder dies with the host.
func (c *Cache) pin(ctx context.Context, e entry, h Holder) error {
	if h == "" {
		return fmt.Errorf("cache: %w", Holder("").check())
	}
	return persist(func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		f, err := os.OpenFile(c.pinPath(e.hash, h), os.O_CREATE|os.O_WRONLY, c.fileMode())
		if err != nil {
			return err
		}
		return f.Close()
	})
}

// DropPin drops one pin. One that is not there is dropped already.
func (c *Cache) DropPin(key Key, private bool, h Holder) error {
	if err := (Want{Key: key, Holder: h}).check(); err != nil {
		return err
	}
	if err := remove(c.pinPath(c.entry(key, private).hash, h)); err != nil {
		return fmt.Errorf("unpin %s: %w", key, err)
	}
	return nil
}

// Unpin drops all pins of a holder.
func (c *Cache) Unpin(ctx context.Context, h Holder) error {
	pins, err := c.pinNames()
	if err != nil {
		return fmt.Errorf("unpin what %s holds: %w", h, err)
	}
	for _, p := range pins {
		if p.Holder != h {
			continue
		}
		if err := errors.Join(ctx.Err(), remove(c.pinPath(p.Hash, h))); err != nil {
			return fmt.Errorf("unpin what %s holds: %w", h, err)
		}
	}
	return nil
}

// Pins lists the pins.
func (c *Cache) Pins() ([]Pin, error) {
	pins, err := c.pinNames()
	if err != nil {
		return nil, fmt.Errorf("list pins: %w", err)
	}
	listed := pins[:0]
	for _, p := range pins {
		info, err := os.Lstat(c.pinPath(p.Hash, p.Holder))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list pins: %w", err)
		}
		p.Since = info.ModTime()
		listed = append(listed, p)
	}
	return listed, nil
}

// pinNames lists the pins as the file server has them now.
func (c *Cache) pinNames() ([]Pin, error) {
	names, err := c.names(c.place(pinsPlace))
	if err != nil {
		return nil, err
	}
	pins := make([]Pin, 0, len(names))
	for _, name := range names {
		hash, holder, ok := strings.Cut(name, pinSeparator)
		if ok && isHex(hash, hashLength) {
			pins = append(pins, Pin{Hash: hash, Holder: Holder(holder)})
		}
	}
	return pins, nil
}

// dropOver drops the pins of holders that are over, and returns the others, and
// those that it dropped.
func (c *Cache) dropOver(ctx context.Context, pins []Pin, dry bool) (rest []Pin, dropped []Pin, err error) {
	if c.o.Over == nil || len(pins) == 0 {
		return pins, nil, nil
	}
	known := map[Holder]bool{}
	var holders []Holder
	for _, p := range pins {
		if !known[p.Holder] {
			known[p.Holder] = true
			holders = append(holders, p.Holder)
		}
	}
	over, err := c.o.Over(ctx, holders)
	if err != nil {
		return nil, nil, fmt.Errorf("ask which pins are over: %w", err)
	}
	for _, p := range pins {
		if !over[p.Holder] {
			rest = append(rest, p)
			continue
		}
		if !dry {
			if err := remove(c.pinPath(p.Hash, p.Holder)); err != nil {
				return nil, nil, fmt.Errorf("drop a pin: %w", err)
			}
		}
		dropped = append(dropped, p)
	}
	return rest, dropped, nil
}
