package cache

import (
	"fmt"
	"slices"
)

// steps lists the next possible steps of one actor.
type steps struct {
	model
	role
	i      int
	before world
	all    []move
}

// add adds a step: its name, the actor's next line, and its change of the state.
func (s *steps) add(what string, next step, change func(w *world, a *actor)) {
	w := s.before
	a := &w.actors[s.i]
	a.next = next
	if change != nil {
		change(&w, a)
	}
	if next == ended {
		*a = actor{}
	}
	s.all = append(s.all, move{s.name + ": " + what, w})
}

func (s *steps) list() {
	a := s.before.actors[s.i]
	switch {
	case a.next == ended:
		return
	case a.next <= getPinLate:
		s.get(a)
	case a.next <= fillDropFirstName:
		s.fill(a)
	case a.next >= movePick:
		s.move(a)
	default:
		s.remove(a)
	}
	if s.before.faults > 0 {
		s.add("crashes", ended, func(w *world, _ *actor) { w.faults-- })
	}
}

// get is Get. Its first reading may return any content that was ever in use, so it is one step with
// the pin. From its second reading on, the content that it finds is in use.
func (s *steps) get(a actor) {
	switch {
	case a.next == getPin:
		for t := uint8(1); t <= mostTokens; t++ {
			if s.before.known.has(t) {
				s.add(fmt.Sprintf("reads %d and pins it", t), getReadAgain, func(w *world, a *actor) {
					a.token = t
					if !s.pinsLast {
						w.pins[s.holder] |= only(t)
					}
				})
			}
		}
		s.add("reads nothing", ended, nil)
	case a.next == getReadAgain && s.pinsLast && s.before.record == a.token:
		s.add("reads the same again", getPinLate, nil)
	case s.before.record == a.token || s.rereadsStale || s.readsOnce || a.next == getPinLate:
		s.add(fmt.Sprintf("reads %d again", a.token), ended, func(w *world, _ *actor) {
			w.pins[s.holder] |= only(a.token)
			w.inUse[s.holder] |= only(a.token)
		})
	default:
		s.add("reads something else", getPin, func(w *world, now *actor) {
			now.token = 0
			if s.dropsPin {
				w.pins[s.holder] &^= only(a.token)
			}
		})
	}
}

func (s *steps) fill(a actor) {
	t, w := a.token, s.before
	switch a.next {
	case fillBegin:
		if w.record != 0 {
			s.goOnAsGet("finds it made", func(*world) {})
			return
		}
		s.add(fmt.Sprintf("creates the first name of %d", t), fillContent, func(w *world, _ *actor) { w.first |= only(t) })
	case fillContent:
		next := fillPin
		if s.holder == nobody && !s.publishesAnew {
			next = fillLink
		}
		s.add("makes the content", next, func(w *world, _ *actor) { w.content |= only(t) })
	case fillPin:
		s.add("pins its own", fillLink, func(w *world, _ *actor) {
			if s.holder != nobody {
				w.pins[s.holder] |= only(t)
			}
			if s.publishesAnew {
				w.first |= only(t)
			}
		})
	case fillLink:
		s.link(t)
	case fillReadBack:
		switch {
		case w.record == t:
			s.add("reads back its own", fillDropFirstName, nil)
		case w.record != 0:
			s.add("reads back another's", removeUnlink, nil) // it removes its own content
		case w.first.has(t):
			s.add("reads back nothing", fillLink, nil)
		default:
			s.beginAgain()
		}
	case fillDropFirstName:
		s.goOnAsGet("drops the first name", func(w *world) { w.first &^= only(t) })
	default: // not of a fill
	}
}

// link links the first name to the name of the record, with every outcome. The record is written
// into the file of the first name before that, which changes nothing if the file has no name any
// more.
func (s *steps) link(t uint8) {
	w := s.before
	if !w.first.has(t) {
		s.beginAgain()
		return
	}
	if w.record != 0 {
		s.add("does not link, as a record stands", fillReadBack, nil)
	} else {
		s.add(fmt.Sprintf("links %d", t), fillReadBack, func(w *world, _ *actor) { w.publish(t) })
	}
	if w.faults > 0 {
		s.add("links in vain", fillReadBack, func(w *world, _ *actor) { w.faults-- })
	}
	if w.faults > 0 && w.late == 0 {
		s.add(fmt.Sprintf("gives up a link of %d that is under way", t), fillReadBack, func(w *world, _ *actor) {
			w.faults--
			w.late = t
		})
	}
}

// goOnAsGet lets a filler with a holder pin and read as any other Get does.
func (s *steps) goOnAsGet(what string, change func(w *world)) {
	next := getPin
	if s.holder == nobody {
		next = ended
	}
	s.add(what, next, func(w *world, a *actor) {
		a.token = 0
		change(w)
	})
}

// beginAgain begins a fill with the next token.
func (s *steps) beginAgain() {
	i := slices.Index(s.tokens, s.before.actors[s.i].token) + 1
	if i == len(s.tokens) {
		s.add("finds no first name and gives up", ended, nil)
		return
	}
	s.add("finds no first name and begins again", fillBegin, func(_ *world, a *actor) { a.token = s.tokens[i] })
}

// remove is Remove: by a trimmer of a retired content, by a sweeper or an heir of one that was
// never published, and by a filler of one that it could not publish.
func (s *steps) remove(a actor) {
	t, w := a.token, s.before
	switch a.next {
	case removeUnlink:
		s.unlink(a)
	case removeProbe:
		next := removeListRetired
		if s.isTrimmer() {
			next = removeListPins
		}
		if w.record == t && s.forgetsStanding && s.isTrimmer() {
			s.leave("finds it in use, and drops the retired name", func(w *world) { w.forget(t) })
		} else if w.record == t && !s.probesStale {
			s.leave("finds it in use", func(*world) {})
		} else {
			s.add("does not find it in use", next, nil)
		}
	case removeListRetired:
		if w.retired.has(t) && !s.sweepsRetired {
			s.leave("leaves what is retired to a trimmer", func(*world) {})
		} else {
			s.add("does not find it retired", removeListPins, nil)
		}
	case removeListPins:
		switch pinned := w.pinned(t); {
		case pinned && !s.listsBefore || s.listsBefore && a.saw.has(t):
			if s.restores && w.record == 0 && w.retired.has(t) {
				s.leave("restores it", func(w *world) { w.publish(t); w.forget(t) })
			}
			s.leave("finds a pin", func(*world) {})
		default:
			s.add("finds no pin", removeContent, nil)
		}
	case removeContent:
		s.add(fmt.Sprintf("removes content %d", t), removeRecord, func(w *world, _ *actor) { w.content &^= only(t) })
	case removeRecord:
		s.leave("removes its retired record", func(w *world) { w.forget(t) })
	default: // not of a Remove
	}
}

func (w *world) forget(t uint8) {
	w.retired, w.seen, w.settled = w.retired&^only(t), w.seen&^only(t), w.settled&^only(t)
}

func (s *steps) isTrimmer() bool { return s.begins == removeUnlink && !s.sweeps }

// leave ends a Remove. A trimmer and a sweeper then take the next content, and a filler continues
// its Get.
func (s *steps) leave(what string, change func(w *world)) {
	if s.begins == fillBegin {
		s.goOnAsGet(what, change)
		return
	}
	s.add(what, removeUnlink, func(w *world, a *actor) {
		*a = actor{next: removeUnlink}
		change(w)
	})
}

// unlink unlinks a first name. A trimmer does so before it notes that a record is retired, so that
// no link begins after Settle has begun.
func (s *steps) unlink(a actor) {
	for t := uint8(1); t <= mostTokens; t++ {
		w := s.before
		unlink := func(w *world, a *actor) {
			a.token = t
			if s.listsBefore && w.pinned(t) {
				a.saw = only(t)
			}
			if !s.keepsFirstName {
				w.first &^= only(t)
			}
		}
		switch {
		case a.token != 0 && a.token != t: // a filler's is its own
		case s.isTrimmer() && w.retired.has(t) && !w.seen.has(t):
			s.leave(fmt.Sprintf("notes that %d is retired", t), func(w *world) {
				w.seen |= only(t)
				if !s.notesFirst {
					unlink(w, &actor{})
				}
			})
		case s.isTrimmer() && !w.settled.has(t):
		case !s.isTrimmer() && !w.first.has(t) && !w.content.has(t) && a.token == 0:
		default:
			s.add(fmt.Sprintf("unlinks the first name of %d", t), removeProbe, unlink)
		}
	}
}

// move moves a pin of holder A, who also has a pin of the key, from a retired content to the
// current one, which A finds like a Get. After that, A does not use the old content any more.
func (s *steps) move(a actor) {
	w := s.before
	switch a.next {
	case movePick:
		for t := uint8(1); t <= mostTokens; t++ {
			if !w.pins[holderA].has(t) || !w.settled.has(t) {
				continue
			}
			if s.movesAtOnce {
				s.add(fmt.Sprintf("drops the pin of %d", t), movePick, func(w *world, _ *actor) { w.pins[holderA] &^= only(t) })
				continue
			}
			for now := uint8(1); now <= mostTokens; now++ {
				if w.known.has(now) {
					s.add(fmt.Sprintf("finds %d settled, reads %d and pins it", t, now), moveReadAgain, func(w *world, a *actor) {
						a.token, a.saw = now, only(t)
						w.pins[holderA] |= only(now)
					})
				}
			}
		}
	case moveReadAgain:
		if w.record != a.token || a.saw.has(a.token) {
			s.add("reads something else", movePick, func(_ *world, now *actor) { now.token, now.saw = 0, 0 })
			return
		}
		s.add(fmt.Sprintf("reads %d again", a.token), moveDrop, func(w *world, _ *actor) {
			if !w.over[holderA] {
				w.inUse[holderA] |= only(a.token)
			}
		})
	case moveDrop:
		for t := uint8(1); t <= mostTokens; t++ {
			if a.saw.has(t) {
				s.add(fmt.Sprintf("drops the pin of %d", t), movePick, func(w *world, now *actor) {
					now.token, now.saw = 0, 0
					w.pins[holderA] &^= only(t)
					w.inUse[holderA] &^= only(t)
				})
			}
		}
	default: // not of a mover
	}
}
