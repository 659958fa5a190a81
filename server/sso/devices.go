package sso

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"math/big"
	"strings"
	"sync"
	"time"
)

// The errors of a program that asks for its tokens (RFC 8628, section 3.5).
var (
	ErrPending = errors.New("authorization_pending")
	ErrSlow    = errors.New("slow_down")
	ErrDenied  = errors.New("access_denied")
	ErrExpired = errors.New("expired_token")
)

// ErrBusy means that too many sign-ins are under way.
var ErrBusy = errors.New("too many sign-ins are under way")

const (
	// deviceLife is the time for a sign-in by a browser.
	deviceLife = 10 * time.Minute
	// mostDevices bounds the sign-ins under way, mostOfAddress those from one address.
	mostDevices   = 5000
	mostOfAddress = 100
	// codeLetters are those of short codes (RFC 8628, section 6.1): no vowels, so that no code is a word.
	codeLetters = "BCDFGHJKLMNPQRSTVWXZ"
	codeLength  = 8
)

// device is a program that waits for its user to sign in.
type device struct {
	// client is hashed, because whoever calls chooses its length.
	short, client, address string
	begun, asked           time.Time
	// user is the id of the user who has signed in; empty before. denied is set if the user has refused.
	user   string
	denied bool
}

// devices has the sign-ins under way. It is safe for concurrent use.
type devices struct {
	// interval is the least time between two questions of a program.
	interval time.Duration

	mu sync.Mutex
	// byLong has the hashes of long codes.
	byLong map[string]*device
}

func hash(code string) string {
	sum := sha256.Sum256([]byte(code))
	return hex.EncodeToString(sum[:])
}

// begin adds a sign-in of a program at an address, and returns its codes.
func (d *devices) begin(client, address string, now time.Time) (long, short string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	same := 0
	for code, one := range d.byLong {
		switch {
		case now.Sub(one.begun).Abs() >= deviceLife:
			delete(d.byLong, code)
		case one.address == address:
			same++
		}
	}
	if len(d.byLong) >= mostDevices || same >= mostOfAddress {
		return "", "", ErrBusy
	}
	long = rand.Text() + rand.Text()
	one := &device{short: newShort(), client: hash(client), address: address, begun: now}
	d.byLong[hash(long)] = one
	return long, one.short, nil
}

func newShort() string {
	var b strings.Builder
	for range codeLength {
		n, _ := rand.Int(rand.Reader, big.NewInt(int64(len(codeLetters)))) // never fails
		b.WriteByte(codeLetters[n.Int64()])
	}
	return b.String()
}

// readShort returns a short code as somebody has typed it.
func readShort(text string) string {
	return strings.Map(func(r rune) rune {
		if strings.ContainsRune(codeLetters, r) {
			return r
		}
		return -1
	}, strings.ToUpper(text))
}

// spellShort is a short code for people.
func spellShort(code string) string { return code[:codeLength/2] + "-" + code[codeLength/2:] }

// find returns the sign-in with a short code that waits for its user.
func (d *devices) find(short string, now time.Time) (device, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.waiting(short, now)
	if one == nil {
		return device{}, false
	}
	return *one, true
}

func (d *devices) waiting(short string, now time.Time) *device {
	for _, one := range d.byLong {
		if one.short == short && one.user == "" && !one.denied && now.Sub(one.begun).Abs() < deviceLife {
			return one
		}
	}
	return nil
}

// settle ends the waiting of a sign-in: its user has signed in, or has refused if user is empty. It returns false if it does
// not wait.
func (d *devices) settle(short, user string, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	one := d.waiting(short, now)
	if one != nil {
		one.user, one.denied = user, user == ""
	}
	return one != nil
}

// redeem returns the id of the user who has signed in, once.
func (d *devices) redeem(long, client string, now time.Time) (user string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := hash(long)
	one := d.byLong[key]
	switch {
	case one == nil || one.client != hash(client):
		return "", ErrExpired
	case now.Sub(one.begun).Abs() >= deviceLife:
		delete(d.byLong, key)
		return "", ErrExpired
	case one.denied:
		delete(d.byLong, key)
		return "", ErrDenied
	case one.user != "":
		delete(d.byLong, key)
		return one.user, nil
	}
	early := !one.asked.IsZero() && now.Sub(one.asked) < d.interval*3/4
	one.asked = now
	if early {
		return "", ErrSlow
	}
	return "", ErrPending
}
